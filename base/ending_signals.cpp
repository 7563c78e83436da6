#include "base/ending_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace dtrun {

EndingSignals::EndingSignals(Children children) {
    sigset_t held;
    ::sigemptyset(&held);
    if (children == Children::watched) ::sigaddset(&held, SIGCHLD);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        struct sigaction now {};
        ::sigaction(number, nullptr, &now);
        if (now.sa_handler != SIG_IGN) ::sigaddset(&held, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
    come_.reset(::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
}

EndingSignals::~EndingSignals() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool EndingSignals::take(pid_t forward) {
    signalfd_siginfo info{};
    if (::read(come_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return false;
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) return true;
    if (received_ == 0) received_ = number;
    if (forward > 0 && info.ssi_code != SI_KERNEL) ::kill(forward, number);
    return true;
}

}  // namespace dtrun
