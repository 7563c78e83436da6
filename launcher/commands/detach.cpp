#include "launcher/commands/detach.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/standard_streams.h"
#include "launcher/cli/command.h"
#include "launcher/output/path_pattern.h"
#include "launcher/plan/exit_code.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::commands {
namespace {

/// What ends a command that one waits for. SIGHUP, the terminal's end, ends this process alone.
sigset_t interrupts() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGQUIT}) ::sigaddset(&signals, signal);
    return signals;
}

/// The new process's part: nothing of the caller is held but what the start is told by, and what is still to be opened.
void leave_terminal(Fd words, head::StartTeller& teller) {
    ::setsid();
    std::vector<Fd> others = inherited_besides(words.get());
    Fd errors(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    const Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        ::dup2(nothing.get(), stream);
    teller.open({std::move(words), std::move(errors), std::move(others)});
    log::set_sink(
        [](void* to, std::string_view line) { static_cast<head::StartTeller*>(to)->say(line); },
        &teller);
}

/// The process that waits.
class StartWaiter {
public:
    StartWaiter(pid_t child, Fd words, Fd signals, const plan::Options& options)
        : child_(child),
          words_(std::move(words)),
          signals_(std::move(signals)),
          options_(options) {}

    /// \param before  the signals that this process had blocked
    int run(const sigset_t& before) {
        while (!started_ && !closed_) {
            std::array<pollfd, 3> wait{{{words_.get(), POLLIN, 0},
                                        {signals_.get(), POLLIN, 0},
                                        {untold_.empty() ? -1 : STDOUT_FILENO, POLLOUT, 0}}};
            if (::poll(wait.data(), wait.size(), -1) < 0) continue;
            if (wait[1].revents != 0) pass_signal();
            if (wait[2].revents != 0) tell_id();
            if (wait[0].revents != 0) read_words();
        }
        // Whoever reads our standard output may rest: from now on a signal ends this process alone.
        if (!untold_.empty()) ::sigprocmask(SIG_SETMASK, &before, nullptr);
        if (passed_ == 0 || is_read()) tell_id();  // who has interrupted us does not wait for that
        if (started_) tell_started();
        // A signal that came until now has ended the job, or does.
        pass_signal();
        return started_ && passed_ == 0 ? 0 : status_of_child();
    }

private:
    /// If there is one.
    void pass_signal() {
        signalfd_siginfo info{};
        if (::read(signals_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return;
        passed_ = static_cast<int>(info.ssi_signo);
        ::kill(child_, passed_);
    }

    void read_words() {
        std::array<char, 256> some{};
        const ssize_t size = ::read(words_.get(), some.data(), some.size());
        if (size < 0 && errno == EINTR) return;
        closed_ = size <= 0;
        if (size > 0) text_.append(some.data(), static_cast<std::size_t>(size));
        for (std::size_t end; (end = text_.find('\n')) != std::string::npos;) {
            take(text_.substr(0, end));
            text_.erase(0, end + 1);
        }
    }

    void take(const std::string& word) {
        started_ = started_ || word == head::StartTeller::kStarted;
        if (started_) return;
        job_ = word;
        untold_ = word + "\n";
    }

    static bool is_read() {
        pollfd output{STDOUT_FILENO, POLLOUT, 0};
        return ::poll(&output, 1, 0) > 0;
    }

    void tell_id() {
        if (!untold_.empty() && cli::print(std::exchange(untold_, {})) != 0)
            log::warn("the id of the job is {}", job_);
    }

    void tell_started() const {
        const std::string& name = options_.history.name;
        const std::string job = name.empty() ? job_.substr(0, output::kJobDigits) : name;
        log::warn(
            "the job runs on without this terminal; its output: dtrun attach {}; its end: dtrun "
            "end "
            "{}",
            job, job);
    }

    /// It has said why.
    int status_of_child() const {
        int status = 0;
        while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
        }
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        if (WTERMSIG(status) == passed_) return plan::kExitSignalBase + passed_;
        log::error("the detached dtrun has ended by signal {}", WTERMSIG(status));
        return plan::kExitInternal;
    }

    pid_t child_;
    Fd words_, signals_;
    const plan::Options& options_;
    std::string text_, job_;
    std::string untold_;  ///< what standard output is to have
    int passed_ = 0;      ///< the last signal that the child was sent
    bool started_ = false, closed_ = false;
};

}  // namespace

void warn_within_rank(std::string_view what, plan::EnvironmentView environment) {
    const auto rank = plan::find_variable(environment, "DTRUN_RANK");
    const auto job = plan::find_variable(environment, "DTRUN_JOB");
    if (rank && job)
        log::warn("this is within rank {} of job {}: {} ends with that job", *rank,
                  job->substr(0, output::kJobDigits), what);
}

std::optional<int> detach(const plan::Options& options, head::StartTeller& teller) {
    auto pipe = make_pipe();
    if (!pipe) {
        log::error("--detach: {}", pipe.error().message);
        return plan::kExitInternal;
    }
    // From before there is a child, so that no signal is lost.
    const sigset_t passed = interrupts();
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &passed, &before);
    const pid_t child = ::fork();
    if (child < 0) {
        log::error("--detach: fork: {}", std::strerror(errno));
        return plan::kExitInternal;
    }
    if (child == 0) {
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        pipe->read.reset();
        leave_terminal(std::move(pipe->write), teller);
        return std::nullopt;
    }
    pipe->write.reset();
    Fd signals(::signalfd(-1, &passed, SFD_CLOEXEC | SFD_NONBLOCK));
    return StartWaiter(child, std::move(pipe->read), std::move(signals), options).run(before);
}

}  // namespace dtrun::commands
