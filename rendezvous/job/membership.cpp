#include "rendezvous/job/membership.h"

#include <fmt/format.h>
#include <algorithm>
#include <cassert>
#include <tuple>

namespace dtrun {
namespace {

constexpr const char* kHostsChange = "hosts have changed";

}  // namespace

constexpr std::array<std::uint32_t Membership::Sums::*, 10> Membership::Sums::kMembers{
    &Sums::coming, &Sums::ending_ranks, &Sums::open,     &Sums::living,   &Sums::draining,
    &Sums::asking, &Sums::rejoining,    &Sums::keepable, &Sums::prepared, &Sums::held};

Membership::Membership(JobPolicy policy, std::vector<RankAssignment> fixed, std::uint32_t seed)
    : policy_(std::move(policy)), fixed_(std::move(fixed)), random_(seed) {
    assert(policy_.ranks_min >= 1 && policy_.ranks_start >= policy_.ranks_min);
}

// ---- What there is -------------------------------------------------------------------------------

std::uint32_t Membership::slots_needed() const {
    return generation_ == 0 ? policy_.ranks_start : policy_.ranks_min;
}

std::optional<Membership::Shortage> Membership::shortage() const {
    const bool waits = phase_ == Phase::waiting || phase_ == Phase::collecting;
    if (!waits || !waiting_since_) return std::nullopt;
    if (slots_ready() >= slots_needed() && plan(With::newcomers).size() >= slots_needed())
        return std::nullopt;
    Shortage shortage{slots_ready(), slots_needed()};
    const auto& allowed = policy_.sizes.allowed;
    const auto least = std::ranges::lower_bound(allowed, shortage.needed);
    if (least != allowed.end()) shortage.needed = *least;
    if (is_waited_for() && patience().count() > 0) shortage.until = *waiting_since_ + patience();
    return shortage;
}

std::vector<std::pair<HostId, Deadline>> Membership::cooling() const {
    std::vector<std::pair<HostId, Deadline>> cooling;
    for (const HostId host : hosts_.hosts())
        if (hosts_[host].cool_until) cooling.emplace_back(host, *hosts_[host].cool_until);
    return cooling;
}

Membership::Sums Membership::Host::sums() const {
    Sums sums;
    sums.coming = state == State::coming && is_listed();
    sums.ending_ranks = is_ending_ranks;
    for (const Slot& slot : slots) {
        const Process& process = slot.process;
        sums.open += state == State::ready && slot.is_open();
        sums.prepared += process.prepared;
        sums.held += process.prepared && process.held_at_start;
        if (!process.lives) continue;
        ++sums.living;
        sums.draining += !slot.listed;
        sums.asking += process.wants_rank;
        sums.rejoining += process.supports_rejoin;
        sums.keepable += process.is_keepable();
    }
    return sums;
}

/// Places of a host whose processes have ranks, in the order of these.
std::vector<SlotIndex> Membership::living(HostId id) const {
    const Host& host = hosts_[id];
    std::vector<SlotIndex> places = host.ranked;
    std::erase_if(places, [&host](SlotIndex place) {
        return !host.slots[std::to_underlying(place)].process.lives;
    });
    return places;
}

/// Tells hosts which of their places have ranks of the world.
void Membership::set_ranked() {
    for (const HostId id : hosts_.hosts()) hosts_[id].ranked.clear();
    for (const RankAssignment& assigned : world_)
        hosts_[assigned.host].ranked.push_back(assigned.rank.place);
}

template <class Do>
void Membership::each_process(Do apply) {
    for (const HostId id : hosts_.hosts())
        for (std::uint32_t i = 0; i < hosts_[id].slots.size(); ++i)
            apply(id, SlotIndex{i}, hosts_[id].slots[i].process);
}

/// The world that could begin now.
std::vector<RankAssignment> Membership::plan(With with) const {
    if (!fixed_.empty())
        return slots_ready() >= fixed_.size() ? fixed_ : std::vector<RankAssignment>{};
    using Age = std::tuple<std::uint64_t, std::uint64_t, HostId>;
    std::vector<std::pair<Age, HostOffer>> offers;
    for (const HostId id : hosts_.hosts()) {
        auto offer = offer_of(id, with);
        const bool is_new = hosts_[id].first_world == 0;
        const Age age(is_new ? UINT64_MAX : hosts_[id].first_world, is_new ? hosts_[id].order : 0,
                      id);
        if (offer) offers.emplace_back(age, std::move(*offer));
    }
    std::ranges::sort(offers, {}, [](const auto& offer) { return offer.first; });
    std::vector<HostOffer> hosts;
    for (auto& [age, offer] : offers) hosts.push_back(std::move(offer));
    keep_spares(hosts);
    return plan_world(std::move(hosts), policy_.sizes);
}

/// What a host can give to the world; nothing if it has no agent.
std::optional<HostOffer> Membership::offer_of(HostId id, With with) const {
    const Host& host = hosts_[id];
    if (host.state != State::ready) return std::nullopt;
    HostOffer offer{.host = id};
    for (const SlotIndex place : living(id))
        if (slot_at(id, place).is_open()) offer.survivors.push_back(place);
    for (std::uint32_t i = 0; i < host.slots.size() && with == With::newcomers; ++i) {
        const Process& process = host.slots[i].process;
        if (host.slots[i].is_open() && !process.lives && !process.ending)
            offer.vacant.push_back(SlotIndex{i});
    }
    return offer;
}

/// Leaves out the youngest hosts, where nobody lives, as far as the job need not be smaller for that.
/// \param hosts  the oldest first
void Membership::keep_spares(std::vector<HostOffer>& hosts) const {
    std::size_t slots = 0;
    for (const HostOffer& host : hosts) slots += host.survivors.size() + host.vacant.size();
    for (std::uint32_t spares = policy_.spares; spares > 0 && !hosts.empty(); --spares) {
        const HostOffer& youngest = hosts.back();
        if (!youngest.survivors.empty() || slots - youngest.vacant.size() < ranks_wanted()) return;
        slots -= youngest.vacant.size();
        hosts.pop_back();
    }
}

/// Spares are there to keep the world as large as it was at first.
std::uint32_t Membership::ranks_wanted() const {
    return generation_ == 0 ? policy_.ranks_start : std::max(first_size_, policy_.ranks_min);
}

// ---- The end of a world: all ranks start again -----------------------------------------------------

void Membership::restart(const std::string& why, Deadline now) {
    if (phase_ == Phase::running) pause(why, now);
}

void Membership::pause(std::string why, Deadline now) {
    phase_ = Phase::pausing;
    if (!ended_) ended_ = now;
    forget_plans();
    for (const HostId host : hosts_.hosts())
        hosts_[host].is_ending_ranks = hosts_[host].state == State::ready;
    orders_.pause = Pausing{generation_ + 1, std::move(why)};
    if (all_paused()) settle(now);
}

void Membership::host_paused(HostId host, std::uint64_t generation, Deadline now) {
    if (phase_ != Phase::pausing || generation != generation_ + 1) return;
    hosts_[host].is_ending_ranks = false;
    if (all_paused()) settle(now);
}

/// No rank runs, and every host that was lost with them is known.
void Membership::settle(Deadline now) {
    phase_ = Phase::waiting;
    waiting_since_ = now;
    each_process([](HostId, SlotIndex, Process& process) { process = {}; });
    release_delisted();
    const auto failure = std::exchange(failure_, std::nullopt);
    const bool because_of_host = std::exchange(host_was_lost_, false);
    if (failure && !because_of_host) blame(*failure, now);
    if (phase_ == Phase::ended || !may_reset()) return;
    std::vector<RankAssignment> world = plan(With::newcomers);
    if (world.size() >= policy_.ranks_min) return begin(std::move(world), now);
    look(now);
}

// ---- The end of a world: processes go on -------------------------------------------------------------

void Membership::process_says(HostId id, SlotIndex place, RejoinState state, Deadline now) {
    Process& process = slot_at(id, place).process;
    const bool ends = phase_ == Phase::pausing || phase_ == Phase::ended;
    switch (state) {
        case RejoinState::supports_rejoin:
            process.supports_rejoin = true;
            return;
        case RejoinState::rendezvoused:
            process.rendezvoused = true;
            return;
        case RejoinState::held_at_start:
            process.held_at_start = process.prepared;
            if (!is_prepared()) return;
            if (phase_ == Phase::running) notify();
            return gather(now);
        case RejoinState::wants_rank:
            process.wants_rank = process.lives;
            if (!process.lives || ends) return;
            // Without a notice one of its collectives has failed, and those of the others will.
            if (phase_ == Phase::running && !notified_) return lose("a collective failed", now);
            if (phase_ == Phase::running) {
                phase_ = Phase::collecting;
                rejoin_until_ = now + policy_.rejoin_timeout;
            }
            return gather(now);
    }
}

/// All processes are told that hosts have changed, and ask for their places.
void Membership::notify() {
    orders_.notify = notified_ = asked_ = true;
}

/// Every process that lives is to ask for its place in the next world.
void Membership::collect(Deadline now) {
    if (!ended_) ended_ = now;
    abandon_prepared();
    if (!connections_reset_) {  // some may have left already, after a notice
        connections_reset_ = true;
        rejoin_until_ = now + policy_.rejoin_timeout;
        refill_until_ = now + policy_.refill_wait;
        orders_.reset_connections = true;
    }
    phase_ = Phase::collecting;
    call_until_.reset();
    warned_until_.reset();
    warned_ = false;
    gather(now);
}

/// Goes on once every process that lives waits for its place.
void Membership::gather(Deadline now) {
    if (phase_ != Phase::collecting) return;
    if (!any_lives()) return nobody_lives(now);
    if (!all_ask()) return;
    if (!ended_) ended_ = now;
    if (one_is_done_ && !one_is_lost_ && !asked_)
        return end(End::Cause::finished, "ranks have ended well, and all others have stopped");
    const bool because_of_host = std::exchange(host_was_lost_, false);
    if (const auto failure = std::exchange(failure_, std::nullopt); failure && !because_of_host)
        blame(*failure, now);
    if (phase_ == Phase::ended) return;
    if (is_finishing_) return go_on_as_few(now);
    if (!target_.empty()) return is_prepared() ? call(target_) : void();
    std::vector<RankAssignment> world = plan(With::survivors);
    const bool enough = world.size() >= policy_.ranks_min;
    const bool waits = policy_.refill == Refill::wait && refill_until_ && now < *refill_until_;
    if (enough && !(waits && prepare(now))) return call(std::move(world));
    if (enough) return;
    if (!waiting_since_) waiting_since_ = now;
    prepare(now);
}

/// Ranks have ended well: those that wait go on without them, and without anybody else.
void Membership::go_on_as_few(Deadline now) {
    std::vector<RankAssignment> world = plan(With::survivors);
    if (world.size() >= policy_.ranks_min) return call(std::move(world));
    pause("too few ranks live on", now);
}

/// What was prepared counted on them.
void Membership::end_who_does_not_ask() {
    if (all_ask()) return;
    abandon_prepared();
    one_is_lost_ = true;
    each_process([this](HostId host, SlotIndex place, Process& process) {
        if (!process.lives || process.wants_rank) return;
        process = {.ending = true};
        orders_.kill.emplace_back(host, place);
    });
}

void Membership::tick_collecting(Deadline now) {
    if (rejoin_until_ && *rejoin_until_ <= now) {
        rejoin_until_.reset();
        end_who_does_not_ask();
        gather(now);
    }
    if (refill_until_ && *refill_until_ <= now) {
        refill_until_.reset();
        if (policy_.refill == Refill::wait && !waiting_since_) abandon_prepared();
        gather(now);
    }
    if (phase_ == Phase::collecting && waiting_since_ && now >= *waiting_since_ + policy_.timeout)
        end_too_few();
}

/// Has processes started for a world that is larger than the living can form.
/// \return whether there are any to start
bool Membership::prepare(Deadline now) {
    std::vector<RankAssignment> world = plan(With::newcomers);
    if (world.size() < policy_.ranks_min || world.size() <= plan(With::survivors).size())
        return false;
    for (const RankAssignment& assigned : world)
        if (assigned.fresh)
            slot_at(assigned.host, assigned.rank.place).process = {.prepared = true};
    aim(std::move(world));
    prepared_until_ = now + policy_.rejoin_timeout;
    orders_.prepare = target_;
    return true;
}

/// Whether all processes that the next world needs are there.
bool Membership::is_prepared() const {
    return !target_.empty() && sums().held == fresh_in_target_;
}

/// The next world will be another one: processes that were started for it have the wrong ranks.
void Membership::abandon_prepared() {
    target_.clear();
    notified_ = false;
    const bool ordered = orders_.prepare.has_value();  // but not carried out
    orders_.prepare.reset();
    if (sums().prepared == 0) return;
    each_process([this, ordered](HostId host, SlotIndex place, Process& process) {
        if (!process.prepared) return;
        process = {.ending = !ordered};
        if (!ordered) orders_.kill.emplace_back(host, place);
    });
}

/// Before the places are given, which cannot be taken back, every host says that it is there.
void Membership::call(std::vector<RankAssignment> world) {
    aim(std::move(world));
    phase_ = Phase::committing;
    orders_.query_commit = ++last_query_;
    unanswered_.clear();
    for (const RankAssignment& assigned : target_) unanswered_.insert(assigned.host);
}

/// This is to be the next world.
void Membership::aim(std::vector<RankAssignment> world) {
    target_ = std::move(world);
    fresh_in_target_ =
        static_cast<std::size_t>(std::ranges::count_if(target_, &RankAssignment::fresh));
}

void Membership::host_ready_to_commit(HostId host, std::uint64_t number, Deadline now) {
    if (phase_ != Phase::committing || number != last_query_) return;
    unanswered_.erase(host);
    if (!unanswered_.empty() || !may_reset()) return;
    begin(std::exchange(target_, {}), now);
}

// ---- The begin of a world ----------------------------------------------------------------------------

/// How long to wait for slots.
std::chrono::milliseconds Membership::patience() const {
    return generation_ == 0 ? policy_.start_timeout.value_or(policy_.timeout) : policy_.timeout;
}

/// Without a timeout the hosts of the first world still have the time that connecting takes.
bool Membership::waits_for_first() const {
    return generation_ == 0 && patience().count() == 0 && is_coming();
}

/// Whether slots may come that are waited for no longer than patience().
bool Membership::is_waited_for() const {
    return policy_.elastic || policy_.hosts_enter;
}

/// Begins a world of fresh processes if there is one, and nobody is worth waiting for.
void Membership::look(Deadline now) {
    if (phase_ != Phase::waiting) return;
    if (!waiting_since_) waiting_since_ = now;
    // Each host that is ready comes here: the world is planned only when it may begin.
    const std::uint32_t largest = allowed_size(policy_.sizes, policy_.sizes.max);
    const bool has_time = call_until_ && now < *call_until_ && is_coming();
    const bool has_enough = slots_ready() >= slots_needed();
    if (has_enough && has_time && slots_ready() < largest) return;
    std::vector<RankAssignment> world;
    if (has_enough) world = plan(With::newcomers);
    if (world.size() < slots_needed()) {
        call_until_.reset();
        if (is_waited_for() && now >= *waiting_since_ + patience() && !waits_for_first())
            end_too_few();
        return;
    }
    if (!call_until_) call_until_ = now + policy_.last_call;
    if (world.size() >= largest || !is_coming() || now >= *call_until_)
        begin(std::move(world), now);
}

/// Processes that live and have no rank in the new world are ended.
void Membership::begin(std::vector<RankAssignment> world, Deadline now) {
    if (generation_ > 0) ++resets_;
    ++generation_;
    phase_ = Phase::running;
    if (ended_.value_or(now) - began_ >= kStable) forgive();
    began_ = now;
    ended_.reset();
    one_is_done_ = one_is_lost_ = asked_ = warned_ = false;
    waiting_since_.reset();
    forget_plans();
    if (generation_ == 1) first_size_ = static_cast<std::uint32_t>(world.size());
    std::vector<Process> processes;
    for (RankAssignment& assigned : world) {
        Host& host = hosts_[assigned.host];
        if (host.first_world == 0) {
            host.first_world = generation_;
            host.ranked_since = now;
        }
        Slot& slot = slot_at(assigned.host, assigned.rank.place);
        const Process before = std::exchange(slot.process, {});
        if (!before.lives) slot.ranked_since = now;
        assigned.fresh = !before.lives && !before.prepared;
        processes.push_back(
            {.lives = true, .early = !assigned.fresh, .supports_rejoin = before.supports_rejoin});
    }
    if (std::ranges::all_of(world, &RankAssignment::fresh)) is_finishing_ = false;
    each_process([this](HostId host, SlotIndex place, Process& process) {
        if (!process.lives) return;
        process = {.ending = true};
        if (hosts_[host].is_listed()) orders_.kill.emplace_back(host, place);
    });
    for (std::size_t i = 0; i < world.size(); ++i)
        slot_at(world[i].host, world[i].rank.place).process = processes[i];
    world_ = std::move(world);
    set_ranked();
    orders_.begin = world_;
    release_delisted();
    call_more(now);
}

/// Nothing that was to follow the last world counts for the next one.
void Membership::forget_plans() {
    target_.clear();
    notified_ = connections_reset_ = false;
    for (auto* const deadline : {&call_until_, &rejoin_until_, &refill_until_, &warned_until_,
                                 &replaced_until_, &prepared_until_})
        deadline->reset();
}

bool Membership::may_reset() {
    if (!policy_.resets_max || resets_ < *policy_.resets_max) return true;
    end(End::Cause::resets,
        fmt::format("Horovod was shutdown because number of resets during elastic job exceeded "
                    "limit: {}",
                    *policy_.resets_max));
    return false;
}

bool Membership::wants_change() const {
    return is_draining() ||
           (slots_ready() > world_.size() && plan(With::newcomers).size() > world_.size());
}

/// More slots are there than the world has: a larger one follows soon, with all that come by then.
void Membership::call_more(Deadline now) {
    if (call_until_ || is_finishing_ || warned_until_ || !target_.empty() || !policy_.elastic)
        return;
    if (!notified_ && wants_change()) call_until_ = now + policy_.last_call;
}

/// Hosts or slots have come, or are to go: another world follows, as gently as the processes allow.
void Membership::change(Deadline now) {
    call_until_.reset();
    if (is_finishing_ || warned_until_ || !target_.empty() || !wants_change()) return;
    if (is_keepable()) {
        const bool prepares = prepare(now);
        if (!prepares) notify();
        if (prepares && is_draining()) replaced_until_ = now + kReplacedWithin;
    } else if (any_lives() && sums().rejoining == sums().living) {
        call_until_ = now + policy_.last_call;  // they have not met yet
    } else if (policy_.warn_time.count() == 0) {
        pause(kHostsChange, now);
    } else {
        warned_until_ = now + policy_.warn_time;
        orders_.warn = Warning{kHostsChange, policy_.warn_time};
        asked_ = warned_ = true;
    }
}

/// Processes that do not get as far as the others are waited for no longer; they count as failed ones.
void Membership::give_up_prepared(Deadline now) {
    prepared_until_.reset();
    if (target_.empty() || is_prepared()) return;
    each_process([this, now](HostId host, SlotIndex place, const Process& process) {
        if (!process.prepared || process.held_at_start) return;
        Slot& slot = slot_at(host, place);
        if (++slot.failures >= kFailuresInARow) close_slot(slot, now);
    });
    abandon_prepared();
    reconsider(now);
}

void Membership::tick_running(Deadline now) {
    const auto is_over = [now](const std::optional<Deadline>& deadline) {
        return deadline && *deadline <= now;
    };
    if (is_over(warned_until_)) {
        if (!is_finishing_ || one_is_lost_) return pause(kHostsChange, now);
        warned_until_.reset();  // some are done, and nobody waits to start again
    }
    if (is_over(replaced_until_)) {
        replaced_until_.reset();
        abandon_prepared();
        if (is_draining()) notify();
    }
    if (is_over(call_until_)) change(now);
}

void Membership::tick(Deadline now) {
    if (phase_ == Phase::ended) return;
    for (const HostId id : hosts_.hosts()) {
        const Host& host = std::as_const(hosts_)[id];
        if (host.cool_until && *host.cool_until <= now) {
            hosts_[id].cool_until.reset();
            come(id);
        }
        for (std::uint32_t i = 0; i < host.slots.size(); ++i) {
            const auto until = opens_at(id, SlotIndex{i});
            if (!until || *until > now) continue;
            slot_at(id, SlotIndex{i}).closed_until.reset();
            if (phase_ == Phase::running) call_more(now);
            gather(now);
        }
    }
    if (prepared_until_ && *prepared_until_ <= now) give_up_prepared(now);
    if (phase_ == Phase::running) tick_running(now);
    if (phase_ == Phase::collecting) tick_collecting(now);
    look(now);
}

Deadline Membership::next_deadline() const {
    Deadline next = Deadline::max();
    if (phase_ == Phase::ended) return next;
    const auto consider = [&next](const std::optional<Deadline>& deadline) {
        if (deadline) next = std::min(next, *deadline);
    };
    for (const HostId id : hosts_.hosts()) {
        consider(hosts_[id].cool_until);
        for (std::uint32_t i = 0; i < hosts_[id].slots.size(); ++i)
            consider(opens_at(id, SlotIndex{i}));
    }
    consider(call_until_);
    consider(prepared_until_);
    if (phase_ == Phase::running) {
        consider(warned_until_);
        consider(replaced_until_);
    }
    if (phase_ == Phase::collecting) {
        consider(rejoin_until_);
        consider(refill_until_);
    }
    const bool waits = phase_ == Phase::waiting || phase_ == Phase::collecting;
    if (waits && waiting_since_ && !call_until_ && is_waited_for())
        next = std::min(next, *waiting_since_ + patience());
    return next;
}

void Membership::end(End::Cause cause, std::string why, std::optional<HostId> host) {
    phase_ = Phase::ended;
    orders_.ended = End{cause, std::move(why), host};
}

void Membership::end_too_few() {
    end(End::Cause::too_few,
        fmt::format("{} slots are there, and {} are needed", slots_ready(), slots_needed()));
}

}  // namespace dtrun
