#include "launcher/transport/process_channel.h"

#include "base/fd.h"
#include "base/process/subprocess.h"
#include "base/strings.h"

#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

namespace dtrun::transport {
namespace {

constexpr std::chrono::milliseconds kTermLimit{500};  // from SIGTERM to SIGKILL
constexpr std::chrono::seconds kKillLimit{1};         // for the kernel to end it

/// What became of a child, which stays a zombie: nobody else gets the number of its process group.
siginfo_t state_of(pid_t pid) {
    siginfo_t state{};
    ::waitid(P_PID, static_cast<id_t>(pid), &state, WEXITED | WNOHANG | WNOWAIT);
    return state;
}

/// Of a process with all of its threads and descendants. What the kernel says is of one thread, also under the process's
/// number.
std::optional<std::chrono::nanoseconds> busy_time_of(pid_t pid) {
    std::optional<std::chrono::nanoseconds> sum;
    std::error_code error;  // it may end meanwhile
    for (std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid), error), end;
         !error && thread != end; thread.increment(error)) {
        const std::string folder = thread->path().string();
        const std::string stated = read_file(folder + "/schedstat").value_or("");
        const auto times = split(stated, ' ');
        if (times.size() < 2) continue;
        if (!sum) sum.emplace();
        for (const std::string_view time : {times[0], times[1]})
            *sum += std::chrono::nanoseconds(to_int(time, 0, INT64_MAX).value_or(0));
        const std::string children = read_file(folder + "/children").value_or("");
        for (const std::string_view child : split(children, ' '))
            if (const auto number = to_int(child, 1, INT32_MAX))
                *sum +=
                    busy_time_of(static_cast<pid_t>(*number)).value_or(std::chrono::nanoseconds(0));
    }
    return sum;
}

class ProcessChannel final : public Process {
public:
    ProcessChannel(asio::any_io_executor executor, pid_t pid, bool ends_with_us, Fd in, Fd out,
                   Fd err)
        : ends_with_us_(ends_with_us),
          pid_(pid),
          in_(executor, in.release()),
          out_(executor, out.release()),
          err_(executor, err.release()),
          child_ended_(executor) {
        collect_errors();
    }

    ~ProcessChannel() override {
        close();
        ::waitpid(pid_, nullptr, WNOHANG);
        *alive_ = false;
    }

    asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline deadline) override {
        DeadlineGuard guard(out_, deadline);
        const auto buffer = asio::buffer(into.data(), into.size());
        const auto [error, bytes] = co_await out_.async_read_some(buffer, use_tuple);
        if (!error) co_return bytes;
        if (error == asio::error::eof) co_return std::size_t{0};
        if (guard.expired()) co_return fail(Errc::timed_out, "no answer");
        co_return fail(Errc::cancelled, "{}", error.message());
    }

    asio::awaitable<Result<void>> write(std::string_view bytes, Deadline deadline) override {
        DeadlineGuard guard(in_, deadline);
        const auto buffer = asio::buffer(bytes);
        const auto [error, written] = co_await asio::async_write(in_, buffer, use_tuple);
        if (guard.expired()) co_return fail(Errc::timed_out, "no answer");
        if (error == asio::error::operation_aborted) co_return fail(Errc::cancelled, "closed");
        if (error) co_return fail(Errc::closed, "{}", error.message());
        co_return Result<void>{};
    }

    std::string take_errors() override { return std::exchange(errors_, {}); }

    asio::awaitable<std::string> ending(Deadline deadline) override {
        co_await wait_for_end(child_ended_, deadline);
        const siginfo_t state = state_of(pid_);
        if (state.si_pid == 0) co_return std::string();
        co_return fmt::format("{} {}", state.si_code == CLD_EXITED ? "exit status" : "signal",
                              state.si_status);
    }

    asio::awaitable<void> end(std::chrono::milliseconds patience) override {
        close();
        asio::signal_set child_ended(out_.get_executor());
        co_await wait_for_end(child_ended, after(patience));
        if (state_of(pid_).si_pid == 0) {
            ::kill(-pid_, SIGTERM);
            co_await wait_for_end(child_ended, after(kTermLimit));
        }
        kill();
        co_await wait_for_end(child_ended, after(kKillLimit));
    }

    /// Also what a program has left in its session that has ended.
    void kill() noexcept override {
        close();
        ::kill(-pid_, SIGKILL);
    }

    // An agent of this machine ends its ranks, and then itself, whatever becomes of us.
    bool is_carried() const override { return ends_with_us_; }
    bool is_here() const override { return !ends_with_us_; }
    bool has_ended() const override { return state_of(pid_).si_pid != 0; }
    std::optional<std::chrono::nanoseconds> busy_time() const override {
        return busy_time_of(pid_);
    }

    std::string take_error_lines() override {
        const std::size_t end = errors_.rfind('\n') + 1;  // 0 without one
        std::string lines = errors_.substr(0, end);
        errors_.erase(0, end);
        return lines;
    }

    void close_input() override {
        boost::system::error_code ignored;
        in_.close(ignored);
    }

    void signal(int signal) override { ::kill(pid_, signal); }

    void close() noexcept override {
        boost::system::error_code ignored;
        in_.close(ignored);
        out_.close(ignored);
        err_.close(ignored);
        child_ended_.cancel(ignored);
    }

private:
    void collect_errors() {
        const auto done = [this, alive = alive_](boost::system::error_code error,
                                                 std::size_t bytes) {
            if (!*alive || error) return;
            errors_.append(error_buffer_, bytes);
            if (errors_.size() > kErrorBytesMax) errors_.erase(0, errors_.size() - kErrorBytesMax);
            collect_errors();
        };
        err_.async_read_some(asio::buffer(error_buffer_), done);
    }

    /// Returns at the deadline, too, and if `child_ended` is cancelled.
    asio::awaitable<void> wait_for_end(asio::signal_set& child_ended, Deadline deadline) {
        boost::system::error_code ignored;
        child_ended.add(SIGCHLD, ignored);  // before the first look, so that none is missed
        DeadlineGuard guard(child_ended, deadline);
        while (state_of(pid_).si_pid == 0) {
            const auto [error, signal] = co_await child_ended.async_wait(use_tuple);
            if (error) break;
        }
        child_ended.clear(ignored);
    }

    const bool ends_with_us_;
    const pid_t pid_;  ///< ours until it is destroyed, also when the program has ended
    asio::posix::stream_descriptor in_, out_, err_;
    asio::signal_set child_ended_;  ///< of any child of ours; empty while nobody waits
    std::string errors_;
    char error_buffer_[4096];
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

Result<std::unique_ptr<Process>> start_process(asio::any_io_executor executor,
                                               const std::vector<std::string>& argv,
                                               const std::vector<std::string>& env,
                                               int death_signal) {
    auto in = make_pipe();
    auto out = make_pipe();
    auto err = make_pipe();
    for (const auto* made : {&in, &out, &err})
        if (!*made) return std::unexpected(made->error());

    ProcessPlan plan{.path = argv.front(), .argv = argv, .env = env};
    plan.descriptors = {{in->read.get(), STDIN_FILENO},
                        {out->write.get(), STDOUT_FILENO},
                        {err->write.get(), STDERR_FILENO}};
    plan.group = ProcessPlan::Group::own_session;
    plan.death_signal = death_signal;
    const auto pid = spawn_process(plan);
    if (!pid) return std::unexpected(pid.error());
    return std::make_unique<ProcessChannel>(executor, *pid, death_signal != 0, std::move(in->write),
                                            std::move(out->read), std::move(err->read));
}

}  // namespace dtrun::transport
