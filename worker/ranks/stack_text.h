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

/// Of Python's faulthandler. What is cut there, after 100 threads, is missing: so may be the main thread.
/// \param directory  that in which the process is: what is below it is named from there on
std::vector<ThreadStack> parse_faulthandler(std::string_view text, std::string_view directory);

/// Of `py-spy dump`.
std::vector<ThreadStack> parse_py_spy(std::string_view text);

/// Of /proc/PID/task/TID/stack: the kernel's own functions, such as "futex_wait_queue".
std::vector<std::string> parse_kernel_stack(std::string_view text);

/// Of /proc/PID/status: what stands behind "NAME:"; empty if there is no such line.
std::string_view status_value(std::string_view text, std::string_view name);

/// Puts threads together that are at the same place, and cuts what is too much: frames of a stack, and
/// threads of a process.
std::vector<ThreadStack> fold_threads(std::vector<ThreadStack> threads);

inline constexpr std::string_view kMainThread = "MainThread";  // what Python calls it
inline constexpr std::size_t kFramesMax = 64;                  // of a thread
inline constexpr std::size_t kThreadsMax = 64;      // of a process, that are at different places
inline constexpr std::size_t kFrameBytesMax = 240;  // of one line

}  // namespace dtrun::ranks
