#include "launcher/plan/command_output.h"

#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>

namespace dtrun::plan {
namespace {

constexpr std::size_t kOutputBytesMax = 16u << 20;

/// Holds back the signals that would end us, so that they do so behind a killed command, and shows
/// that one has come.
class SignalsHeld {
public:
    SignalsHeld() {
        sigset_t ending;
        ::sigemptyset(&ending);
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
            struct sigaction now {};
            ::sigaction(number, nullptr, &now);
            if (now.sa_handler != SIG_IGN) ::sigaddset(&ending, number);
        }
        ::pthread_sigmask(SIG_BLOCK, &ending, &before_);
        come_.reset(::signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
    }
    ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;

    int fd() const { return come_.get(); }
    const sigset_t& before() const { return before_; }

private:
    sigset_t before_{};
    Fd come_;
};

/// In a process group of its own, whose number is its own.
Result<pid_t> start(const std::vector<std::string>& words, int output, Captured captured,
                    const sigset_t& signal_mask) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (captured == Captured::both)
        ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setsigmask(&attributes, &signal_mask);
    pid_t pid = -1;
    const int error = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT) return fail(Errc::not_found, "{}: not found in PATH", words[0]);
    if (error != 0) return fail(Errc::internal, "{}: {}", words[0], std::strerror(error));
    return pid;
}

/// Waits for bytes or the end of them, or for the end of a process. Errc: timed_out, cancelled (a signal came)
Result<void> wait_for(int fd, const SignalsHeld& signals, Deadline deadline) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd waiting[] = {{fd, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
        const int ready = ::poll(waiting, std::size(waiting),
                                 static_cast<int>(std::max<long long>(left.count(), 0)));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return fail(Errc::timed_out, "no answer in time");
        if (waiting[1].revents != 0) return fail(Errc::cancelled, "interrupted");
        return {};
    }
}

Result<std::string> read_until(int fd, const SignalsHeld& signals, Deadline deadline) {
    std::string text;
    char buffer[4096];
    for (;;) {
        if (auto done = wait_for(fd, signals, deadline); !done)
            return std::unexpected(done.error());
        const ssize_t n = ::read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return text;
        text.append(buffer, static_cast<std::size_t>(n));
        if (text.size() > kOutputBytesMax)
            return fail(Errc::invalid_input, "more than {} bytes", kOutputBytesMax);
    }
}

/// Waits until a child has ended, and does not reap it.
Result<void> wait_for_end(pid_t pid, const SignalsHeld& signals, Deadline deadline) {
    using namespace std::chrono_literals;
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    for (;;) {
        siginfo_t ended{};
        if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            ended.si_pid == pid)
            return {};
        // Linux before 5.3 has no such descriptor.
        const Deadline next = process ? deadline : std::min(deadline, after(5ms));
        const auto done = wait_for(process.get(), signals, next);
        if (!done && (done.error().code != Errc::timed_out || next == deadline)) return done;
    }
}

}  // namespace

Result<CommandOutput> command_output(const std::vector<std::string>& words, Captured captured,
                                     std::chrono::milliseconds limit) {
    const Deadline deadline = after(limit);
    auto pipe = make_pipe();
    if (!pipe) return std::unexpected(pipe.error());
    const SignalsHeld signals;
    const auto pid = start(words, pipe->write.get(), captured, signals.before());
    if (!pid) return std::unexpected(pid.error());
    pipe->write.reset();
    auto text = read_until(pipe->read.get(), signals, deadline);
    if (text)
        if (auto ended = wait_for_end(*pid, signals, deadline); !ended)
            text = std::unexpected(ended.error());
    ::kill(-*pid, SIGKILL);  // before it is reaped: the number is still its own
    int status = 0;
    while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!text && text.error().code == Errc::timed_out)
        return fail(Errc::timed_out, "{}: no answer within {} s", words[0],
                    std::chrono::duration<double>(limit).count());
    if (!text) return fail(text.error(), "{}", words[0]);
    return CommandOutput{std::move(*text),
                         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

}  // namespace dtrun::plan
