#pragma once

#include "base/fd.h"

#include <csignal>

namespace dtrun {

/// From now on a signal that would end this process (SIGINT, SIGTERM, SIGHUP, SIGQUIT, unless ignored) ends
/// it with exit code 128+n and a line that says so, as dtrun ends once there is more to end.
void exit_at_ending_signals();

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
    /// \param forward  process that gets it too, unless the terminal sent it, to the whole group
    /// \return false: no signal is pending
    bool take(pid_t forward);

private:
    sigset_t before_{};
    Fd come_;
    int received_ = 0;
};

}  // namespace dtrun
