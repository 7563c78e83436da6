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

/// A program to start and what it inherits. Referenced objects must outlive the call.
struct ProcessPlan {
    /// The program's file. Without a slash it is searched in our own PATH; the shell runs a script
    /// without "#!", as with execvp().
    const std::string& path;
    std::span<const std::string> argv;  ///< argv[0] first
    std::span<const std::string> env;   ///< "NAME=value", all of it

    static constexpr int kNull = -1;  ///< instead of a descriptor: /dev/null
    struct Given {
        int ours;
        int number;  ///< descriptor number in the program; may equal ours
    };
    /// Descriptors that the program gets: with close_others no others, else besides the inherited
    /// ones.
    std::vector<Given> descriptors{};
    /// Whether descriptors of ours that are not close-on-exec are closed in the program, too.
    bool close_others = false;
    const char* directory = nullptr;  ///< null: ours

    enum class Group : std::uint8_t { ours, own_group, own_session };
    Group group = Group::ours;
    /// Descriptor 0 is a terminal that becomes the session's own; with own_session.
    bool controlling_terminal = false;
    /// true: signals that we ignore stay ignored, as `nohup` wants it, except SIGPIPE. false: all
    /// signals have their default actions.
    bool keep_ignored_signals = false;
    const sigset_t* blocked_signals = nullptr;  ///< null: none are blocked
    /// The signal that the program gets when the thread that started it ends; 0: none.
    int death_signal = 0;
    /// Whether debuggers that this process starts may look into the program where Yama restricts that to ancestors. Its
    /// children are not meant.
    bool may_be_traced = false;
    /// The program's soft limit of descriptors, at most ours; 0: ours.
    std::uint64_t descriptor_limit = 0;
    /// Processors that the program may use, by the numbers of Linux; empty: ours.
    std::span<const unsigned> cpus{};

    /// Function that the child calls instead of executing `path`. It may make only
    /// async-signal-safe calls. If it returns, errno says why nothing was executed.
    using Execute = void (*)(const void* context, char* const* argv, char* const* env);
    Execute execute = nullptr;
    const void* execute_context = nullptr;
};

/// Why a program was not executed.
struct ExecFailure {
    enum class Stage : int { redirect, change_directory, execute, bind };
    Stage stage;
    int cause;  ///< errno

    /// Errc: not_found (ENOENT), denied (EACCES), internal
    Errc code() const;
    std::string message() const;  ///< "cannot execute: Permission denied"
};

struct ForkedProcess {
    pid_t pid = 0;
    Fd exec_status;  ///< for exec_result(); non-blocking; readable once the result is known
};

/// Forks, and returns before the program is executed, which may take as long as a file system likes.
/// Errc: internal (no processes, no descriptors)
Result<ForkedProcess> fork_process(const ProcessPlan& plan);

/// Whether the program was executed; nothing while that is not known yet.
std::optional<std::expected<void, ExecFailure>> exec_result(int exec_status);

/// Starts a program with vfork() and returns once exec has succeeded or failed; it copies no page
/// tables, so it suits large processes. A child that could not exec is reaped.
/// Errc: not_found, denied, internal; the message starts with `path`
Result<pid_t> spawn_process(const ProcessPlan& plan);

/// The exit code of a process that waitpid() has reaped; 128+n after signal n.
int exit_code_of(int wait_status);

/// "was ended by signal 9 (SIGKILL)", or "ended with exit code 3"
std::string describe_exit(int wait_status);

/// What execve() takes: ends with a null pointer; valid as long as `strings`.
std::vector<char*> pointers(std::span<const std::string> strings);

/// Processors as sched_setaffinity() takes them; as many bytes as are needed, and a multiple of a word.
std::vector<unsigned long> cpu_mask(std::span<const unsigned> cpus);

}  // namespace dtrun
