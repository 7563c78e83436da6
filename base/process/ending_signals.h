#pragma once

#include "base/fd.h"

#include <csignal>
#include <functional>

namespace dtrun {

/// Undoes what a caller may have left that keeps a program from hearing of its children, or of its user: blocked signals,
/// as Slurm's and MPI's launchers leave SIGCHLD for what they start, and an ignored SIGCHLD, with which nobody is told
/// how a child has ended. Other ignored signals stay so, as `nohup` wants it.
void hear_signals();

/// From now on a signal that would end this process (SIGINT, SIGTERM, SIGHUP, SIGQUIT, unless ignored) ends
/// it with exit code 128+n and a line that says so, as dtrun ends once there is more to end.
void exit_at_ending_signals();

/// For a process that hears these signals by handlers which an event loop has set. From now on one that comes 2 s
/// or more after another that has not been heard yet ends the process with 128+n at once: the loop is in a call
/// that does not return, as of a file system that does not answer. Signals have to reach a thread that makes no
/// such calls (run_apart()).
void exit_at_unheard_signals();
/// The event loop has got a signal.
void ending_signal_heard();

/// Runs it on a thread of its own, and waits for its end. The calling thread stays free for handlers of signals,
/// which the kernel does not call in a thread that waits for a disk.
int run_apart(const std::function<int()>& run);

/// While alive, blocks the signals that would end this process (SIGINT, SIGTERM, SIGHUP, SIGQUIT,
/// unless ignored), so that its children can be ended before it. Pending signals are delivered when
/// this object is destroyed.
class EndingSignals {
public:
    enum class Children : bool { ignored, watched };
    /// \param children  watched: SIGCHLD is blocked too, and makes fd() readable
    explicit EndingSignals(Children children);
    ~EndingSignals();
    EndingSignals(const EndingSignals&) = delete;
    EndingSignals& operator=(const EndingSignals&) = delete;

    int fd() const { return come_.get(); }  ///< signalfd: readable while a signal is pending
    const sigset_t& before() const { return before_; }  ///< signal mask before construction
    int received() const { return received_; }          ///< first signal take() has read; 0: none
    /// Reads one pending signal.
    /// \param forward  process that gets it too, unless the terminal sent it, to the whole group; negative: a
    ///                 group of its own, which the terminal sends nothing
    /// \return false: no signal is pending
    bool take(pid_t forward);

private:
    sigset_t before_{};
    Fd come_;
    int received_ = 0;
};

}  // namespace dtrun
