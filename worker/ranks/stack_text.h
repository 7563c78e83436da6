#pragma once

#include "rendezvous/wire/look_messages.h"

#include <string>
#include <string_view>
#include <vector>

// What the tools that show stacks print, as stacks. Pure, and total: what is not understood is left out.
// Whatever differs between equal processes is left out as well: addresses, numbers of threads, values of
// arguments.

namespace dtrun::ranks {

/// Of `gdb -ex 'thread apply all bt'`. The process's first thread comes first.
std::vector<ThreadStack> parse_gdb(std::string_view text);

/// Of `py-spy dump`.
std::vector<ThreadStack> parse_py_spy(std::string_view text);

/// Of /proc/PID/task/TID/stack: the kernel's own functions, such as "futex_wait_queue".
std::vector<std::string> parse_kernel_stack(std::string_view text);

/// Puts threads together that are at the same place, and cuts what is too much: frames of a stack, and
/// threads of a process.
std::vector<ThreadStack> fold_threads(std::vector<ThreadStack> threads);

inline constexpr std::size_t kFramesMax = 64;       // of a thread
inline constexpr std::size_t kThreadsMax = 64;      // of a process, that are at different places
inline constexpr std::size_t kFrameBytesMax = 240;  // of one line

}  // namespace dtrun::ranks
