#pragma once

#include "base/fd.h"

#include <csignal>

namespace dtrun {

/// Holds back the signals that would end this process (SIGINT, SIGTERM, SIGHUP, SIGQUIT, unless they are
/// ignored) as long as it lives, so that what this process has started ends before it does. They
/// come when it is destroyed.
class EndingSignals {
public:
    enum class Children : bool { ignored, watched };
    /// \param children  watched: SIGCHLD is held back and shows in fd(), too
    explicit EndingSignals(Children children);
    ~EndingSignals();
    EndingSignals(const EndingSignals&) = delete;
    EndingSignals& operator=(const EndingSignals&) = delete;

    int fd() const { return come_.get(); }              ///< readable when one has come; a signalfd
    const sigset_t& before() const { return before_; }  ///< what was blocked before
    int received() const { return received_; }          ///< the first that take() has read; 0: none
    /// Reads one. \param forward  gets it if it was not the terminal's, which tells everybody itself
    /// \return false: no signal is waiting
    bool take(pid_t forward);

private:
    sigset_t before_{};
    Fd come_;
    int received_ = 0;
};

}  // namespace dtrun
