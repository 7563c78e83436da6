#include "lab/child.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/process/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>

namespace dtrun::lab {
namespace {

using namespace std::chrono_literals;

using Take = std::function<void(std::string_view)>;

/// Longest wait for a program that was told to end; a dtrun gives its ranks five seconds.
constexpr std::chrono::milliseconds kEndMax{20'000};

/// Follows one child until it has ended.
class Child {
public:
    Child(const ChildOptions& options, EndingSignals& signals, const Take& output,
          const Take& errors)
        : options_(options), signals_(signals), take_output_(output), take_errors_(errors) {}
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    Result<void> start() {
        auto output = make_pipe();
        if (!output) return std::unexpected(output.error());
        auto errors = make_pipe();
        if (!errors) return std::unexpected(errors.error());
        ProcessPlan plan{
            .path = options_.path, .argv = options_.words, .env = options_.environment};
        plan.descriptors = {{ProcessPlan::kNull, STDIN_FILENO},
                            {output->write.get(), STDOUT_FILENO},
                            {errors->write.get(), STDERR_FILENO}};
        plan.keep_ignored_signals = true;
        plan.blocked_signals = &signals_.before();
        plan.death_signal = options_.death_signal;
        const auto started = spawn_process(plan);
        if (!started) return std::unexpected(started.error());
        pid_ = *started;
        output_ = std::move(output->read);
        errors_ = std::move(errors->read);
        for (const Fd* const fd : {&output_, &errors_}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
        return {};
    }

    ChildEnd follow() {
        heard_ = Clock::now();
        if (signals_.received() != 0) end(signals_.received());
        while (!ended_) {
            pollfd waiting[] = {
                {output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(deadline() - Clock::now());
            ::poll(waiting, std::size(waiting),
                   static_cast<int>(std::clamp<long long>(left.count(), 0, 3'600'000)));
            read_all();
            while (signals_.take(options_.forward_signals ? pid_ : 0)) {
            }
            if (signals_.received() != 0 && !kill_at_) kill_at_ = after(kEndMax);
            look_for_end();
            if (!ended_ && Clock::now() >= deadline()) too_late();
        }
        read_all();
        return end_;
    }

private:
    Deadline deadline() const {
        if (kill_at_) return *kill_at_;
        return options_.silence_max ? heard_ + *options_.silence_max : after(1h);
    }

    void too_late() {
        if (kill_at_) {
            ::kill(pid_, SIGKILL);  // its agents end their ranks when it is gone
            kill_at_ = after(kEndMax);
            return;
        }
        if (!options_.silence_max) return;
        end_.was_silent = true;
        end(SIGTERM);
    }

    void end(int signal) {
        ::kill(pid_, signal);
        if (!kill_at_) kill_at_ = after(kEndMax);
    }

    void look_for_end() {
        int status = 0;
        const pid_t found = ::waitpid(pid_, &status, WNOHANG);
        if (found == 0) return;
        ended_ = true;
        end_.status = exit_code_of(status);
    }

    void read_all() {
        read_from(output_, take_output_);
        read_from(errors_, take_errors_);
    }

    void read_from(Fd& fd, const Take& take) {
        char buffer[16'384];
        while (fd) {
            const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && errno == EAGAIN) return;
            if (n <= 0) {
                fd.reset();
                return;
            }
            heard_ = Clock::now();
            take(std::string_view(buffer, static_cast<std::size_t>(n)));
        }
    }

    const ChildOptions& options_;
    EndingSignals& signals_;
    const Take& take_output_;
    const Take& take_errors_;
    pid_t pid_ = -1;
    Fd output_;
    Fd errors_;
    Deadline heard_{};
    std::optional<Deadline> kill_at_;
    bool ended_ = false;
    ChildEnd end_;
};

}  // namespace

Result<ChildEnd> run_child(const ChildOptions& options, EndingSignals& signals, const Take& output,
                           const Take& errors) {
    Child child(options, signals, output, errors);
    if (auto done = child.start(); !done) return std::unexpected(done.error());
    return child.follow();
}

}  // namespace dtrun::lab
