#include "rendezvous/elastic/generations.h"

#include <fmt/format.h>
#include <algorithm>
#include <cassert>

namespace dtrun {

Generations::Generations(GenerationLimits limits)
    : limits_(std::move(limits)), random_(limits_.seed) {
    assert(limits_.ranks_min >= 1 && limits_.ranks_start >= limits_.ranks_min);
}

bool Generations::has_seats(HostId host) const {
    return std::ranges::find(world_, host, &Seat::host) != world_.end();
}

std::uint32_t Generations::slots_needed() const {
    return generation_ == 0 ? limits_.ranks_start : limits_.ranks_min;
}

std::uint32_t Generations::slots_ready() const {
    std::uint32_t ready = 0;
    for (const Host& host : hosts_)
        if (host.state == State::ready)
            ready += static_cast<std::uint32_t>(std::ranges::count_if(
                host.slots, [](const Slot& slot) { return !slot.closed_until; }));
    return ready;
}

std::vector<std::pair<HostId, Deadline>> Generations::cooling() const {
    std::vector<std::pair<HostId, Deadline>> cooling;
    for (const HostId host : hosts_.hosts())
        if (hosts_[host].cool_until) cooling.emplace_back(host, *hosts_[host].cool_until);
    return cooling;
}

bool Generations::is_coming() const {
    return std::ranges::any_of(hosts_,
                               [](const Host& host) { return host.state == State::coming; });
}

/// The world that could begin now.
std::vector<Seat> Generations::plan() const {
    std::vector<std::pair<std::pair<std::uint64_t, HostId>, HostOffer>> offers;  // by age
    for (const HostId id : hosts_.hosts()) {
        const Host& host = hosts_[id];
        if (host.state != State::ready) continue;
        HostOffer offer{.host = id};
        for (std::uint32_t slot = 0; slot < host.slots.size(); ++slot)
            if (!host.slots[slot].closed_until) offer.vacant.push_back(SlotIndex{slot});
        const std::uint64_t age = host.seated == 0 ? UINT64_MAX : host.seated;
        offers.emplace_back(std::pair(age, id), std::move(offer));
    }
    std::ranges::sort(offers, {}, [](const auto& offer) { return offer.first; });
    std::vector<HostOffer> hosts;
    for (auto& [age, offer] : offers) hosts.push_back(std::move(offer));
    if (limits_.fixed.empty()) return plan_world(std::move(hosts), limits_.sizes);
    return slots_ready() >= limits_.fixed.size() ? limits_.fixed : std::vector<Seat>{};
}

void Generations::host_listed(HostId host, std::uint32_t slots, Deadline now) {
    while (!hosts_.has(host)) hosts_.emplace_back();
    hosts_[host].state = State::coming;
    hosts_[host].slots.resize(slots);
    if (phase_ == Phase::waiting && !waiting_since_) waiting_since_ = now;
}

void Generations::host_ready(HostId id, Deadline now) {
    Host& host = hosts_[id];
    host.state = State::ready;
    host.cool_until.reset();
    host.seated = 0;
    host.live = 0;
    if (phase_ == Phase::waiting) return look(now);
    if (phase_ == Phase::running) call_more(now);
}

/// More slots are there than before: a larger world follows soon, with all that come by then.
void Generations::call_more(Deadline now) {
    if (call_until_ || is_finishing_ || plan().size() <= world_.size()) return;
    call_until_ = now + limits_.last_call;
}

void Generations::host_failed(HostId id, Deadline now) {
    Host& host = hosts_[id];
    if (host.state != State::coming) return;
    cool(host, now);
    const auto is_away = [](const Host& each) { return each.state == State::away; };
    if (generation_ == 0 && std::ranges::all_of(hosts_, is_away))
        return end(End::Cause::cannot_start, "no host can be used");
    if (phase_ == Phase::waiting) look(now);
}

void Generations::host_lost(HostId id, const std::string& why, Deadline now) {
    Host& host = hosts_[id];
    if (phase_ == Phase::ended || host.state != State::ready) return;
    const bool runs = phase_ == Phase::running && host.live > 0;
    cool(host, now);
    if (!limits_.elastic) return;
    if (host.live > 0) host_was_lost_ = true;
    count_failure(why);
    if (phase_ == Phase::ended) return;
    if (runs) return pause(why, now);
    if (phase_ == Phase::pausing && all_paused()) return settle(now);
    if (phase_ == Phase::running && plan().size() <= world_.size()) call_until_.reset();
}

void Generations::cool(Host& host, Deadline now) {
    host.state = State::away;
    host.is_ending_ranks = false;
    if (limits_.elastic) host.cool_until = cooled(host.failures++, now);
}

/// \param times  how often it has failed before
Deadline Generations::cooled(std::uint32_t times, Deadline now) {
    const long long longest = limits_.cooldown_max.count();
    const long long shortest = limits_.cooldown_min.count();
    std::uniform_int_distribution<long long> part(0, shortest);
    const auto doubled = std::min(longest, shortest << std::min(times, 16u));
    return now + std::chrono::milliseconds(std::min(longest, doubled + part(random_)));
}

void Generations::count_failure(const std::string& why) {
    ++failures_;
    if (limits_.failures_max && failures_ > *limits_.failures_max) end(End::Cause::failures, why);
}

void Generations::rank_failed(HostId host, SlotIndex place, bool own_fault, const std::string& why,
                              Deadline now) {
    if (phase_ != Phase::running) return;
    failure_ = Failure{host, place, own_fault && now - began_ < kStable, why};
    count_failure(why);
    if (phase_ != Phase::ended) pause(why, now);
}

void Generations::rank_finished(HostId host) {
    if (phase_ != Phase::running) return;
    --hosts_[host].live;
    is_finishing_ = true;
    call_until_.reset();
}

void Generations::restart(const std::string& why, Deadline now) {
    if (phase_ == Phase::running) pause(why, now);
}

void Generations::pause(std::string why, Deadline now) {
    phase_ = Phase::pausing;
    call_until_.reset();
    if (now - began_ >= kStable)
        for (Host& host : hosts_) {
            if (host.state != State::ready || host.live == 0) continue;
            host.failures = 0;
            for (Slot& slot : host.slots) slot.failures = 0;
        }
    for (Host& host : hosts_) host.is_ending_ranks = host.state == State::ready;
    orders_.pause = Pausing{generation_ + 1, std::move(why)};
    if (all_paused()) settle(now);
}

void Generations::host_paused(HostId host, std::uint64_t generation, Deadline now) {
    if (phase_ != Phase::pausing || generation != generation_ + 1) return;
    hosts_[host].is_ending_ranks = false;
    if (all_paused()) settle(now);
}

bool Generations::all_paused() const {
    return std::ranges::none_of(hosts_, &Host::is_ending_ranks);
}

/// No rank runs, and every host that was lost with them is known: says who is to blame.
void Generations::settle(Deadline now) {
    phase_ = Phase::waiting;
    waiting_since_ = now;
    const auto failure = std::exchange(failure_, std::nullopt);
    const bool because_of_host = std::exchange(host_was_lost_, false);
    if (limits_.elastic && failure && !because_of_host) {
        const std::pair where(failure->host, failure->place);
        Slot& slot = hosts_[failure->host].slots[std::to_underlying(failure->place)];
        if (own_faults_ == 0) same_slot_ = where;
        if (same_slot_ != where) same_slot_.reset();
        own_faults_ = failure->own_fault ? own_faults_ + 1 : 0;
        if (own_faults_ >= kFailuresInARow && !same_slot_)
            return end(End::Cause::rank_failed, failure->why);
        if (++slot.failures >= kFailuresInARow) {
            own_faults_ = 0;
            close_slot(slot, now);
            if (failure->own_fault && plan().size() < limits_.ranks_min)
                return end(End::Cause::rank_failed, failure->why);
        }
    }
    if (limits_.resets_max && resets_ >= *limits_.resets_max)
        return end(End::Cause::resets,
                   fmt::format("Horovod was shutdown because number of resets during elastic job "
                               "exceeded limit: {}",
                               *limits_.resets_max));
    std::vector<Seat> world = plan();
    if (world.size() >= limits_.ranks_min) return begin(std::move(world), now);
    look(now);
}

void Generations::close_slot(Slot& slot, Deadline now) {
    slot.failures = 0;
    slot.closed_until = cooled(slot.closings++, now);
}

/// Without a timeout the hosts of the first world still have the time that connecting takes.
bool Generations::waits_for_first() const {
    return generation_ == 0 && limits_.timeout.count() == 0 && is_coming();
}

/// Begins a world if there is one, and nobody is worth waiting for.
void Generations::look(Deadline now) {
    if (phase_ != Phase::waiting) return;
    if (!waiting_since_) waiting_since_ = now;
    std::vector<Seat> world = plan();
    if (world.size() < slots_needed()) {
        call_until_.reset();
        if (limits_.elastic && now >= *waiting_since_ + limits_.timeout && !waits_for_first())
            end(End::Cause::too_few, fmt::format("{} slots are there, and {} are needed",
                                                 slots_ready(), slots_needed()));
        return;
    }
    if (!call_until_) call_until_ = now + limits_.last_call;
    const bool is_largest = world.size() >= limits_.sizes.max;
    if (is_largest || !is_coming() || now >= *call_until_) begin(std::move(world), now);
}

void Generations::begin(std::vector<Seat> world, Deadline now) {
    if (generation_ > 0) ++resets_;
    ++generation_;
    phase_ = Phase::running;
    began_ = now;
    is_finishing_ = false;
    waiting_since_.reset();
    call_until_.reset();
    for (Host& host : hosts_) host.live = 0;
    for (Seat& seat : world) {
        Host& host = hosts_[seat.host];
        ++host.live;
        seat.fresh = true;
        if (host.seated == 0) host.seated = generation_;
    }
    world_ = std::move(world);
    orders_.begin = world_;
}

void Generations::tick(Deadline now) {
    if (phase_ == Phase::ended) return;
    for (const HostId id : hosts_.hosts()) {
        Host& host = hosts_[id];
        if (host.cool_until && *host.cool_until <= now) {
            host.cool_until.reset();
            host.state = State::coming;
            orders_.connect.push_back(id);
        }
        for (Slot& slot : host.slots) {
            if (!slot.closed_until || *slot.closed_until > now) continue;
            slot.closed_until.reset();
            if (phase_ == Phase::running) call_more(now);
        }
    }
    if (phase_ == Phase::running && call_until_ && *call_until_ <= now) {
        call_until_.reset();
        if (plan().size() > world_.size()) pause("more slots are there", now);
    }
    look(now);
}

Deadline Generations::next_deadline() const {
    Deadline next = Deadline::max();
    if (phase_ == Phase::ended) return next;
    for (const Host& host : hosts_) {
        if (host.cool_until) next = std::min(next, *host.cool_until);
        for (const Slot& slot : host.slots)
            if (slot.closed_until) next = std::min(next, *slot.closed_until);
    }
    if (call_until_) next = std::min(next, *call_until_);
    if (phase_ == Phase::waiting && waiting_since_ && !call_until_ && limits_.elastic)
        next = std::min(next, *waiting_since_ + limits_.timeout);
    return next;
}

void Generations::end(End::Cause cause, std::string why) {
    phase_ = Phase::ended;
    orders_.ended = End{cause, std::move(why)};
}

}  // namespace dtrun
