#pragma once

#include <signal.h>
#include <thread>
#include <utility>

namespace dtrun::collectives {

/// A thread that none of the program's signals ends up in.
template <class Body>
std::thread quiet_thread(Body body) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(std::move(body));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

}  // namespace dtrun::collectives
