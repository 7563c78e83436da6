#include "worker/supervisor.h"

#include "base/fd.h"
#include "base/strings.h"
#include "worker/process_tree.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <limits>

namespace dtrun {
namespace {

constexpr std::chrono::seconds kKillLimit{5};
/// How often a stray that was asked to end is looked for; it need not be our child, so that no
/// signal tells of its end.
constexpr std::chrono::milliseconds kStrayInterval{20};

/// Processes that the kernel's OOM killer has ended on this machine since boot; 0 if it does not say.
std::uint64_t oom_kills() {
    const auto text = read_file("/proc/vmstat");
    if (!text) return 0;
    const std::size_t at = text->find("\noom_kill ");
    if (at == std::string::npos) return 0;
    const std::string_view rest = std::string_view(*text).substr(at + 10);
    return static_cast<std::uint64_t>(
        to_int(rest.substr(0, rest.find('\n')), 0, std::numeric_limits<long long>::max())
            .value_or(0));
}

}  // namespace

Supervisor::Supervisor(asio::any_io_executor executor, std::function<void(const Exited&)> exited)
    : exited_(std::move(exited)),
      child_signals_(executor, SIGCHLD),
      grace_timer_(executor),
      stray_timer_(executor),
      oom_kills_seen_(oom_kills()) {
    watch_children();
}

void Supervisor::watch_children() {
    child_signals_.async_wait([this](boost::system::error_code error, int) {
        if (error) return;
        watch_children();
        reap();
    });
}

std::vector<Supervisor::Start> Supervisor::start(std::vector<Request> requests) {
    std::vector<RankProcess> processes;
    std::vector<Start> starts;
    for (const Request& request : requests) {
        Start& start = starts.emplace_back();
        start.rank = request.rank;
        auto spawned = spawn_rank(request.command);
        if (!spawned)
            start.executed = std::unexpected(spawned.error());
        else
            start.pid = spawned->pid;
        processes.push_back(spawned ? std::move(*spawned) : RankProcess{});
    }
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < starts.size(); ++i) {
        Start& start = starts[i];
        if (start.pid == 0) continue;
        start.executed = exec_result(processes[i]);
        if (!start.executed) continue;  // its exit is reaped like a stray's
        start.in = std::move(processes[i].in);
        start.out = std::move(processes[i].out);
        start.err = std::move(processes[i].err);
        ranks_[start.pid] = Rank{requests[i].generation, start.rank, now, 0, 0};
    }
    reap();
    return starts;
}

void Supervisor::signal(int signal) {
    for (const auto& [pid, rank] : ranks_) ::kill(-pid, signal);
}

void Supervisor::kill(std::uint64_t generation, std::uint32_t rank) {
    for (const auto& [pid, running] : ranks_)
        if (running.generation == generation && running.rank == rank) ::kill(-pid, SIGKILL);
}

void Supervisor::signalled(int signal) {
    for (auto& [pid, rank] : ranks_) rank.sent_signal = rank.had_signal = signal;
}

void Supervisor::end_ranks(int signal) {
    for (auto& [pid, rank] : ranks_) {
        rank.sent_signal = signal;
        if (rank.had_signal != signal) ::kill(-pid, signal);
        ::kill(-pid, SIGCONT);  // a stopped process would not see it
    }
}

void Supervisor::reap() {
    for (;;) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR) continue;
        if (pid <= 0) break;
        if (pid == spared_) spared_ = 0;
        const auto found = ranks_.find(pid);
        if (found == ranks_.end()) continue;
        const Rank rank = found->second;
        ranks_.erase(found);
        report(pid, rank, status);
    }
    if (stopping_ && ranks_.empty()) strays_or_done();
}

bool Supervisor::out_of_memory() {
    const std::uint64_t before = std::exchange(oom_kills_seen_, oom_kills());
    return oom_kills_seen_ > before;
}

void Supervisor::report(pid_t pid, const Rank& rank, int status) {
    Exited exited;
    exited.generation = rank.generation;
    exited.rank = rank.rank;
    exited.pid = pid;
    exited.sent_signal = rank.sent_signal;
    if (WIFSIGNALED(status)) {
        exited.signal = WTERMSIG(status);
        exited.core_dumped = WCOREDUMP(status);
    } else {
        exited.code = WEXITSTATUS(status);
    }
    exited.out_of_memory = exited.signal == SIGKILL && rank.sent_signal == 0 && out_of_memory();
    exited.ran_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::steady_clock::now() - rank.started)
                        .count();
    exited_(exited);
}

void Supervisor::stop_all(int signal, std::chrono::milliseconds grace,
                          std::function<void(int)> gone) {
    if (!stopping_) {
        stopping_ = Stopping{signal, {}};
        grace_timer_.expires_at(asio::steady_timer::time_point::max());
    }
    if (gone) stopping_->gone = std::move(gone);
    const auto until = std::chrono::steady_clock::now() + grace;
    if (until < grace_timer_.expiry()) {
        grace_timer_.expires_at(until);
        grace_timer_.async_wait([this](boost::system::error_code error) {
            if (error || !stopping_) return;
            stopping_->killing = true;
            end_ranks(SIGKILL);
            reap();
        });
    }
    if (grace > std::chrono::milliseconds(0)) end_ranks(signal);
    reap();
}

/// The ranks are gone: what they left behind is asked to end as well, and waited for.
void Supervisor::strays_or_done() {
    if (stopping_->killing)
        return all_gone(std::max(stopping_->strays, kill_descendants(kKillLimit, spared_)));
    const std::vector<pid_t> left = descendants(::getpid(), spared_);
    if (left.empty()) return all_gone(stopping_->strays);
    if (!stopping_->strays_signalled) {
        stopping_->strays_signalled = true;
        stopping_->strays = static_cast<int>(left.size());
        for (const pid_t pid : left) {
            ::kill(pid, stopping_->signal);
            ::kill(pid, SIGCONT);
        }
    }
    stray_timer_.expires_after(kStrayInterval);
    stray_timer_.async_wait([this](boost::system::error_code error) {
        if (!error) reap();
    });
}

void Supervisor::all_gone(int strays) {
    grace_timer_.cancel();
    stray_timer_.cancel();
    const Stopping stopped = std::move(*stopping_);
    stopping_.reset();
    stopped.gone(strays);
}

}  // namespace dtrun
