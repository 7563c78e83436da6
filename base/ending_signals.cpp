#include "base/ending_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>
#include <array>
#include <string_view>

namespace dtrun {
namespace {

constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

bool is_ignored(int signal) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    return now.sa_handler == SIG_IGN;
}

/// Formats nothing: only async-signal-safe calls are allowed here.
void exit_at(int signal) {
    const std::string_view line = signal == SIGINT    ? "dtrun: ended by signal 2 (SIGINT)\n"
                                  : signal == SIGTERM ? "dtrun: ended by signal 15 (SIGTERM)\n"
                                  : signal == SIGHUP  ? "dtrun: ended by signal 1 (SIGHUP)\n"
                                                      : "dtrun: ended by signal 3 (SIGQUIT)\n";
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(128 + signal);
}

}  // namespace

void exit_at_ending_signals() {
    for (const int signal : kEnding)
        if (!is_ignored(signal)) ::signal(signal, exit_at);
}

EndingSignals::EndingSignals(Children children) {
    sigset_t held;
    ::sigemptyset(&held);
    if (children == Children::watched) ::sigaddset(&held, SIGCHLD);
    for (const int number : kEnding)
        if (!is_ignored(number)) ::sigaddset(&held, number);
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
