#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <sys/types.h>
#include <csignal>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun {

/// A program to start and what it inherits. Referenced objects must outlive the call, and no longer.
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

    /// Function that the child calls instead of executing `path`, in a copy of our memory, which costs
    /// a fork(). It may make only async-signal-safe calls. If it returns, errno says why nothing was
    /// executed.
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

struct SharedStart;

/// Whether a program that was started has been executed. While that is not known the child works in our
/// memory, with what this keeps.
class ExecStatus {
public:
    ExecStatus();
    /// \param pipe    non-blocking; the child has its other end, until it has executed the program or ended
    /// \param shared  what the child works with; null: it has a copy
    ExecStatus(Fd pipe, std::unique_ptr<SharedStart> shared);
    ExecStatus(ExecStatus&&) noexcept;
    ExecStatus& operator=(ExecStatus&&) noexcept;
    /// Of a child that is still at it: what it works with is never freed.
    ~ExecStatus();

    int get() const { return pipe_.get(); }  ///< readable when result() may know more
    /// Nothing while it is not known yet, which may take as long as a file system likes.
    std::optional<std::expected<void, ExecFailure>> result();

    /// Until then nothing may be closed that the child is to get, if it was started with our descriptors.
    void wait_for_own_descriptors(pid_t child);

private:
    Fd pipe_;
    std::unique_ptr<SharedStart> shared_;
    std::optional<ExecFailure> failure_;
    bool has_own_descriptors_ = false;
};

struct SpawnedProcess {
    pid_t pid = 0;
    ExecStatus executed;
};

/// Starts a program, and returns before it is executed. The child shares our memory until then, so that
/// nothing of ours is copied, but runs beside us.
/// Errc: internal (no processes, no descriptors)
Result<SpawnedProcess> spawn_without_waiting(const ProcessPlan& plan);

/// Starts a program, and returns once exec has succeeded or failed. A child that could not exec is
/// reaped.
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
