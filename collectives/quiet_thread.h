#pragma once

#include <signal.h>
#include <thread>
#include <utility>

namespace dtrun::collectives {

/// A thread that none of the program's signals ends up in.
template <class Body>
std::thread quiet_thread(Body body) {
    struct NoSignals {
        NoSignals() {
            sigset_t all;
            ::sigfillset(&all);
            ::pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
        sigset_t before;
    };
    const NoSignals inherited;
    return std::thread(std::move(body));
}

}  // namespace dtrun::collectives
