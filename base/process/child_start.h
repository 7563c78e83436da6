#pragma once

// What a child does between its start and exec. For subprocess.cpp alone.

#include <sys/resource.h>
#include <sys/types.h>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace dtrun {

/// All that the child needs, prepared by its parent: it works in the parent's memory, beside the parent, and
/// so calls nothing of a library: neither allocates, nor locks, nor touches errno, which belongs to the
/// parent's thread. Whatever is pointed to belongs to the parent, and stays until the program is executed.
struct ChildStart {
    struct Given {
        int ours;  ///< -1: /dev/null
        int number;
    };
    enum class Group : std::uint8_t { ours, own_group, own_session };
    enum class Descriptors : std::uint8_t {
        inherited,  ///< besides the given ones those that are not close-on-exec
        closed,     ///< the given ones alone
        unshared_low,  ///< the same, and the table is our parent's: we leave it with a copy of its beginning
    };

    pid_t parent = 0;
    int status = -1;  ///< a pipe, for ChildReport; closed by exec

    Given* given = nullptr;  ///< changed by the child
    std::size_t given_count = 0;
    int first_free = 0;       ///< the program gets no descriptor number from here on
    int descriptors_max = 0;  ///< no descriptor of the parent's has this number, or a higher one
    Descriptors descriptors = Descriptors::inherited;

    Group group = Group::ours;
    bool controlling_terminal = false;
    bool keep_ignored_signals = false;
    std::uint64_t blocked_signals = 0;  ///< as the kernel has them: bit 0 is signal 1
    int death_signal = 0;
    bool may_be_traced = false;
    const rlimit* descriptor_limit = nullptr;  ///< null: the parent's
    const unsigned long* cpus = nullptr;       ///< a mask; null: the parent's
    std::size_t cpus_bytes = 0;
    const char* directory = nullptr;  ///< null: the parent's

    const char* const* files = nullptr;  ///< to be executed: the first that can be; ends with null
    char** argv = nullptr;
    char** env = nullptr;
    /// argv of the shell, for a script without "#!"; the second word is for the file.
    char** script_argv = nullptr;

    /// See ProcessPlan. The child has memory of its own then.
    void (*execute)(const void* context, char* const* argv, char* const* env) = nullptr;
    const void* execute_context = nullptr;
};

/// What the child says through `status`, all at once: with unshared_low that it has descriptors of its own, and then
/// only a failure.
struct ChildReport {
    static constexpr int kHasOwnDescriptors = -1;
    int stage;  ///< that, or an ExecFailure::Stage
    int cause;  ///< errno; or 0
};

/// Whether a child can leave the parent's table of descriptors with a copy of a part of it (Linux 5.9, and no
/// seccomp filter that forbids it).
bool can_unshare_low_descriptors();

/// Makes a child that shares our memory, and runs start_program() on this stack, of ours.
/// \param start  stays until the child has executed its program, as does the stack
/// \return its pid; -1 with errno, as clone(): EINVAL where an emulator knows no such child, or where we
///         cannot make system calls as the child has to
pid_t start_sharing_memory(ChildStart& start, std::byte* stack_end);

/// In the child: executes the program, or says why not and ends.
[[noreturn]] void start_program(ChildStart& start);

}  // namespace dtrun
