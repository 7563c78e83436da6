#include "base/process/ending_signals.h"

#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>

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

/// What a handler of signals knows can only be where it finds it.
struct Unheard {
    std::atomic<std::int64_t> since_ns = 0;  ///< 0: all signals have been heard
    std::array<void (*)(int), kEnding.size()> handlers{};
};
Unheard unheard;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

std::int64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

/// Only async-signal-safe calls, and none that a file system could keep from returning: so no words.
void hand_over(int signal) {
    constexpr std::int64_t kPatienceNs = 2'000'000'000;
    std::int64_t none = 0;
    const std::int64_t now = monotonic_ns();
    const bool is_first = unheard.since_ns.compare_exchange_strong(none, now);
    if (!is_first && now - none >= kPatienceNs) ::_exit(128 + signal);
    for (std::size_t i = 0; i < kEnding.size(); ++i)
        if (kEnding[i] == signal && unheard.handlers[i] != nullptr) unheard.handlers[i](signal);
}

}  // namespace

void hear_signals() {
    sigset_t none;
    ::sigemptyset(&none);
    if (is_ignored(SIGCHLD)) ::signal(SIGCHLD, SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

void exit_at_unheard_signals() {
    for (std::size_t i = 0; i < kEnding.size(); ++i) {
        struct sigaction action {};
        ::sigaction(kEnding[i], nullptr, &action);
        const bool is_handled = action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL &&
                                action.sa_handler != exit_at && action.sa_handler != hand_over;
        if (!is_handled) continue;
        unheard.handlers[i] = action.sa_handler;
        action.sa_handler = hand_over;
        ::sigaction(kEnding[i], &action, nullptr);
    }
}

void ending_signal_heard() {
    unheard.since_ns = 0;
}

int run_apart(const std::function<int()>& run) {
    int status = 0;
    std::thread([&] { status = run(); }).join();
    return status;
}

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
    if (forward < 0 || (forward > 0 && info.ssi_code != SI_KERNEL)) ::kill(forward, number);
    return true;
}

}  // namespace dtrun
