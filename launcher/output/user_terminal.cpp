#include "launcher/output/user_terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <utility>

namespace dtrun::output {

namespace {

bool set(const termios& state) {
    int done = -1;
    do done = ::tcsetattr(STDIN_FILENO, TCSANOW, &state);
    while (done != 0 && errno == EINTR);
    return done == 0;
}

}  // namespace

bool UserTerminal::is_there() {
    return ::isatty(STDIN_FILENO) != 0;
}

TerminalSize UserTerminal::size() {
    winsize size{};
    if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0) return {};
    return {size.ws_row, size.ws_col};
}

void UserTerminal::make_raw() {
    if (raw_ || !is_there() || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return;
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    ::cfmakeraw(&raw);
    raw_ = set(raw);
}

void UserTerminal::restore() noexcept {
    if (!raw_.exchange(false)) return;
    // From the background this would stop us.
    sigset_t output, mask;
    ::sigemptyset(&output);
    ::sigaddset(&output, SIGTTOU);
    ::pthread_sigmask(SIG_BLOCK, &output, &mask);
    set(before_);
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

std::string EscapeWatch::pass(std::string_view typed) {
    std::string passed;
    for (const char key : typed) {
        if (escaped_) break;
        if (at_begin_ && !tilde_ && key == '~') {
            tilde_ = true;
            continue;
        }
        const bool had_tilde = std::exchange(tilde_, false);
        if (had_tilde && key == '.') {
            escaped_ = true;
            break;
        }
        if (had_tilde && key != '~') passed += '~';  // "~~" is one tilde
        passed += key;
        at_begin_ = key == '\r' || key == '\n';
    }
    return passed;
}

}  // namespace dtrun::output
