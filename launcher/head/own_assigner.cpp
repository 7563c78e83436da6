#include "launcher/head/own_assigner.h"

#include "base/log.h"
#include "base/milliseconds.h"
#include "base/text_layout.h"
#include "contracts/table.h"
#include "hostfiles/nodelist.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>
#include <csignal>
#include <random>

namespace dtrun::head {
namespace {

constexpr std::chrono::milliseconds kShortLife{1'000};  // of ranks, from start to failure
constexpr std::chrono::milliseconds kRestartDelay{100}, kRestartDelayMax{5'000};
constexpr std::chrono::seconds kWaitingNews{30};  // between two lines on what is waited for

/// The one world of a job that is not elastic: its plan.
GenerationLimits fixed_limits(const plan::JobSpec& spec) {
    GenerationLimits limits;
    const Placement& placement = spec.placement;
    limits.ranks_start = static_cast<std::uint32_t>(placement.world_size());
    limits.ranks_min = limits.sizes.max = limits.ranks_start;
    for (const RankPlace& place : placement.ranks) {
        Seat seat{.host = plan::host_of(place)};
        seat.rank.rank = static_cast<Rank>(place.rank);
        seat.rank.local_rank = static_cast<std::uint32_t>(place.local_rank);
        seat.rank.cross_rank = static_cast<std::uint32_t>(place.cross_rank);
        seat.rank.cross_size = static_cast<std::uint32_t>(place.cross_size);
        seat.rank.place = SlotIndex{seat.rank.local_rank};
        seat.fresh = true;
        limits.fixed.push_back(seat);
    }
    return limits;
}

GenerationLimits limits_of(const plan::JobSpec& spec) {
    if (!spec.options.elastic) return fixed_limits(spec);
    const plan::ElasticOptions& asked = *spec.options.elastic;
    GenerationLimits limits;
    limits.elastic = true;
    const auto count = [](int number) { return static_cast<std::uint32_t>(number); };
    const int ranks_min = asked.ranks_min.value_or(1);
    limits.ranks_min = count(ranks_min);
    limits.ranks_start = count(std::max(ranks_min, spec.options.world_size.value_or(ranks_min)));
    limits.sizes.max = count(asked.ranks_max.value_or(kRanksMax));
    for (const int size : asked.allowed) limits.sizes.allowed.push_back(count(size));
    limits.sizes.per_host = count(asked.ranks_per_host);
    limits.timeout = asked.timeout;
    limits.refill = asked.refill;
    if (asked.reset_limit) limits.resets_max = count(*asked.reset_limit);
    if (asked.failure_limit) limits.failures_max = count(*asked.failure_limit);
    if (asked.rank_failure_limit) limits.rank_failures_max = count(*asked.rank_failure_limit);
    limits.spares = count(asked.spares);
    limits.warn_time = asked.warn_time;
    limits.warns_by_signal = asked.warn_signal != 0;
    limits.hosts_may_come = !asked.discovery_script.empty();
    limits.cooldown_min = asked.cooldown_min;
    limits.cooldown_max = asked.cooldown_max;
    limits.seed = std::random_device{}();
    return limits;
}

/// Whether a rank has failed by what it did, and was not ended by somebody else.
bool is_own_fault(const Exited& exited) {
    return exited.signal == 0 || exited.out_of_memory ||
           (exited.signal != SIGKILL && exited.signal != SIGTERM && exited.signal != SIGINT &&
            exited.signal != SIGHUP);
}

}  // namespace

OwnAssigner::OwnAssigner(JobContext context, Outbox& outbox)
    : context_(std::move(context)),
      generations_(limits_of(context_.spec)),
      members_(context_.spec.hosts.size()),
      troubles_(context_.spec.hosts.size()),
      hub_(outbox, HubOptions{}),
      hub_timer_(context_.executor, hub_),
      meeting_(context_.executor, context_.hosts, context_.agents,
               [this] { return !is_wanted(starting_); }),
      delay_(context_.executor),
      tasks_(context_.executor) {
    const auto hosts = context_.spec.hosts.hosts();
    for (const HostId host : hosts)
        generations_.host_listed(
            host, static_cast<std::uint32_t>(context_.spec.hosts[host].ranks.size()), Clock::now());
    generations_.take_orders();  // starters connect to these by themselves
    context_.agents.on<Paused>(this, &OwnAssigner::paused);
    context_.agents.on<SeveredNews>(this, &OwnAssigner::severed);
    context_.agents.on<DeskNews>(this, &OwnAssigner::process_says);
    context_.agents.on<Rolled>(this, &OwnAssigner::rolled);
}

void OwnAssigner::listed(HostId host, std::uint32_t slots) {
    while (!members_.has(host)) members_.emplace_back();
    while (!troubles_.has(host)) troubles_.emplace_back();
    if (slots > 0)
        generations_.host_listed(host, slots, Clock::now());
    else
        generations_.host_delisted(host, Clock::now());
    obey();
}

void OwnAssigner::left(HostId host) {
    if (!is_elastic()) return;
    generations_.host_left(host, Clock::now());
    obey();
}

void OwnAssigner::entered(HostId host, Member member) {
    members_[host] = std::move(member);
    troubles_[host].clear();
    generations_.host_ready(host, Clock::now());
    if (is_elastic()) obey();
}

void OwnAssigner::lost(HostId host, const std::string& why) {
    const bool is_leaving = generations_.is_leaving(host);
    const bool goes_on = is_elastic() || context_.spec.options.recovers_itself;
    if (goes_on && !context_.job.ending() && !is_leaving)
        log::warn("host {} lost: {}", context_.hosts.name(host), why);
    troubles_[host] = "lost: " + why;
    if (goes_on) sever(host);
    generations_.host_lost(host, fmt::format("host {} is lost", context_.hosts.name(host)),
                           Clock::now());
    if (is_elastic()) obey();
    wake();
}

/// Ends the other ranks' connections to a lost host, so that they do not wait for it.
void OwnAssigner::sever(HostId lost) {
    const Hosts& hosts = context_.hosts;
    std::vector<std::string> addresses = hosts[lost].addresses;
    // A bridge of containers has the same address on many hosts.
    const auto all = hosts.hosts();
    for (const HostId host : all)
        if (host != lost && hosts[host].session != nullptr)
            std::erase_if(addresses, [&hosts, host](const std::string& address) {
                return std::ranges::count(hosts[host].addresses, address) > 0;
            });
    if (!addresses.empty())
        context_.hosts.send_to_all(encode(Sever{generations_.generation(), addresses, false}));
}

void OwnAssigner::failed(HostId host, const std::string& why) {
    if (!is_elastic()) return;
    if (generations_.generation() > 0 && troubles_[host] != why)
        log::warn("{}: {}", context_.hosts.name(host), why);
    troubles_[host] = why;
    generations_.host_failed(host, Clock::now());
    obey();
}

void OwnAssigner::severed(HostId host, const SeveredNews& news) {
    const std::string& name = context_.hosts.name(host);
    if (news.connections > 0)
        log::info("{}: ended {} of ranks to a lost host", name,
                  plural(news.connections, "connection"));
    if (news.problem.empty() || std::exchange(warned_of_severing_, true)) return;
    log::warn(
        "{}: connections of ranks to a lost host cannot be ended ({}): ranks that wait for it "
        "do so until their framework's own timeout",
        name, news.problem);
}

/// A process has come to a place where it may get another rank; see DeskState.
void OwnAssigner::process_says(HostId host, const DeskNews& news) {
    if (!is_elastic() || !context_.hosts.planned_on(host, news.place)) return;
    generations_.process_says(host, news.place, news.state, Clock::now());
    obey();
}

void OwnAssigner::rolled(HostId host, const Rolled& rolled) {
    generations_.host_rolled(host, rolled.number, Clock::now());
    obey();
}

/// In an elastic job a rank that fails is no cause of the job's end: others go on, or all start again.
bool OwnAssigner::hold_back(HostId host, const Exited& exited) {
    if (!is_elastic() || context_.job.ending()) return false;
    const bool well = exited.code == 0 && exited.signal == 0 && exited.mpi != MpiUse::aborted;
    const std::string who =
        fmt::format("rank {} on {} failed", exited.rank, context_.hosts.name(host));
    const bool runs = generations_.phase() != Generations::Phase::pausing &&
                      generations_.phase() != Generations::Phase::waiting;
    using Meaning = Generations::Meaning;
    const Meaning meaning = generations_.rank_ended(
        host, exited.place, {well, is_own_fault(exited), who, exited.was_none()}, Clock::now());
    if (meaning == Meaning::saved || meaning == Meaning::lost) context_.job.rank_left(host);
    if (runs && !well && meaning != Meaning::saved && exited.sent_signal == 0) {
        remember_failure(exited);
        if (generations_.phase() == Generations::Phase::pausing)
            log::warn("{}: ending all ranks{}", who,
                      generations_.may_fail() ? ", to start them again" : "");
        else if (restart_because_)
            context_.output.tell_restart(*std::exchange(restart_because_, std::nullopt));
    }
    obey();
    return meaning != Meaning::well;
}

void OwnAssigner::tick() {
    if (!is_elastic() || context_.job.ending()) return;
    generations_.tick(Clock::now());
    obey();
    if (generations_.phase() != Generations::Phase::waiting)
        told_waiting_.reset();
    else if (!told_waiting_ || Clock::now() >= *told_waiting_ + kWaitingNews)
        tell_waiting();
}

void OwnAssigner::wake() {
    meeting_.wake();
    delay_.cancel();
}

bool OwnAssigner::is_current(std::uint64_t generation) const {
    return generation == generations_.generation();
}

void OwnAssigner::begin() {
    obey();
}

/// Carries out what the state machine has decided.
void OwnAssigner::obey() {
    auto orders = generations_.take_orders();
    if (context_.job.ending()) return;
    for (const HostId host : orders.connect) context_.connect(host);
    if (orders.pause || orders.sever) notice_ = {};  // nothing that was planned counts any more
    if (orders.pause) pause(*orders.pause);
    if (orders.sever)
        context_.hosts.send_to_all(encode(Sever{generations_.generation(), {}, true}));
    end_processes(orders.kill);
    if (orders.prepare) prepare(*orders.prepare);
    if (orders.notify) notify({});
    if (orders.warn) warn(*orders.warn);
    if (orders.roll) context_.hosts.send_to_all(encode(Roll{*orders.roll}));
    for (const HostId host : orders.release) release(host);
    if (orders.ended) return end(*orders.ended);
    if (!orders.begin) return;
    next_ = World{generations_.generation(), std::move(*orders.begin)};
    if (!std::exchange(is_starting_, true)) tasks_.spawn(start_worlds());
}

/// Its ranks end as at the end of the job; the host says when it is done.
void OwnAssigner::release(HostId host) {
    log::info("{} is left", context_.hosts.name(host));
    context_.answers.release(host, context_.spec.options.grace, Clock::now());
    context_.hosts.send(host, encode(Stop{SIGTERM, to_ms(context_.spec.options.grace), "", false}));
}

void OwnAssigner::remember_failure(const Exited& because) {
    const JobOutcome& outcome = context_.job.outcome();
    restart_because_ = JobOutcome{};
    restart_because_->cause = JobOutcome::Cause::rank_failed;
    restart_because_->first = because;
    restart_because_->ended_well = outcome.ended_well;
    restart_because_->waiting = context_.waits.describe();
    last_failure_ = because;
}

void OwnAssigner::restart(const Exited& because) {
    remember_failure(because);
    const std::string who = fmt::format("rank {} on {} failed", because.rank,
                                        context_.hosts.name_of_host(because.rank));
    log::warn("{}: ending all ranks, to start them again ({} of {})", who,
              context_.job.outcome().restarts, context_.spec.options.max_restarts);
    generations_.restart(who, Clock::now());
    obey();
}

void OwnAssigner::end_processes(const std::vector<std::pair<HostId, SlotIndex>>& places) {
    std::map<HostId, EndRanks> orders;
    for (const auto& [host, place] : places) orders[host].places.push_back(place);
    for (const auto& [host, order] : orders) context_.hosts.send(host, encode(order));
}

/// Tells ranks that hosts change, and at which step they leave together.
/// \param notice  what else they are told
void OwnAssigner::notify(Notify notice) {
    notice_ = notice;
    notice_.generation = generations_.generation() + 1;
    notice_.reason = generations_.is_draining() ? ChangeReason::left : ChangeReason::joined;
    notice_.stop_step = stop_step_.agree();
    context_.hosts.send_to_all(encode(notice_));
}

/// Gives ranks that start again the time to save what they have.
void OwnAssigner::warn(const Generations::Warning& warning) {
    log::warn("{}: all ranks start again in {} (--warn-time)", warning.why,
              in_seconds(warning.time));
    Notify notice;
    notice.deadline_ms = to_ms(warning.time);
    notice.signal = context_.spec.options.elastic->warn_signal;
    notify(notice);
}

void OwnAssigner::exchanged() {
    hub_timer_.look();
    if (is_elastic()) look_at_steps();
}

void OwnAssigner::look_at_steps() {
    const Deadline now = Clock::now();
    if (now - looked_at_steps_ < kHeartbeatInterval / 4) return;
    looked_at_steps_ = now;
    const auto later = stop_step_.observe(hub_.progress(), now);
    if (!later || notice_.generation != generations_.generation() + 1) return;
    notice_.stop_step = *later;
    context_.hosts.send_to_all(encode(notice_));
}

/// Starts processes for a world that begins when they are there.
void OwnAssigner::prepare(const std::vector<Seat>& seats) {
    const World world{generations_.generation() + 1, seats};
    for (auto& [host, assign] : assignments(world)) {
        std::erase_if(assign.ranks, [&, host = host](const RankSlot& rank) {
            return std::ranges::none_of(seats, [&](const Seat& seat) {
                return seat.fresh && seat.host == host && seat.rank.place == rank.place;
            });
        });
        if (assign.ranks.empty()) continue;
        assign.master_address = master_address_;
        log::info("{}: {} new processes", context_.hosts.name(host), assign.ranks.size());
        context_.hosts.send(host, encode(Prepare{std::move(assign)}));
    }
}

std::vector<HostId> OwnAssigner::hosts_of(const std::vector<Seat>& seats) const {
    std::vector<HostId> hosts;
    for (const Seat& seat : seats)
        if (hosts.empty() || hosts.back() != seat.host) hosts.push_back(seat.host);
    return hosts;
}

void OwnAssigner::pause(const Generations::Pausing& pausing) {
    const std::chrono::milliseconds grace = context_.spec.options.grace;
    log::info("generation {} is coming: {}", pausing.generation, pausing.why);
    context_.job.pausing();
    context_.input.pause();
    context_.answers.pause(pausing.generation, grace, Clock::now());
    context_.hosts.send_to_all(
        encode(Pause{pausing.generation, SIGTERM, to_ms(grace), pausing.why}));
    meeting_.wake();
}

void OwnAssigner::paused(HostId host, const Paused& paused) {
    context_.answers.paused(host, paused.generation);
    generations_.host_paused(host, paused.generation, Clock::now());
    obey();
}

void OwnAssigner::end(const Generations::End& end) {
    using Cause = Generations::End::Cause;
    Job& job = context_.job;
    const plan::Options& options = context_.spec.options;
    switch (end.cause) {
        case Cause::cannot_start:
            job.cannot_start();
            break;
        case Cause::rank_failed:
            log::warn("{} ranks in a row have failed, each soon after the start: giving up",
                      Generations::kFailuresInARow);
            [[fallthrough]];
        case Cause::too_many_failures:
            if (last_failure_)
                job.fails_always(*last_failure_);
            else
                job.cannot_go_on(end.why);
            break;
        case Cause::too_few:
            job.cannot_go_on(
                fmt::format("too few slots were there for {}, now {} of the {} that it needs "
                            "(--elastic-timeout)",
                            in_seconds(options.elastic->timeout), generations_.slots_ready(),
                            generations_.slots_needed()));
            break;
        case Cause::resets:
            job.cannot_go_on(end.why + " (--reset-limit)");
            break;
        case Cause::finished:
            job.ended_elsewhere(true, {});
            break;
        case Cause::failures:
            job.cannot_go_on(fmt::format("{}, and --failure-limit {} allows no more", end.why,
                                         *options.elastic->failure_limit));
            break;
    }
    context_.decide();
}

bool OwnAssigner::is_wanted(std::uint64_t generation) const {
    return generation == generations_.generation() &&
           generations_.phase() == Generations::Phase::running && !context_.job.ending();
}

/// Starts one world after the other; one that is given up meanwhile has a successor.
asio::awaitable<void> OwnAssigner::start_worlds() {
    while (next_) {
        World world = std::move(*std::exchange(next_, std::nullopt));
        starting_ = world.generation;
        if (world.generation > 1) co_await wait_after_failure();
        if (!is_wanted(starting_)) continue;
        std::map<HostId, Assign> assigns = assignments(world);
        co_await find_master(assigns);
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
    std::vector<HostId> order;  // by node_rank
    std::map<HostId, Assign> assigns;
    for (const Seat& seat : world.seats) {
        RankSlot rank = seat.rank;
        const plan::PlannedRank place = place_of(seat);
        const RankPlace& planned = context_.spec.placement.ranks[std::to_underlying(place)];
        rank.slot = static_cast<std::uint32_t>(planned.slot);
        Assign& assign = assigns[seat.host];
        if (assign.ranks.empty()) order.push_back(seat.host);
        assign.ranks.push_back(rank);
        if (!seat.fresh) assign.kept.push_back(rank.place);
    }
    std::vector<SeatedHost> seated;
    std::vector<const Member*> members;
    for (const HostId host : order) {
        seated.push_back({&members_[host], assigns[host].ranks});
        members.push_back(&members_[host]);
    }
    Assign common =
        describe_world(seated, members, contracts::needs_nodes(context_.spec.contracts));
    common.generation = world.generation;
    const Hosts& hosts = context_.hosts;
    for (std::uint32_t node = 0; node < order.size(); ++node) {
        Assign& assign = assigns[order[node]];
        std::vector<RankSlot> ranks = std::move(assign.ranks);
        std::vector<SlotIndex> kept = std::move(assign.kept);
        assign = common;
        assign.ranks = std::move(ranks);
        assign.kept = std::move(kept);
        assign.node_rank = node;
        if (is_elastic())
            assign.places =
                static_cast<std::uint32_t>(context_.spec.hosts[order[node]].ranks.size());
    }
    assigns[order.front()].peers = peer_addresses(members);
    std::map<HostId, std::uint32_t> ranks_below;
    for (const auto& [host, assign] : assigns) {
        const auto ranks = static_cast<std::uint32_t>(assign.ranks.size());
        ranks_below[host] += ranks;
        if (hosts[host].relayed) ranks_below[*hosts.tree().parent(host)] += ranks;
    }
    for (const auto& [host, ranks] : ranks_below)
        assigns.try_emplace(host, common).first->second.ranks_below = ranks;
    return assigns;
}

/// Puts an address of rank 0's host that all others reach into the assignments.
asio::awaitable<void> OwnAssigner::find_master(std::map<HostId, Assign>& assigns) {
    HostId first{};
    std::vector<HostId> others;
    for (const auto& [host, assign] : assigns) {
        if (assign.ranks.empty()) continue;
        if (assign.node_rank == 0)
            first = host;
        else
            others.push_back(host);
    }
    const bool known = met_at_ == first && std::ranges::all_of(others, [this](HostId host) {
                           return met_.contains(host);
                       });
    if (!known) {
        const std::string address = co_await reachable_address(assigns.at(first), first, others);
        master_address_ = address;
        met_at_ = first;
        met_ = {others.begin(), others.end()};
    }
    for (auto& [host, assign] : assigns) {
        assign.master_address = master_address_;
        if (!assign.nodes.empty()) assign.nodes.front().address = master_address_;
    }
}

/// An address of rank 0's host that every other host reaches, or the best guess.
asio::awaitable<std::string> OwnAssigner::reachable_address(const Assign& assign, HostId first,
                                                            const std::vector<HostId>& others) {
    const std::uint16_t port = assign.master_port;
    const std::string guess = assign.master_address;
    if (others.empty() || port == 0 || !meets_at_master()) co_return guess;
    std::vector<std::string> candidates(1, guess);
    std::string reached = co_await meeting_.common_address(candidates, port, others, false);
    if (reached.empty() && is_wanted(starting_)) {
        candidates = context_.hosts[first].addresses;
        candidates.push_back(guess);
        reached = co_await meeting_.common_address(candidates, port, others, true);
    }
    co_return reached.empty() ? guess : reached;
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

plan::PlannedRank OwnAssigner::place_of(const Seat& seat) const {
    return context_.spec.hosts[seat.host].ranks[std::to_underlying(seat.rank.place)];
}

void OwnAssigner::start_ranks(const World& world, std::map<HostId, Assign> assigns) {
    Hosts& hosts = context_.hosts;
    const auto world_size = static_cast<std::uint32_t>(world.seats.size());
    PerHost<std::uint32_t> ranks_on_host(hosts.count(), 0);
    std::vector<Rank> numbers(context_.spec.placement.ranks.size(), kNoRank);
    for (const Seat& seat : world.seats) {
        ++ranks_on_host[seat.host];
        numbers[std::to_underlying(place_of(seat))] = seat.rank.rank;
    }
    hosts.set_numbers(plan::RankNumbers(std::move(numbers)));
    const bool goes_on = !std::ranges::all_of(world.seats, &Seat::fresh);
    const auto all = hosts.hosts();
    for (const HostId host : all)
        if (!goes_on) hosts[host].ranks.clear();
    context_.started();
    context_.waits.begin(world_size);
    context_.job.begin(std::move(ranks_on_host));
    if (world.generation > 1) {
        if (!goes_on)
            context_.output.begin_attempt(static_cast<std::uint32_t>(world.generation - 1));
        context_.output.renumber();
    }
    if (is_elastic()) tell_world(world);
    started_at_ = Clock::now();
    hub_.begin(world.generation, world_size);
    stop_step_.begin();
    // Relays come first, and so know of the generation before those behind them.
    for (const auto& [host, assign] : assigns)
        if (!hosts[host].relayed) hosts.send(host, encode(assign));
    for (const auto& [host, assign] : assigns)
        if (hosts[host].relayed) hosts.send(host, encode(assign));
    context_.input.start();
}

void OwnAssigner::tell_world(const World& world) const {
    std::vector<std::string> names;
    for (const Seat& seat : world.seats) {
        const std::string& name = context_.hosts.name(seat.host);
        if (names.empty() || names.back() != name) names.push_back(name);
    }
    const std::string text =
        fmt::format("generation {}: {} rank{} on {}", world.generation, world.seats.size(),
                    world.seats.size() == 1 ? "" : "s", name_hosts(names));
    const int asked = context_.spec.options.world_size.value_or(0);
    if (world.generation > 1 || std::cmp_not_equal(asked, world.seats.size()))
        log::warn("{}", text);
    else
        log::info("{}", text);
}

std::string OwnAssigner::waiting_text() const {
    return fmt::format("{} of {} slots are there", generations_.slots_ready(),
                       generations_.slots_needed());
}

void OwnAssigner::tell_waiting() {
    const Deadline now = Clock::now();
    // At the start the progress line says it.
    const bool first = !std::exchange(told_waiting_, now) && generations_.generation() == 0;
    if (first) return;
    std::string text = "waiting: " + waiting_text();
    for (const auto& [host, until] : generations_.cooling())
        text += fmt::format("; {} {}, tried again in {:.0f} s", context_.hosts.name(host),
                            troubles_[host], std::chrono::duration<double>(until - now).count());
    log::warn("{}", text);
}

asio::awaitable<void> OwnAssigner::join() {
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
