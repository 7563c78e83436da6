#include "base/process/command_output.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/fd.h"
#include "base/process/ending_signals.h"
#include "base/process/subprocess.h"
#include "base/strings.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>

namespace dtrun {
namespace {

constexpr std::size_t kOutputBytesMax = 16u << 20;

/// Starts the program in a process group of its own, whose id is the returned pid.
Result<pid_t> start(const std::vector<std::string>& words, int output, Captured captured,
                    const sigset_t& signal_mask) {
    const std::vector<std::string> environment = own_environment();
    ProcessPlan plan{.path = words[0], .argv = words, .env = environment};
    plan.descriptors = {{ProcessPlan::kNull, STDIN_FILENO}, {output, STDOUT_FILENO}};
    if (captured == Captured::both) plan.descriptors.push_back({output, STDERR_FILENO});
    if (captured == Captured::out_alone)
        plan.descriptors.push_back({ProcessPlan::kNull, STDERR_FILENO});
    plan.group = ProcessPlan::Group::own_group;
    plan.death_signal = SIGKILL;  // our thread waits for it
    plan.keep_ignored_signals = true;
    plan.blocked_signals = &signal_mask;
    auto pid = spawn_process(plan);
    if (!pid && pid.error().code == Errc::not_found)
        return fail(Errc::not_found, "{}: not found in PATH", words[0]);
    return pid;
}

/// Waits until `fd` is readable: bytes, end of file, or for a pidfd the process's end.
/// Errc: timed_out, cancelled (a signal came)
Result<void> wait_for(int fd, const EndingSignals& signals, Deadline deadline) {
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

Result<std::string> read_until(int fd, const EndingSignals& signals, Deadline deadline) {
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
Result<void> wait_for_end(pid_t pid, const EndingSignals& signals, Deadline deadline) {
    using namespace std::chrono_literals;
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    for (;;) {
        siginfo_t ended{};
        if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            ended.si_pid == pid)
            return {};
        // Linux before 5.3 has no pidfd: waitid() is asked every 5 ms instead.
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
    const EndingSignals signals(EndingSignals::Children::ignored);
    const auto pid = start(words, pipe->write.get(), captured, signals.before());
    if (!pid) return std::unexpected(pid.error());
    pipe->write.reset();
    auto text = read_until(pipe->read.get(), signals, deadline);
    if (text)
        if (auto ended = wait_for_end(*pid, signals, deadline); !ended)
            text = std::unexpected(ended.error());
    ::kill(-*pid, SIGKILL);  // before it is reaped, so its id cannot belong to another group
    int status = 0;
    while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!text && text.error().code == Errc::timed_out)
        return fail(Errc::timed_out, "{}: no answer within {} s", words[0],
                    std::chrono::duration<double>(limit).count());
    if (!text) return fail(text.error(), "{}", words[0]);
    return CommandOutput{std::move(*text), exit_code_of(status)};
}

bool is_program(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
}

bool is_on_path(std::string_view name, std::string_view path) {
    return std::ranges::any_of(split(path, ':'), [name](std::string_view folder) {
        return !folder.empty() && is_program(fmt::format("{}/{}", folder, name));
    });
}

}  // namespace dtrun
