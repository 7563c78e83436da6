#include "launcher/head/own_assigner.h"

#include "base/log.h"
#include "base/milliseconds.h"
#include "contracts/table.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

constexpr std::chrono::milliseconds kShortLife{1'000};  // of ranks, from start to failure
constexpr std::chrono::milliseconds kRestartDelay{100}, kRestartDelayMax{5'000};

// The members of this head's own membership are its hosts, each under the host's number.
MemberId member_of(HostId host) {
    return MemberId{std::to_underlying(host)};
}
HostId host_of(MemberId member) {
    return static_cast<HostId>(std::to_underlying(member));
}

MembershipOptions membership_options(const plan::JobSpec& spec) {
    const Placement& placement = spec.placement;
    MembershipOptions options;
    options.describe_nodes = contracts::needs_nodes(spec.contracts);
    options.ranks_min = options.ranks_max = static_cast<std::uint32_t>(placement.world_size());
    options.plan.resize(placement.hosts.size());
    for (const RankPlace& place : placement.ranks) {
        RankSlot slot;
        slot.rank = static_cast<Rank>(place.rank);
        slot.local_rank = static_cast<std::uint32_t>(place.local_rank);
        slot.cross_rank = static_cast<std::uint32_t>(place.cross_rank);
        slot.cross_size = static_cast<std::uint32_t>(place.cross_size);
        slot.slot = static_cast<std::uint32_t>(place.slot);
        options.plan[static_cast<std::size_t>(place.host)].push_back(slot);
    }
    return options;
}

}  // namespace

OwnAssigner::OwnAssigner(JobContext context, Outbox& outbox)
    : context_(std::move(context)),
      membership_(membership_options(context_.spec)),
      hub_(outbox, HubOptions{}),
      hub_timer_(context_.executor, hub_),
      meeting_(context_.executor, context_.spec, context_.hosts, context_.job),
      delay_(context_.executor),
      tasks_(context_.executor) {}

void OwnAssigner::entered(HostId host, Member member) {
    membership_.enter(member_of(host), std::move(member), Clock::now());
}

void OwnAssigner::lost(HostId host, const std::string& why) {
    membership_.lost(member_of(host), why, Clock::now());
    wake();
}

void OwnAssigner::wake() {
    meeting_.wake();
    delay_.cancel();
}

bool OwnAssigner::is_current(std::uint64_t generation) const {
    return generation == membership_.generation();
}

void OwnAssigner::begin() {
    tasks_.spawn(meet());
}

/// Every host is ready: finds where ranks will meet, and starts them.
asio::awaitable<void> OwnAssigner::meet() {
    assignments_ = membership_.take_orders().assignments;
    const Assign& first = assignments_.front().second;
    master_address_ = first.master_address;
    if (assignments_.size() > 1 && first.master_port != 0 && meets_at_master()) {
        const std::uint16_t port = first.master_port;
        std::vector<HostId> others;
        for (std::size_t i = 1; i < assignments_.size(); ++i)
            others.push_back(host_of(assignments_[i].first));
        std::vector<std::string> candidates(1, master_address_);
        std::string reached = co_await meeting_.common_address(candidates, port, others, false);
        if (reached.empty() && !context_.job.ending()) {
            candidates = context_.hosts[host_of(assignments_.front().first)].addresses;
            candidates.push_back(master_address_);
            reached = co_await meeting_.common_address(candidates, port, others, true);
        }
        if (!reached.empty()) master_address_ = reached;
    }
    if (!context_.job.ending()) start_ranks();
}

/// Whether anybody of the job will connect to MASTER_ADDR, as far as is known here.
bool OwnAssigner::meets_at_master() const {
    const plan::JobSpec& spec = context_.spec;
    if (contracts::needs_nodes(spec.contracts)) return true;
    const bool torch = std::ranges::count(spec.contracts, "torch") > 0;
    const bool elsewhere =
        std::ranges::count(spec.env_added, "MASTER_ADDR", &plan::Options::Variable::first) > 0;
    return torch && !elsewhere && spec.options.torch_store != TorchStore::proxy;
}

void OwnAssigner::reached(HostId host, const Reached& reached) {
    meeting_.reached(host, reached);
}

void OwnAssigner::start_ranks() {
    context_.started();
    started_at_ = Clock::now();
    hub_.begin(membership_.generation(), membership_.world_size());
    Hosts& hosts = context_.hosts;
    PerHost<std::uint32_t> ranks_below(hosts.count());
    for (const auto& [member, assign] : assignments_) {
        const HostId host = host_of(member);
        const auto ranks = static_cast<std::uint32_t>(assign.ranks.size());
        ranks_below[host] += ranks;
        if (hosts[host].relayed) ranks_below[*hosts.tree().parent(host)] += ranks;
    }
    // Relays come first, and so know of the generation before those behind them.
    for (auto& [member, assign] : std::exchange(assignments_, {})) {
        const HostId host = host_of(member);
        assign.ranks_below = ranks_below[host];
        assign.master_address = master_address_;
        if (!assign.nodes.empty()) assign.nodes.front().address = master_address_;
        hosts.send(host, encode(assign));
    }
    context_.input.start();
}

void OwnAssigner::restart(const Exited& because) {
    const JobOutcome& outcome = context_.job.outcome();
    restart_because_ = {};
    restart_because_.cause = JobOutcome::Cause::rank_failed;
    restart_because_.first = because;
    restart_because_.ended_well = outcome.ended_well;
    restart_because_.waiting = context_.waits.describe();
    const std::chrono::milliseconds grace = context_.spec.options.grace;
    log::warn("rank {} on {} failed: ending all ranks, to start them again ({} of {})",
              because.rank, context_.hosts.name_of_host(because.rank), outcome.restarts,
              context_.spec.options.max_restarts);
    context_.input.pause();
    membership_.restart(fmt::format("rank {} failed", because.rank), Clock::now());
    context_.answers.pause(membership_.generation() + 1, grace, Clock::now());
    for (const auto& [member, propose] : membership_.take_orders().proposals)
        context_.hosts.send(host_of(member),
                            encode(Pause{propose.generation, SIGTERM, to_ms(grace), propose.why}));
}

void OwnAssigner::paused(HostId host, std::uint64_t generation) {
    membership_.accept(member_of(host), generation, Clock::now());
    auto orders = membership_.take_orders();
    if (orders.assignments.empty() || context_.job.ending()) return;
    assignments_ = std::move(orders.assignments);
    context_.output.tell_restart(restart_because_);
    tasks_.spawn(start_again());
}

/// Starts all ranks again: at once, or after a growing delay if they repeatedly fail right after
/// their start.
asio::awaitable<void> OwnAssigner::start_again() {
    const std::uint32_t restarts = context_.job.outcome().restarts;
    const bool at_once = Clock::now() - started_at_ < kShortLife;
    if (at_once && restarts > 1) {
        const auto doublings = std::min<std::uint32_t>(restarts - 2, 16);
        delay_.expires_after(std::min(kRestartDelayMax, kRestartDelay * (1 << doublings)));
        co_await delay_.async_wait(use_tuple);
    }
    if (context_.job.ending()) co_return;
    const auto hosts = context_.hosts.hosts();
    for (const HostId host : hosts) context_.hosts[host].ranks.clear();
    context_.waits.begin();
    context_.job.restarted();
    context_.output.begin_attempt(restarts);
    start_ranks();
}

asio::awaitable<void> OwnAssigner::join() {
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
