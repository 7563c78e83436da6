#include "worker/ranks/supervisor.h"

#include "base/strings.h"
#include "worker/ranks/oom_kills.h"
#include "worker/ranks/process_tree.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>

namespace dtrun::ranks {
namespace {

constexpr std::chrono::seconds kKillLimit{5};  // of orphans that KILL does not end
constexpr std::chrono::seconds kKillWorthTelling{3};
/// How often a stray that was asked to end is looked for; it need not be our child, so that no
/// signal tells of its end.
constexpr std::chrono::milliseconds kStrayInterval{20};
/// What tells the processes of one place from all others.
constexpr std::array<std::string_view, 2> kMarks{"DTRUN_AGENT=", "DTRUN_SLOT="};

/// To a rank's process group, or to a process that is about to make one.
void send_signal(pid_t rank, int signal) {
    if (::kill(-rank, signal) != 0 && errno == ESRCH) ::kill(rank, signal);
}

}  // namespace

Supervisor::Supervisor(asio::any_io_executor executor, std::function<void(const Exited&)> exited,
                       std::function<void(std::string)> stays)
    : executor_(executor),
      exited_(std::move(exited)),
      stays_(std::move(stays)),
      child_signals_(executor, SIGCHLD),
      grace_timer_(executor),
      stray_timer_(executor),
      oom_kills_seen_(oom_kills()),
      left_timer_(executor) {
    watch_children();
}

void Supervisor::watch_children() {
    child_signals_.async_wait([this](boost::system::error_code error, int) {
        if (error) return;
        watch_children();
        reap();
    });
}

void Supervisor::start(const Request& request, std::function<void(Start)> started) {
    auto spawned = spawn_rank(request.command);
    if (!spawned) {
        Start failed;
        failed.rank = request.rank;
        failed.place = request.place;
        failed.executed = std::unexpected(spawned.error());
        return started(std::move(failed));
    }
    const pid_t pid = spawned->pid;
    Running& rank = add(pid, request);
    rank.executing =
        std::make_shared<Executing>(executor_, std::move(*spawned), std::move(started));
    watch_exec(pid, rank.executing);
}

Supervisor::Running& Supervisor::add(pid_t pid, const Request& request) {
    Running& rank = ranks_[pid];
    rank.generation = request.generation;
    rank.rank = request.rank;
    rank.place = request.place;
    rank.started = Clock::now();
    for (const std::string& variable : request.command.env)
        if (std::ranges::any_of(kMarks, [&](auto name) { return variable.starts_with(name); }))
            rank.marks.push_back(variable);
    return rank;
}

void Supervisor::watch_exec(pid_t pid, const std::shared_ptr<Executing>& executing) {
    executing->status.async_wait(
        asio::posix::descriptor_base::wait_read,
        [this, pid, weak = std::weak_ptr(executing)](boost::system::error_code error) {
            const auto current = weak.lock();
            if (error || !current) return;
            const auto result = exec_result(current->process.executed);
            if (!result) return watch_exec(pid, current);
            executed(ranks_.find(pid), *result);
        });
}

/// \return whether it is a rank now
bool Supervisor::executed(Ranks::iterator rank, const Result<void>& result) {
    const auto executing = std::exchange(rank->second.executing, nullptr);
    RankProcess& process = executing->process;
    Start start;
    start.rank = rank->second.rank;
    start.place = rank->second.place;
    start.pid = rank->first;
    start.executed = result;
    if (result) {
        start.terminal = std::move(process.terminal);
        start.in = std::move(process.in);
        start.out = std::move(process.out);
        start.err = std::move(process.err);
    } else {
        ranks_.erase(rank);  // its exit is reaped like a stray's
    }
    executing->started(std::move(start));
    return result.has_value();
}

std::vector<RunningRank> Supervisor::running_ranks() const {
    std::vector<RunningRank> ranks;
    for (const auto& [pid, rank] : ranks_)
        if (!rank.executing) ranks.push_back({rank.rank, pid, rank.place});
    std::ranges::sort(ranks, {}, &RunningRank::rank);
    return ranks;
}

void Supervisor::signal(int signal) {
    for (const auto& [pid, rank] : ranks_) ::kill(-pid, signal);
}

void Supervisor::renumber(SlotIndex place, std::uint64_t generation, Rank rank) {
    for (auto& [pid, running] : ranks_)
        if (running.place == place) {
            running.generation = generation;
            running.rank = rank;
        }
}

void Supervisor::end(SlotIndex place, int signal) {
    for (auto& [pid, running] : ranks_) {
        if (running.place != place) continue;
        running.sent_signal = signal;
        send_signal(pid, signal);
        send_signal(pid, SIGCONT);
    }
}

void Supervisor::kill(std::uint64_t generation, Rank rank) {
    for (auto& [pid, running] : ranks_) {
        if (running.generation != generation || running.rank != rank) continue;
        running.hung = true;
        send_signal(pid, SIGKILL);
    }
}

void Supervisor::signalled(int signal) {
    for (auto& [pid, rank] : ranks_) rank.sent_signal = rank.had_signal = signal;
}

void Supervisor::end_ranks(int signal) {
    for (auto& [pid, rank] : ranks_) {
        if (rank.sent_signal == 0) rank.is_ending = is_ending(pid);
        rank.sent_signal = signal;
        if (signal == SIGKILL && stopping_) stopping_->killed_groups.insert(pid);
        if (rank.had_signal != signal) send_signal(pid, signal);
        send_signal(pid, SIGCONT);  // a stopped process would not see it
    }
}

void Supervisor::reap() {
    bool childless = false;
    bool lost = false;
    for (;;) {
        // Who is not reaped yet has its number for itself, and for its group.
        siginfo_t ended{};
        const int waited = ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (waited != 0 && errno == EINTR) continue;
        childless = waited != 0;
        const pid_t pid = ended.si_pid;
        if (waited != 0 || pid == 0) break;
        const auto found = ranks_.find(pid);
        const bool is_lost = found != ranks_.end() && was_lost(found->second, ended);
        if (is_lost) ::kill(-pid, SIGKILL);
        int status = 0;
        rusage used{};
        ::wait4(pid, &status, 0, &used);
        if (pid == spared_) spared_ = 0;
        if (auto helper = helpers_.extract(pid)) {
            helper.mapped().ended(status);
            continue;
        }
        if (found == ranks_.end()) continue;
        if (const auto& executing = found->second.executing) {
            const auto result = exec_result(executing->process.executed);
            if (!executed(found, result.value_or(Result<void>{}))) continue;
        }
        const Running rank = found->second;
        ranks_.erase(found);
        if (is_lost && rank.marks.size() == kMarks.size())
            left_[rank.place] = {rank.marks, after(kKillLimit)};
        lost = lost || is_lost;
        report(pid, rank, status, used);
    }
    if (lost) kill_left();
    if (stopping_ && ranks_.empty()) strays_or_done(childless);
}

/// Whether others go on without a rank that has ended.
bool Supervisor::was_lost(const Running& rank, const siginfo_t& ended) const {
    const bool well = ended.si_code == CLD_EXITED && ended.si_status == 0 && rank.sent_signal == 0;
    return clears_places_ && !stopping_ && !well;
}

/// Kills what such ranks have started, as far as it has become our child: other ranks have other places, and
/// helpers none. Looks again until nothing is found, as a process may fork meanwhile.
void Supervisor::kill_left() {
    if (left_.empty() || stopping_) return left_.clear();
    std::vector<pid_t> others = left_alone();
    for (const auto& [pid, rank] : ranks_) others.push_back(pid);
    std::vector<pid_t> found;
    std::set<SlotIndex> places;
    for (const pid_t pid : descendants(::getpid(), others)) {
        const std::string environment = environment_of(pid);
        for (const auto& [place, left] : left_) {
            if (!has_variables(environment, left.marks)) continue;
            found.push_back(pid);
            places.insert(place);
        }
    }
    const Deadline now = Clock::now();
    std::erase_if(left_, [&places, now](const auto& left) {
        return !places.contains(left.first) || left.second.until <= now;
    });
    if (found.empty()) return;
    for (const auto& below : descendants_of_each(found))
        for (const pid_t pid : below) ::kill(pid, SIGKILL);
    for (const pid_t pid : found) ::kill(pid, SIGKILL);
    left_timer_.expires_after(kStrayInterval);
    left_timer_.async_wait([this](boost::system::error_code error) {
        if (!error) kill_left();
    });
}

asio::awaitable<void> Supervisor::cleared(SlotIndex place) {
    Timer timer(executor_);
    while (left_.contains(place)) {
        timer.expires_after(kStrayInterval);
        co_await timer.async_wait(use_tuple);
    }
}

bool Supervisor::out_of_memory() {
    const std::uint64_t before = std::exchange(oom_kills_seen_, oom_kills());
    return oom_kills_seen_ > before;
}

void Supervisor::report(pid_t pid, const Running& rank, int status, const rusage& used) {
    Exited exited;
    exited.generation = rank.generation;
    exited.rank = rank.rank;
    exited.place = rank.place;
    exited.pid = pid;
    // No signal changes how a process ends that is ending. But one whose first thread alone has ended runs on.
    const bool is_by_us = WIFSIGNALED(status) && WTERMSIG(status) == rank.sent_signal;
    exited.sent_signal = rank.is_ending && !is_by_us ? 0 : rank.sent_signal;
    if (WIFSIGNALED(status)) {
        exited.signal = WTERMSIG(status);
        exited.core_dumped = WCOREDUMP(status);
    } else {
        exited.code = WEXITSTATUS(status);
    }
    const bool is_killed = exited.signal == SIGKILL && exited.sent_signal == 0;
    exited.hung = is_killed && rank.hung;
    exited.out_of_memory = is_killed && !rank.hung && out_of_memory();
    exited.ran_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - rank.started).count();
    exited.memory_max_bytes = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
    exited_(exited);
}

