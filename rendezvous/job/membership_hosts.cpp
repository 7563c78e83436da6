// Hosts of a job's generations: they come, fail, are lost, and go.

#include "rendezvous/job/membership.h"

#include <algorithm>

namespace dtrun {

void Membership::host_listed(HostId id, std::uint32_t slots, Deadline now, std::uint64_t order) {
    while (!hosts_.has(id)) hosts_.emplace_back();
    Host& host = hosts_[id];
    if (policy_.hosts_enter && host.state == State::absent) {
        // Another host, which was given the number of one that has gone. Ranks of the world may still name its slots.
        const std::size_t had = host.slots.size();
        host = {};
        host.slots.resize(had);
        std::erase_if(at_fault_, [id](const auto& unit) { return unit.first.first == id; });
        if (same_unit_ && same_unit_->first == id) same_unit_.reset();
    }
    host.order = order;
    if (host.slots.size() < slots) host.slots.resize(slots);
    for (std::uint32_t i = 0; i < host.slots.size(); ++i) host.slots[i].listed = i < slots;
    if (host.state == State::absent) come(id);
    if (phase_ == Phase::waiting && !waiting_since_) waiting_since_ = now;
    reconsider(now);
}

void Membership::host_delisted(HostId id, Deadline now) {
    if (phase_ == Phase::ended) return;
    Host& host = hosts_[id];
    for (Slot& slot : host.slots) slot.listed = false;
    if (host.state == State::cooling) {
        host.state = State::absent;
        host.cool_until.reset();
    }
    const bool has_ranks = !living(id).empty() || host.is_ending_ranks;
    if (host.state == State::ready && !has_ranks) release(id);
    reconsider(now);
}

/// The list has changed, or a host of it has.
void Membership::reconsider(Deadline now) {
    const auto is_gone = [&hosts = std::as_const(hosts_)](const RankAssignment& assigned) {
        const Host& host = hosts[assigned.host];
        return host.state != State::ready ||
               !host.slots[std::to_underlying(assigned.rank.place)].listed;
    };
    const bool is_stale = std::ranges::any_of(target_, is_gone);
    if (is_stale) abandon_prepared();
    switch (phase_) {
        case Phase::waiting:
            return look(now);
        case Phase::running:
            return is_draining() && !notified_ ? change(now) : call_more(now);
        case Phase::committing:
            if (!is_stale) return;
            phase_ = Phase::collecting;
            [[fallthrough]];
        case Phase::collecting:
            return gather(now);
        case Phase::pausing:
        case Phase::ended:
            return;
    }
}

void Membership::come(HostId id) {
    hosts_[id].state = State::coming;
    orders_.connect.push_back(id);
}

/// Everything of the job ends there, also what has been prepared.
void Membership::release(HostId id) {
    Host& host = hosts_[id];
    host.state = State::leaving;
    host.is_ending_ranks = false;
    for (Slot& slot : host.slots) slot.process = {};
    orders_.release.push_back(id);
}

/// Hosts that are to go, and have no ranks any more.
void Membership::release_delisted() {
    for (const HostId id : hosts_.hosts()) {
        const Host& host = std::as_const(hosts_)[id];
        if (host.state == State::ready && !host.is_listed() && living(id).empty()) release(id);
    }
}

void Membership::host_left(HostId id, Deadline now) {
    Host& host = hosts_[id];
    if (host.state != State::leaving) return;
    host.state = State::absent;
    if (!host.is_listed() || phase_ == Phase::ended) return;
    come(id);
    reconsider(now);
}

void Membership::host_ready(HostId id, Deadline now) {
    Host& host = hosts_[id];
    host.state = State::ready;
    host.cool_until.reset();
    host.first_world = 0;
    for (Slot& slot : host.slots) slot.process = {};
    if (!host.is_listed()) release(id);
    reconsider(now);
}

void Membership::host_failed(HostId id, Deadline now) {
    Host& host = hosts_[id];
    if (host.state != State::coming) return;
    cool(host, now);
    const auto is_away = [&hosts = std::as_const(hosts_)](HostId each) {
        return hosts[each].state == State::cooling || hosts[each].state == State::absent;
    };
    if (generation_ == 0 && !policy_.hosts_may_come && std::ranges::all_of(hosts_.hosts(), is_away))
        return end(End::Cause::cannot_start, "no host can be used");
    if (phase_ == Phase::waiting) look(now);
}

void Membership::hosts_lost(std::span<const Loss> losses, Deadline now) {
    if (phase_ == Phase::ended) return;
    bool had_left = false, had_prepared = false, were_ready = false;
    const Loss* with_ranks = nullptr;  // the first that had any
    for (const Loss& loss : losses) {
        Host& host = hosts_[loss.host];
        if (host.state == State::leaving) {
            cool(host, now);  // what may be left there is ended before it is used again
            had_left = true;
        }
        if (host.state != State::ready) continue;
        were_ready = true;
        const bool had_ranks = !living(loss.host).empty();
        const bool was_ending_ranks = host.is_ending_ranks;
        had_prepared |=
            std::ranges::any_of(host.slots, [](const Slot& slot) { return slot.process.prepared; });
        cool(host, now);
        for (Slot& slot : host.slots) slot.process = {};
        if (!policy_.elastic && (had_ranks || was_ending_ranks))
            return end(End::Cause::host_lost, loss.why);
        if (had_ranks && with_ranks == nullptr) with_ranks = &loss;
        count_failure(loss.why);
        if (phase_ == Phase::ended) return;
    }
    if (with_ranks != nullptr) host_was_lost_ = one_is_lost_ = true;
    if (had_left) reconsider(now);
    if (!were_ready || phase_ == Phase::ended || phase_ == Phase::waiting) return;
    if (phase_ == Phase::pausing) return all_paused() ? settle(now) : void();
    if (with_ranks != nullptr) return lose(with_ranks->why, now);
    if (had_prepared) abandon_prepared();
    if (phase_ == Phase::running && !wants_change()) call_until_.reset();
    if (phase_ == Phase::running) return call_more(now);
    phase_ = Phase::collecting;
    gather(now);
}

/// A host that has worked for long starts anew. One that does not come back has not worked since it was lost.
void Membership::cool(Host& host, Deadline now) {
    if (host.first_world != 0 && now - host.ranked_since >= kStable) host.failures = 0;
    host.first_world = 0;
    host.state = host.is_listed() ? State::cooling : State::absent;
    host.is_ending_ranks = false;
    if (policy_.elastic && host.is_listed()) host.cool_until = cooled(host.failures++, now);
}

/// \param times  how often it has failed before
Deadline Membership::cooled(std::uint32_t times, Deadline now) {
    const long long longest = policy_.cooldown_max.count();
    const long long shortest = policy_.cooldown_min.count();
    std::uniform_int_distribution<long long> part(0, shortest);
    const auto doubled = std::min(longest, shortest << std::min(times, 16u));
    return now + std::chrono::milliseconds(std::min(longest, doubled + part(random_)));
}

void Membership::close_slot(Slot& slot, Deadline now) {
    slot.failures = 0;
    slot.closed_until = cooled(slot.closings++, now);
}

/// When a slot is used again; nothing: it is not left alone. With short cool-downs a slot where the program always fails
/// would be back each time before the others had failed, too, and the job would never end.
std::optional<Deadline> Membership::opens_at(HostId host, SlotIndex place) const {
    const std::optional<Deadline>& until = slot_at(host, place).closed_until;
    if (!until || waiting_since_) return until;
    const auto fault = at_fault_.find(unit_of(host, place));
    if (fault == at_fault_.end() || fault->second < 2) return until;
    return std::max(*until, began_ + kStable);
}

}  // namespace dtrun
