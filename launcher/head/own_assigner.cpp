#include "launcher/head/own_assigner.h"

#include "base/ids.h"
#include "base/log.h"
#include "base/milliseconds.h"
#include "base/text_layout.h"
#include "contracts/table.h"
#include "hostfiles/nodelist.h"
#include "launcher/head/job_policy.h"
#include "launcher/inspect/member_news.h"
#include "rendezvous/job/rank_end.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>

namespace dtrun::head {
namespace {

constexpr std::chrono::milliseconds kShortLife{1'000};  // of ranks, from start to failure
constexpr std::chrono::milliseconds kRestartDelay{100}, kRestartDelayMax{5'000};

/// The one world of a job that is not elastic: its plan.
std::vector<RankAssignment> planned_world(const plan::JobSpec& spec) {
    std::vector<RankAssignment> world;
    for (const RankPlace& place : spec.placement.ranks) {
        RankAssignment& assigned = world.emplace_back();
        assigned.host = plan::host_of(place);
        assigned.rank.rank = static_cast<Rank>(place.rank);
        assigned.rank.local_rank = static_cast<std::uint32_t>(place.local_rank);
        assigned.rank.cross_rank = static_cast<std::uint32_t>(place.cross_rank);
        assigned.rank.cross_size = static_cast<std::uint32_t>(place.cross_size);
        assigned.rank.place = SlotIndex{assigned.rank.local_rank};
        assigned.fresh = true;
    }
    return world;
}

std::uint32_t random_seed() {
    std::array<std::uint8_t, 4> bytes{};
    random_bytes(bytes);
    return std::bit_cast<std::uint32_t>(bytes);
}

/// Nothing where that would not give the same names again, as with such as have brackets of their own.
std::string compressed(std::span<const std::string> names) {
    std::string list = compress_nodelist(names);
    const auto expanded = expand_nodelist(list);
    return expanded && std::ranges::equal(*expanded, names) ? list : "";
}

Membership membership_of(const plan::JobSpec& spec) {
    if (spec.options.elastic) return Membership(elastic_policy(spec.options), {}, random_seed());
    JobPolicy policy;
    policy.ranks_start = static_cast<std::uint32_t>(spec.placement.world_size());
    policy.ranks_min = policy.sizes.max = policy.ranks_start;
    return Membership(policy, planned_world(spec));
}

}  // namespace

OwnAssigner::OwnAssigner(JobContext context, Outbox& outbox)
    : context_(std::move(context)),
      membership_(membership_of(context_.spec)),
      members_(context_.spec.hosts.size()),
      unusable_(context_.spec.hosts.size()),
      direct_store_(context_.executor, outbox),
      hub_(direct_store_, HubOptions{}),
      hub_timer_(context_.executor, hub_),
      election_(context_.executor, context_.spec, context_.hosts, context_.agents,
                [this] { return !is_wanted(starting_); }),
      delay_(context_.executor),
      tasks_(context_.executor) {
    direct_store_.use(hub_, hub_timer_);
    const auto hosts = context_.spec.hosts.hosts();
    for (const HostId host : hosts)
        membership_.host_listed(
            host, static_cast<std::uint32_t>(context_.spec.hosts[host].ranks.size()), Clock::now());
    membership_.take_orders();  // starters connect to these by themselves
    context_.agents.on<Paused>(this, &OwnAssigner::paused);
    context_.agents.on<ResetStatus>([this](HostId host, const ResetStatus& news) {
        connections_reset(context_.hosts.name(host), news);
    });
    context_.agents.on<RejoinStatus>(this, &OwnAssigner::process_says);
    context_.agents.on<ReadyToCommit>(this, &OwnAssigner::ready_to_commit);
}

void OwnAssigner::listed(HostId host, std::uint32_t slots) {
    while (!members_.has(host)) members_.emplace_back();
    while (!unusable_.has(host)) unusable_.emplace_back();
    if (slots > 0)
        membership_.host_listed(host, slots, Clock::now());
    else
        membership_.host_delisted(host, Clock::now());
    obey();
}

void OwnAssigner::left(HostId host) {
    if (!is_elastic()) return;
    membership_.host_left(host, Clock::now());
    obey();
}

void OwnAssigner::entered(HostId host, Member member) {
    members_[host] = std::move(member);
    unusable_[host].clear();
    membership_.host_ready(host, Clock::now());
    if (is_elastic()) obey();
}

void OwnAssigner::lost(HostId host, const std::string& why) {
    const bool is_leaving = membership_.is_leaving(host);
    const bool goes_on = is_elastic() || context_.spec.options.recovers_itself;
    if (goes_on && !context_.job.ending() && !is_leaving)
        losses_told_[why].push_back(context_.hosts.name(host));
    unusable_[host] = "lost: " + why;
    // In other jobs Job has its word on it.
    if (goes_on) {
        losses_.push_back({host, fmt::format("host {} is lost", context_.hosts.name(host))});
        if (losses_.size() == 1) tasks_.spawn(tell_losses());
    }
    wake();
}

/// Hosts are often lost together, as a switch or a step is what has failed, and each loss concerns all others: what
/// follows is decided, and told, once for all that are lost in a turn of the loop.
asio::awaitable<void> OwnAssigner::tell_losses() {
    co_await turn();
    for (const auto& [why, hosts] : std::exchange(losses_told_, {}))
        log::warn("host{} {} lost: {}", hosts.size() == 1 ? "" : "s", name_hosts(hosts), why);
    const auto losses = std::exchange(losses_, {});
    if (membership_.generation() > 0) reset_connections(losses);
    if (!is_elastic()) co_return;
    membership_.hosts_lost(losses, Clock::now());
    obey();
}

/// Goes on in the next turn of the loop, after what waits in this one.
asio::awaitable<void> OwnAssigner::turn() const {
    co_await asio::post(context_.executor, asio::use_awaitable);
}

/// Ends the other ranks' connections to lost hosts, so that they do not wait for these.
void OwnAssigner::reset_connections(std::span<const Membership::Loss> losses) {
    const Hosts& hosts = context_.hosts;
    std::vector<std::string> addresses;
    for (const Membership::Loss& loss : losses)
        // A bridge of containers has the same address on many hosts.
        for (const std::string& address : hosts[loss.host].addresses)
            if (!hosts.is_used(address)) addresses.push_back(address);
    if (!addresses.empty())
        context_.hosts.send_to_all(
            encode(ResetConnections{membership_.generation(), addresses, false}));
}

void OwnAssigner::failed(HostId host, const std::string& why) {
    if (!is_elastic()) return;
    if (membership_.generation() > 0 && unusable_[host] != why)
        log::warn("{}: {}", context_.hosts.name(host), why);
    unusable_[host] = why;
    membership_.host_failed(host, Clock::now());
    obey();
}

/// A process has come to a place where it may get another rank; see RejoinState.
void OwnAssigner::process_says(HostId host, const RejoinStatus& news) {
    if (!is_elastic() || !context_.hosts.planned_on(host, news.place)) return;
    membership_.process_says(host, news.place, news.state, Clock::now());
    obey();
}

void OwnAssigner::ready_to_commit(HostId host, const ReadyToCommit& ready) {
    membership_.host_ready_to_commit(host, ready.number, Clock::now());
    obey();
}

/// In an elastic job a rank that fails is no cause of the job's end: others go on, or all start again.
bool OwnAssigner::defer_failure(HostId host, const Exited& exited) {
    if (!is_elastic() || context_.job.ending()) return false;
    const std::string who =
        fmt::format("rank {} on {} failed", exited.rank, context_.hosts.name(host));
    const Membership::RankEnd how = rank_end(exited, who);
    const bool runs = membership_.phase() != Membership::Phase::pausing &&
                      membership_.phase() != Membership::Phase::waiting;
    using Meaning = Membership::Meaning;
    const Meaning meaning = membership_.rank_ended(host, exited.place, how, Clock::now());
    if (meaning == Meaning::saved || meaning == Meaning::lost) context_.job.rank_left(host);
    if (runs && !how.well && meaning != Meaning::saved && exited.sent_signal == 0) {
        remember_failure(exited);
        if (membership_.phase() == Membership::Phase::pausing)
            log::warn("{}: ending all ranks{}", who,
                      membership_.may_fail() ? ", to start them again" : "");
        else if (restart_because_)
            context_.output.tell_restart(*std::exchange(restart_because_, std::nullopt));
    }
    obey();
    return meaning != Meaning::well;
}

void OwnAssigner::tick() {
    if (!is_elastic() || context_.job.ending()) return;
    membership_.tick(Clock::now());
    obey();
    const auto shortage = membership_.shortage();
    // At the start there is a line on hosts that are being connected to.
    const bool is_told = membership_.generation() == 0 && !context_.job.connecting().empty();
    if (!shortage || is_told)
        news_.over();
    else if (news_.look(Clock::now()))
        log::warn("{}", waiting_text(*shortage));
}

/// Where hosts may change, the step at which ranks are to stop is chosen by what heartbeats say of their progress.
bool OwnAssigner::is_calm(Deadline now) const {
    if (!is_elastic()) return true;
    return membership_.phase() == Membership::Phase::running && hub_.progress().reporting == 0 &&
           membership_.next_deadline() > now + kCalmHeartbeatInterval;
}

void OwnAssigner::wake() {
    election_.wake();
    delay_.cancel();
}

bool OwnAssigner::is_current(std::uint64_t generation) const {
    return generation == membership_.generation();
}

void OwnAssigner::begin() {
    obey();
}

/// Carries out what the state machine has decided.
void OwnAssigner::obey() {
    auto orders = membership_.take_orders();
    if (context_.job.ending()) return;
    for (const HostId host : orders.connect) context_.connect(host);
    if (orders.pause || orders.reset_connections) notice_.forget();
    if (orders.pause) pause(*orders.pause);
    if (orders.reset_connections)
        context_.hosts.send_to_all(encode(ResetConnections{membership_.generation(), {}, true}));
    end_processes(orders.kill);
    if (orders.prepare) prepare(*orders.prepare);
    if (orders.notify || orders.warn) tell_change(orders.warn);
    if (orders.query_commit) context_.hosts.send_to_all(encode(QueryCommit{*orders.query_commit}));
    for (const HostId host : orders.release) release(host);
    if (orders.ended) return end(*orders.ended);
    if (!orders.begin) return;
    next_ = World{membership_.generation(), std::move(*orders.begin)};
    if (!std::exchange(is_starting_, true)) tasks_.spawn(start_worlds());
}

/// Its ranks end as at the end of the job; the host says when it is done.
void OwnAssigner::release(HostId host) {
    log::info("{} is left", context_.hosts.name(host));
    context_.stop_deadlines.release(host, context_.spec.options.grace, Clock::now());
    context_.hosts.send(host, encode(Stop{SIGTERM, to_ms(context_.spec.options.grace), "", false}));
}

void OwnAssigner::remember_failure(const Exited& because) {
    const report::JobOutcome& outcome = context_.job.outcome();
    restart_because_ = report::JobOutcome{};
    restart_because_->cause = Job::Cause::rank_failed;
    restart_because_->first = because;
    restart_because_->ended_well = outcome.ended_well;
    restart_because_->waiting = context_.deadlocks.describe(Clock::now());
    last_failure_ = because;
}

void OwnAssigner::restart(const Exited& because) {
    remember_failure(because);
    const std::string who = fmt::format("rank {} on {} failed", because.rank,
                                        context_.hosts.name_of_host(because.rank));
    log::warn("{}: ending all ranks, to start them again ({} of {})", who,
              context_.job.outcome().restarts, context_.spec.options.max_restarts);
    membership_.restart(who, Clock::now());
    obey();
}

void OwnAssigner::end_processes(const std::vector<std::pair<HostId, SlotIndex>>& places) {
    std::map<HostId, EndRanks> orders;
    for (const auto& [host, place] : places) orders[host].places.push_back(place);
    for (const auto& [host, order] : orders) context_.hosts.send(host, encode(order));
}

/// Tells ranks that hosts change. \param warning  that they start again, and have time to save what they have
void OwnAssigner::tell_change(const std::optional<Membership::Warning>& warning) {
    Notify notice;
    notice.generation = membership_.generation() + 1;
    notice.reason = membership_.is_draining() ? ChangeReason::left : ChangeReason::joined;
    if (warning) {
        log::warn("{}: all ranks start again in {} (--warn-time)", warning->why,
                  in_seconds(warning->time));
        notice.deadline_ms = to_ms(warning->time);
        notice.signal = membership_.policy().warn_signal;
    }
    context_.hosts.send_to_all(encode(notice_.make(notice)));
}

Result<void> OwnAssigner::exchange(PeerId agent, const FrameView& frame) {
    const Deadline now = Clock::now();
    const auto done = hub_.from_peer(agent, frame, now);
    hub_timer_.look();
    if (!is_elastic() || !notice_.is_due(now)) return done;
    if (const auto notice = notice_.look(hub_.progress(), now))
        context_.hosts.send_to_all(encode(*notice));
    return done;
}

/// Starts processes for a world that begins when they are there.
void OwnAssigner::prepare(const std::vector<RankAssignment>& world) {
    for (auto& [host, order] : prepare_world(assignments({membership_.generation() + 1, world}))) {
        order.world.master_address = election_.address();
        log::info("{}: {} new processes", context_.hosts.name(host), order.world.ranks.size());
        context_.hosts.send(host, encode(order));
    }
}

void OwnAssigner::pause(const Membership::Pausing& pausing) {
    const std::chrono::milliseconds grace = context_.spec.options.grace;
    log::info("generation {} is coming: {}", pausing.generation, pausing.why);
    context_.job.pausing();
    context_.input.pause();
    context_.stop_deadlines.pause(pausing.generation, grace, Clock::now());
    context_.hosts.send_to_all(
        encode(Pause{pausing.generation, SIGTERM, to_ms(grace), pausing.why}));
    election_.wake();
}

void OwnAssigner::paused(HostId host, const Paused& paused) {
    context_.stop_deadlines.paused(host, paused.generation);
    membership_.host_paused(host, paused.generation, Clock::now());
    obey();
}

void OwnAssigner::end(const Membership::End& end) {
    using Cause = Membership::End::Cause;
    Job& job = context_.job;
    const plan::Options& options = context_.spec.options;
    switch (end.cause) {
        case Cause::cannot_start:
            job.cannot_start();
            break;
        case Cause::host_lost:
            break;  // Job has its word on it
        case Cause::rank_failed:
            log::warn("{} ranks in a row have failed, each soon after the start: giving up",
                      Membership::kFailuresInARow);
            [[fallthrough]];
        case Cause::too_many_failures:
            if (last_failure_)
                job.fails_always(*last_failure_);
            else
                job.end_because(Job::Cause::cannot_go_on, end.why);
            break;
        case Cause::too_few:
            job.end_because(
                Job::Cause::cannot_go_on,
                fmt::format("too few slots were there for {}, now {} of the {} that it needs "
                            "(--elastic-timeout)",
                            in_seconds(options.elastic->timeout), membership_.slots_ready(),
                            membership_.slots_needed()));
            break;
        case Cause::resets:
            job.end_because(Job::Cause::cannot_go_on, end.why + " (--reset-limit)");
            break;
        case Cause::finished:
            job.ended_elsewhere(true, {});
            break;
        case Cause::failures:
            job.end_because(Job::Cause::cannot_go_on,
                            fmt::format("{}, and --failure-limit {} allows no more", end.why,
                                        *options.elastic->failure_limit));
            break;
    }
    context_.decide();
}

bool OwnAssigner::is_wanted(std::uint64_t generation) const {
    return generation == membership_.generation() &&
           membership_.phase() == Membership::Phase::running && !context_.job.ending();
}

/// Starts one world after the other; one that is given up meanwhile has a successor.
asio::awaitable<void> OwnAssigner::start_worlds() {
    while (next_) {
        World world = std::move(*std::exchange(next_, std::nullopt));
        starting_ = world.generation;
        if (world.generation > 1) co_await wait_after_failure();
        // For 10,000 hosts to plan a world, to assign it and to start it take 30 ms each.
        co_await turn();
        if (!is_wanted(starting_)) continue;
        std::map<HostId, Assign> assigns = assignments(world);
        co_await election_.elect(assigns);
        co_await turn();
        if (is_wanted(starting_)) start_ranks(world, std::move(assigns));
    }
    is_starting_ = false;
}

/// A failure is told once all output of the rank is there. Then there is a delay, which grows if ranks
/// repeatedly fail right after their start.
asio::awaitable<void> OwnAssigner::wait_after_failure() {
    if (!restart_because_) {
        restarts_at_once_ = 0;
        co_return;
    }
    context_.output.tell_restart(*restart_because_);
    restart_because_.reset();
    const bool at_once = Clock::now() - started_at_ < kShortLife;
    restarts_at_once_ = at_once ? restarts_at_once_ + 1 : 0;
    std::chrono::milliseconds delay = context_.spec.options.restart_delay;
    if (restarts_at_once_ >= 2) {
        const auto doublings = std::min<std::uint32_t>(restarts_at_once_ - 2, 16);
        delay = std::max(delay, std::min(kRestartDelayMax, kRestartDelay * (1 << doublings)));
    }
    if (delay == std::chrono::milliseconds(0)) co_return;
    delay_.expires_after(delay);
    co_await delay_.async_wait(use_tuple);
}

/// What each host is told of a world; relays also if only hosts behind them have ranks.
std::map<HostId, Assign> OwnAssigner::assignments(const World& world) const {
    auto assigns = assign_world(world.generation, world.ranks, members_,
                                contracts::needs_nodes(context_.spec.contracts), compressed);
    const Hosts& hosts = context_.hosts;
    const Assign any = assigns.begin()->second;
    std::map<HostId, std::uint32_t> ranks_behind;  // relays
    for (auto& [host, assign] : assigns) {
        const auto& places = context_.spec.hosts[host].ranks;
        for (RankSlot& rank : assign.ranks) {
            const plan::SlotId place = places[std::to_underlying(rank.place)];
            const RankPlace& planned = context_.spec.placement.ranks[std::to_underlying(place)];
            rank.slot = static_cast<std::uint32_t>(planned.slot);
        }
        if (is_elastic()) assign.places = static_cast<std::uint32_t>(places.size());
        if (hosts[host].relayed)
            ranks_behind[*hosts.tree().parent(host)] +=
                static_cast<std::uint32_t>(assign.ranks.size());
    }
    for (const auto& [relay, ranks] : ranks_behind) {
        const auto [at, is_new] = assigns.try_emplace(relay, any);
        Assign& assign = at->second;
        if (is_new) {  // it has no ranks itself
            assign.ranks.clear();
            assign.kept.clear();
            assign.peers.clear();
            assign.node_rank = 0;
            assign.ranks_below = 0;
        }
        assign.ranks_below += ranks;
    }
    return assigns;
}

plan::SlotId OwnAssigner::place_of(const RankAssignment& assigned) const {
    return context_.spec.hosts[assigned.host].ranks[std::to_underlying(assigned.rank.place)];
}

void OwnAssigner::start_ranks(const World& world, std::map<HostId, Assign> assigns) {
    Hosts& hosts = context_.hosts;
    const auto world_size = static_cast<std::uint32_t>(world.ranks.size());
    PerHost<std::uint32_t> ranks_on_host(hosts.count(), 0);
    std::vector<Rank> numbers(context_.spec.placement.ranks.size(), kNoRank);
    for (const RankAssignment& assigned : world.ranks) {
        ++ranks_on_host[assigned.host];
        numbers[std::to_underlying(place_of(assigned))] = assigned.rank.rank;
    }
    hosts.set_numbers(plan::RankNumbers(std::move(numbers)));
    const bool goes_on = !std::ranges::all_of(world.ranks, &RankAssignment::fresh);
    const auto all = hosts.hosts();
    for (const HostId host : all)
        if (!goes_on) hosts[host].ranks.clear();
    context_.started();
    context_.deadlocks.begin(world_size);
    context_.job.begin(std::move(ranks_on_host));
    if (world.generation > 1) {
        if (!goes_on)
            context_.output.begin_attempt(static_cast<std::uint32_t>(world.generation - 1));
        context_.output.renumber();
    }
    if (is_elastic()) tell_world(world);
    started_at_ = Clock::now();
    hub_.begin(world.generation, world_size);
    notice_.begin();
    // Relays come first, and so know of the generation before those behind them.
    for (const auto& [host, assign] : assigns)
        if (!hosts[host].relayed) hosts.send(host, encode(assign));
    for (const auto& [host, assign] : assigns)
        if (hosts[host].relayed) hosts.send(host, encode(assign));
    context_.input.start();
}

void OwnAssigner::tell_world(const World& world) const {
    std::vector<std::string> names;
    for (const RankAssignment& assigned : world.ranks) {
        const std::string& name = context_.hosts.name(assigned.host);
        if (names.empty() || names.back() != name) names.push_back(name);
    }
    const std::string text =
        fmt::format("generation {}: {} rank{} on {}", world.generation, world.ranks.size(),
                    world.ranks.size() == 1 ? "" : "s", name_hosts(names));
    const int asked = context_.spec.options.world_size.value_or(0);
    if (world.generation > 1 || std::cmp_not_equal(asked, world.ranks.size()))
        log::warn("{}", text);
    else
        log::info("{}", text);
}

/// Who is missing, why, and until when the job waits.
std::string OwnAssigner::waiting_text(const Membership::Shortage& shortage) const {
    const Deadline now = Clock::now();
    const auto span = [now](Deadline until) {
        return std::chrono::duration_cast<std::chrono::milliseconds>(until - now);
    };
    std::string text = inspect::missing_text(shortage.ready, shortage.needed);
    for (const auto& [host, until] : membership_.cooling())
        text += fmt::format("; {} {}, tried again in {:.0f} s", context_.hosts.name(host),
                            unusable_[host], std::chrono::duration<double>(until - now).count());
    if (membership_.policy().hosts_may_come)
        text += "; or for hosts that --host-discovery-script lists";
    std::optional<std::chrono::milliseconds> left;
    if (shortage.until) left = span(*shortage.until);
    return text + until_text(left, "--elastic-timeout");
}

asio::awaitable<void> OwnAssigner::join() {
    co_await direct_store_.join();
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