ResetResult Supervisor::reset_connections(const ConnectionSet& what) {
    return ranks::reset_connections(descendants(::getpid(), left_alone()), what);
}

Result<RankProcess> Supervisor::start_helper(const RankCommand& command,
                                             std::function<void(int)> ended, Lasts lasts) {
    if (retired_) return fail(Errc::internal, "the job is being ended");
    auto spawned = spawn_rank(command);
    if (spawned) helpers_[spawned->pid] = {std::move(ended), lasts};
    return spawned;
}

void Supervisor::kill_helper(pid_t helper) {
    if (helpers_.contains(helper)) send_signal(helper, SIGKILL);
}

bool Supervisor::adopt(pid_t helper, const Request& request) {
    if (helpers_.erase(helper) == 0) return false;
    add(helper, request);
    return true;
}

void Supervisor::retire() {
    retired_ = true;
    for (const auto& [pid, helper] : helpers_) {
        if (helper.lasts != Lasts::job) continue;
        retired_groups_.insert(pid);
        send_signal(pid, SIGKILL);
    }
}

/// Children that are no ranks, and have not been left behind by one.
std::vector<pid_t> Supervisor::left_alone() const {
    std::vector<pid_t> pids;
    if (spared_ != 0) pids.push_back(spared_);
    for (const auto& [pid, helper] : helpers_)
        if (!retired_ || helper.lasts == Lasts::longer) pids.push_back(pid);
    return pids;
}

