#pragma once

#include <signal.h>
#include <thread>
#include <utility>

namespace dtrun::collectives {

/// A thread that is made while one of these lives takes no signals.
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

/// A thread that none of the program's signals ends up in.
template <class Body>
std::thread quiet_thread(Body body) {
    const NoSignals inherited;
    return std::thread(std::move(body));
}

}  // namespace dtrun::collectives
