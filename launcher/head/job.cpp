#include "launcher/head/job.h"

#include "rendezvous/wire/rank_messages.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <numeric>
#include <utility>

namespace dtrun::head {

Job::Job(PerHost<std::uint32_t> ranks_on_host, JobOptions options)
    : options_(options),
      ranks_on_host_(std::move(ranks_on_host)),
      hosts_(ranks_on_host_.size(), HostState::connecting),
      live_on_host_(ranks_on_host_.size(), 0) {
    count(HostState::connecting) = static_cast<std::uint32_t>(hosts_.size());
    outcome_.well_needed = options_.ranks_to_end_well;
}

void Job::set(HostId host, HostState state) {
    --count(hosts_[host]);
    ++count(hosts_[host] = state);
}

std::vector<HostId> Job::connecting() const {
    std::vector<HostId> hosts;
    for (const HostId host : hosts_.hosts())
        if (hosts_[host] == HostState::connecting) hosts.push_back(host);
    return hosts;
}

void Job::host_added() {
    ranks_on_host_.push_back(0);
    hosts_.push_back(HostState::connecting);
    ++count(HostState::connecting);
    live_on_host_.push_back(0);
}

void Job::host_ready(HostId host) {
    set(host, HostState::ready);
    if (stopping_) return;  // maybe because it was so late
    std::erase_if(outcome_.host_failures,
                  [host](const report::HostFailure& last) { return last.host == host; });
    all_answered();
}

void Job::host_failed(report::HostFailure failure) {
    if (hosts_[failure.host] != HostState::connecting) return;
    set(failure.host, HostState::failed);
    std::erase_if(outcome_.host_failures, [&failure](const report::HostFailure& last) {
        return last.host == failure.host;
    });
    outcome_.host_failures.push_back(std::move(failure));
    all_answered();
}

void Job::host_connecting(HostId host) {
    set(host, HostState::connecting);
}

/// Acts once each host is ready or has failed, so that all failures are reported together.
void Job::all_answered() {
    if (options_.elastic || stopping_ || count(HostState::connecting) > 0) return;
    if (!outcome_.host_failures.empty()) return cannot_start();
    start_wanted_ = true;
    begin(ranks_on_host_);
}

void Job::cannot_start() {
    sort_host_failures();
    cause(Cause::cannot_start);
    stop(SIGTERM, std::chrono::milliseconds(0));
}

void Job::sort_host_failures() {
    std::ranges::sort(outcome_.host_failures, {}, &report::HostFailure::host);
}

void Job::host_lost(HostId host, std::string text) {
    if (hosts_[host] != HostState::ready) return;
    set(host, HostState::lost);
    to_start_.erase(host);
    live_ -= std::exchange(live_on_host_[host], 0);
    if (options_.elastic) return;
    if (outcome_.cause == Cause::success) {
        outcome_.lost_host = host;
        outcome_.lost_text = std::move(text);
        cause(Cause::host_lost);
    }
    if (!options_.outlives_hosts || live_ == 0) stop(SIGTERM, options_.grace);
}

void Job::host_done(HostId host, std::uint32_t orphans) {
    set(host, HostState::done);
    to_start_.erase(host);
    live_ -= std::exchange(live_on_host_[host], 0);
    outcome_.orphans += orphans;
}

void Job::ranks_started(HostId host) {
    to_start_.erase(host);
}

void Job::rank_exited(HostId host, const Exited& exited) {
    // The host was given up meanwhile, or its ranks are ended for another generation.
    if (live_on_host_[host] == 0 || paused_) return;
    const bool failed = exited.code != 0 || exited.signal != 0 || exited.mpi == MpiUse::aborted;
    if (failed && may_restart(exited)) {
        ++outcome_.restarts;
        restart_order_ = exited;
        paused_ = true;
        return;
    }
    --live_on_host_[host];
    --live_;
    if (failed && explains_first(exited)) {
        also_failed(*std::exchange(outcome_.first, exited));
        first_abort_.reset();
    } else if (exited.sent_signal != 0) {
        ++outcome_.victims;
        outcome_.killed += exited.signal == SIGKILL;
    } else if (failed && outcome_.cause == Cause::success) {
        outcome_.first = exited;
        cause(Cause::rank_failed);
        if (!options_.keep_going) stop(SIGTERM, options_.grace);
    } else if (failed) {
        also_failed(exited);
    } else if (++outcome_.well; is_before_cause(exited)) {
        outcome_.ended_well.push_back({exited.rank, exited.ran_ns});
    }
    // What ranks left behind ends with the job.
    if (live_ == 0 && !options_.is_part) stop(SIGTERM, options_.grace);
}

void Job::also_failed(const Exited& exited) {
    constexpr std::size_t kLaterMax = 16;  // for a report
    ++outcome_.also_failed;
    if (outcome_.later.size() >= kLaterMax) return;
    Exited& later = outcome_.later.emplace_back(exited);
    later.traceback.clear();
}

void Job::rank_left(HostId host) {
    if (live_on_host_[host] == 0) return;
    --live_on_host_[host];
    --live_;
}

bool Job::aborted() const {
    return outcome_.cause == Cause::rank_failed && outcome_.first->mpi == MpiUse::aborted;
}

/// Whether this failure was before the recorded first one, although its news has arrived later: a rank
/// that fails because a peer is gone may end sooner than the peer's host gets to tell of it.
/// No end of a peer kills a rank, and few programs crash because of one, where nearly all others exit:
/// so one that was killed, or has crashed, failed before those that ended otherwise.
/// Open MPI's ranks call MPI_Abort when a peer is gone, so a rank that died in MPI by itself failed
/// before those that aborted, and the rank that aborted first failed before all others.
bool Job::explains_first(const Exited& exited) const {
    if (outcome_.cause != Cause::rank_failed || options_.keep_going ||
        outcome_.first->rank == exited.rank)
        return false;
    // Not SIGABRT: by it end programs in C++ that do not catch what their libraries throw.
    const auto has_crashed = [](const Exited& rank) {
        constexpr std::array kSignals{SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
        return rank.sent_signal == 0 && std::ranges::find(kSignals, rank.signal) != kSignals.end();
    };
    if (has_crashed(*outcome_.first)) return false;
    if (has_crashed(exited) && outcome_.first->pid != 0) return true;
    const auto died_in_mpi = [](const Exited& rank) {
        return rank.sent_signal == 0 && rank.mpi == MpiUse::initialized;
    };
    if (died_in_mpi(*outcome_.first)) return false;
    return first_abort_ == exited.rank || (aborted() && died_in_mpi(exited));
}

/// Whether the rank ended before the first failure. Ranks start at about the same time, so run
/// times tell the order even if news arrive in another.
bool Job::is_before_cause(const Exited& exited) const {
    return outcome_.cause == Cause::success ||
           (outcome_.cause == Cause::rank_failed && exited.ran_ns < outcome_.first->ran_ns);
}

void Job::rank_aborts(Rank rank) {
    if (outcome_.cause == Cause::success && !first_abort_) first_abort_ = rank;
}

bool Job::may_restart(const Exited& exited) const {
    if (std::chrono::nanoseconds(exited.ran_ns) < options_.min_uptime) return false;
    return exited.sent_signal == 0 && !stopping_ && outcome_.cause == Cause::success &&
           outcome_.restarts < static_cast<std::uint32_t>(options_.max_restarts);
}

void Job::begin(PerHost<std::uint32_t> ranks) {
    started_ = true;
    paused_ = false;
    first_abort_.reset();
    outcome_.ended_well.clear();
    live_on_host_ = std::move(ranks);
    live_ = std::accumulate(live_on_host_.begin(), live_on_host_.end(), 0u);
    to_start_.clear();
    for (const HostId host : live_on_host_.hosts())
        if (live_on_host_[host] > 0) to_start_.insert(to_start_.end(), host);
}

void Job::end_because(Cause why, std::string text) {
    // Ranks that are being ended for another generation wait in vain, and that does not matter.
    if (stopping_ || (paused_ && why == Cause::stuck)) return;
    outcome_.ended_text = std::move(text);
    sort_host_failures();
    cause(why);
    stop(SIGTERM, options_.grace);
}

void Job::fails_always(const Exited& rank) {
    if (stopping_) return;
    outcome_.first = rank;
    cause(Cause::rank_failed);
    stop(SIGTERM, options_.grace);
}

void Job::left_mpi(std::string why) {
    if (!aborted()) return;
    outcome_.cause = Cause::stuck;
    outcome_.ended_text = std::move(why);
    ++outcome_.also_failed;
}

void Job::interrupt(int signal) {
    const bool again =
        signal == SIGKILL || (signal != SIGPIPE && std::exchange(interrupted_, true));
    end(signal);
    if (again) stop_order_ = Order{SIGKILL, std::chrono::milliseconds(0)};
}

void Job::end(int signal) {
    if (outcome_.cause == Cause::success &&
        (live_ > 0 || !started_ || paused_ || options_.is_part)) {
        outcome_.signal = signal;
        cause(Cause::interrupted);
    }
    const bool ours = signal == SIGINT || signal == SIGPIPE;  // not meant for the ranks
    stop(ours ? SIGTERM : signal, options_.grace);
}

void Job::host_late(report::HostFailure failure) {
    if (!started_ && !stopping_) outcome_.host_failures.push_back(std::move(failure));
}

void Job::start_timed_out() {
    if (started_ || stopping_) return;
    sort_host_failures();
    cause(Cause::start_timeout);
    stop(SIGTERM, std::chrono::milliseconds(0));
}

void Job::pausing() {
    paused_ = true;
}

void Job::ended_elsewhere(bool finished, std::string why) {
    paused_ = false;
    if (!finished && outcome_.cause == Cause::success) {
        outcome_.ended_text = std::move(why);
        cause(Cause::ended_elsewhere);
    }
    stop(SIGTERM, options_.grace);
}

void Job::no_daemon(bool refused, std::string why) {
    if (outcome_.cause == Cause::success) {
        outcome_.refused = refused;
        outcome_.ended_text = std::move(why);
        cause(Cause::no_daemon);
    }
    stop(SIGTERM, options_.grace);
}

void Job::cause(Cause cause) {
    if (outcome_.cause == Cause::success) outcome_.cause = cause;
}

void Job::stop(int signal, std::chrono::milliseconds grace) {
    if (std::exchange(stopping_, true)) return;
    stop_order_ = Order{signal, grace};
}

bool Job::take_start() {
    return std::exchange(start_wanted_, false);
}

std::optional<Exited> Job::take_restart() {
    return std::exchange(restart_order_, std::nullopt);
}

std::optional<Job::Order> Job::take_stop() {
    return std::exchange(stop_order_, std::nullopt);
}

bool Job::over() const {
    return stopping_ && count(HostState::ready) == 0;
}

}  // namespace dtrun::head