void Supervisor::stop_all(int signal, std::chrono::milliseconds grace,
                          std::function<void(int)> gone) {
    if (!stopping_) {
        reap();  // who has ended by itself until now was not ended by us
        stopping_ = Stopping{signal, {}};
        grace_timer_.expires_at(Timer::time_point::max());
    }
    if (gone) stopping_->gone = std::move(gone);
    const auto until = Clock::now() + grace;
    if (until < grace_timer_.expiry()) {
        grace_timer_.expires_at(until);
        grace_timer_.async_wait([this](boost::system::error_code error) {
            if (error || !stopping_ || Clock::now() < grace_timer_.expiry()) return;
            stopping_->killing = true;
            end_ranks(SIGKILL);
            killed_in_vain();
            reap();
        });
    }
    if (grace > std::chrono::milliseconds(0)) end_ranks(signal);
    reap();
}

/// Reports ranks that are still there some time after SIGKILL: whoever ends or restarts the job
/// would wait without knowing for whom.
void Supervisor::killed_in_vain() {
    grace_timer_.expires_after(kKillWorthTelling);
    grace_timer_.async_wait([this](boost::system::error_code error) {
        if (error || !stopping_ || ranks_.empty()) return;
        std::vector<std::string> held, others;
        for (const auto& [pid, rank] : ranks_) {
            const bool is_others = ::kill(pid, 0) != 0 && errno == EPERM;
            (is_others ? others : held).push_back(fmt::format("rank {} (pid {})", rank.rank, pid));
        }
        if (!held.empty())
            stays_(
                fmt::format("killed {} s ago and still there, in the hands of the kernel or of a "
                            "debugger: {}",
                            kKillWorthTelling.count(), join_names(held)));
        if (!others.empty())
            stays_(fmt::format("cannot be ended, since it runs as another user (setuid, sudo): {}",
                               join_names(others)));
    });
}

/// Called when the ranks are gone: asks what they left behind to end as well, and waits for it; or
/// kills it, and gives up after a while.
void Supervisor::strays_or_done(bool childless) {
    // Whoever outlives its parent below a subreaper becomes its child: without a child there is nobody.
    if (childless) return all_gone();
    Stopping& stopping = *stopping_;
    const std::vector<pid_t> others = left_alone();
    const std::vector<pid_t> left =
        stopping.killing ? kill_descendants(others) : descendants(::getpid(), others);
    const bool none = left.empty() && (!stopping.killing || !others.empty());
    if (stopping.killing && !stopping.strays_until) stopping.strays_until = after(kKillLimit);
    if (none || (stopping.killing && Clock::now() >= *stopping.strays_until)) return all_gone();
    const bool first = !std::exchange(stopping.strays_found, true);
    if (first || stopping.killing)
        for (const pid_t pid : left) {
            const pid_t group = ::getpgid(pid);
            if (!retired_groups_.contains(group) && !stopping.killed_groups.contains(group))
                stopping.orphans.insert(pid);
        }
    if (first && !stopping.killing) {
        for (const pid_t pid : left) {
            ::kill(pid, stopping.signal);
            ::kill(pid, SIGCONT);
        }
    }
    stray_timer_.expires_after(kStrayInterval);
    stray_timer_.async_wait([this](boost::system::error_code error) {
        if (!error) reap();
    });
}

void Supervisor::all_gone() {
    grace_timer_.cancel();
    stray_timer_.cancel();
    const Stopping stopped = std::move(*stopping_);
    stopping_.reset();
    stopped.gone(static_cast<int>(stopped.orphans.size()));
}

}  // namespace dtrun::ranks
