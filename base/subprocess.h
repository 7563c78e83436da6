#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <sys/types.h>
#include <csignal>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun {

/// A program to start and what it inherits. What it refers to outlives the call.
struct ProcessPlan {
    /// What is executed. Without a slash it is looked for along our own PATH; a script without "#!" is the
    /// shell's, as execvp() has it.
    const std::string& path;
    std::span<const std::string> argv;  ///< argv[0] first
    std::span<const std::string> env;   ///< "NAME=value", all of it

    static constexpr int kNull = -1;  ///< instead of a descriptor: /dev/null
    struct Given {
        int ours;
        int number;  ///< what it is in the program; may be the same
    };
    /// Every descriptor that it gets, with close_others; else those that are at other numbers there.
    std::vector<Given> descriptors{};
    /// Whether the program is kept from descriptors of ours that are not marked close-on-exec.
    bool close_others = false;
    const char* directory = nullptr;  ///< null: ours

    enum class Group : std::uint8_t { ours, own_group, own_session };
    Group group = Group::ours;
    /// Signals that we ignore stay ignored, as `nohup` wants it; SIGPIPE does not. Without this, all
    /// signals have their defaults.
    bool keep_ignored_signals = false;
    const sigset_t* blocked_signals = nullptr;  ///< null: none are blocked
    /// The signal it gets when the thread that starts it ends; 0: none.
    int death_signal = 0;
    /// The soft limit of descriptors that it gets, at most ours; 0: ours.
    std::uint64_t descriptor_limit = 0;

    /// What the child does, if it is not simply to execute `path`. Only async-signal-safe calls are
    /// allowed there. If it returns, errno says why nothing was executed.
    using Execute = void (*)(const void* context, char* const* argv, char* const* env);
    Execute execute = nullptr;
    const void* execute_context = nullptr;
};

/// Why a program was not executed.
struct ExecFailure {
    enum class Step : int { redirect, change_directory, execute };
    Step step;
    int cause;  ///< errno

    /// Errc: not_found (ENOENT), denied (EACCES), internal
    Errc code() const;
    std::string message() const;  ///< "cannot execute: Permission denied"
};

struct ForkedProcess {
    pid_t pid = 0;
    Fd exec_status;  ///< for exec_result(); non-blocking; readable once that is known
};

/// Forks, and returns before the program is executed, which may take as long as a file system likes.
/// Errc: internal (no processes, no descriptors)
Result<ForkedProcess> fork_process(const ProcessPlan& plan);

/// Whether the program was executed; nothing while that is not known yet.
std::optional<std::expected<void, ExecFailure>> exec_result(int exec_status);

/// Starts a program and returns once it is executed, without a copy of our memory: also for a process
/// with many threads or much memory. What could not be executed is reaped.
/// Errc: not_found, denied, internal; the message starts with `path`
Result<pid_t> spawn_process(const ProcessPlan& plan);

/// The exit code of a process that waitpid() has reaped; 128+n after signal n.
int exit_code_of(int wait_status);

/// What execve() takes: ends with a null pointer; valid as long as `strings`.
std::vector<char*> pointers(std::span<const std::string> strings);

}  // namespace dtrun
