#pragma once

#include <signal.h>
#include <thread>
#include <utility>

namespace dtrun::collectives {

/// Blocks all signals in this thread while it lives; threads made meanwhile inherit the mask.
class NoSignals {
public:
    NoSignals() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;
    NoSignals& operator=(const NoSignals&) = delete;

private:
    sigset_t before_;
};

/// Starts a thread in which all signals are blocked.
template <class Body>
std::thread quiet_thread(Body body) {
    const NoSignals inherited;
    return std::thread(std::move(body));
}

}  // namespace dtrun::collectives
