// Ends of processes of a job's generations: what each means, and whose fault it is.

#include "rendezvous/job/membership.h"

#include <algorithm>

namespace dtrun {

Membership::Meaning Membership::rank_ended(HostId id, SlotIndex place, const RankEnd& how,
                                           Deadline now) {
    if (phase_ == Phase::ended || phase_ == Phase::pausing || phase_ == Phase::waiting)
        return Meaning::nothing;
    Slot& slot = slot_at(id, place);
    if (how.was_none && !slot.process.ending) return Meaning::nothing;
    const Process process = std::exchange(slot.process, {});
    if (process.lives) {
        const bool own_fault = how.own_fault && now - began_ < kStable;
        const bool has_worked = now - slot.ranked_since >= kStable;
        return ranked_ended(process, {id, place, own_fault, has_worked, how.why}, how, now);
    }
    if (process.prepared) {
        if (++slot.failures >= kFailuresInARow) close_slot(slot, now);
        abandon_prepared();
    } else if (!process.ending || phase_ == Phase::committing) {
        return Meaning::nothing;
    }
    if (phase_ == Phase::running) {
        call_more(now);
    } else {
        phase_ = Phase::collecting;
        gather(now);
    }
    return Meaning::nothing;
}

void Membership::host_finished(HostId host, Deadline now) {
    for (const SlotIndex place : living(host)) rank_ended(host, place, {.well = true}, now);
}

/// A process with a rank has ended.
Membership::Meaning Membership::ranked_ended(const Process& process, const Failure& failure,
                                             const RankEnd& how, Deadline now) {
    if (warned_ && (!how.well || policy_.warn_signal != 0)) {
        // It has saved what it has, if it could.
        one_is_lost_ = true;
        if (!any_lives())
            nobody_lives(now);
        else if (!warned_until_)
            lose("hosts have changed", now);
        return Meaning::saved;
    }
    if (how.well) {
        const bool would_meet = process.supports_rejoin || process.early;
        ended_well(!would_meet || process.rendezvoused || process.wants_rank, now);
        return Meaning::well;
    }
    one_is_lost_ = true;
    if (!how.is_ours) count_failure(failure.why);
    if (phase_ == Phase::ended) return Meaning::lost;
    // The others of a job whose hosts cannot be lost are not ended only to learn that nobody else is to blame.
    if (!policy_.elastic && !may_fail()) {
        const auto cause = how.is_ours ? End::Cause::host_lost : End::Cause::rank_failed;
        end(cause, failure.why, failure.host);
        return Meaning::lost;
    }
    if (!failure_ && !how.is_ours) failure_ = failure;
    lose(failure.why, now);
    return Meaning::lost;
}

/// Nobody joins those that are left: what was prepared for that ends.
/// \param was_met  the others of its world do not wait for it
void Membership::ended_well(bool was_met, Deadline now) {
    is_finishing_ = one_is_done_ = true;
    call_until_.reset();
    replaced_until_.reset();
    const bool were_told = notified_;  // and will ask for their places
    abandon_prepared();
    notified_ = were_told;
    if (!any_lives()) return nobody_lives(now);
    if (!was_met) {
        asked_ = true;
        return lose("a rank has ended before it had met the others", now);
    }
    if (phase_ == Phase::running) return;
    phase_ = Phase::collecting;
    gather(now);
}

/// The last process with a rank has ended.
void Membership::nobody_lives(Deadline now) {
    if (!one_is_lost_) return end(End::Cause::finished, "all ranks have ended well");
    pause("no rank lives on", now);
}

/// Some of the ranks are gone.
void Membership::lose(const std::string& why, Deadline now) {
    if (is_keepable()) return collect(now);
    pause(why, now);
}

void Membership::count_failure(const std::string& why) {
    ++failures_;
    if (policy_.failures_max && failures_ > *policy_.failures_max) end(End::Cause::failures, why);
}

/// Judges the first failure of a world in which no host was lost.
void Membership::blame(const Failure& failure, Deadline now) {
    if (policy_.rank_failures_max && ++rank_failures_ > *policy_.rank_failures_max)
        return end(End::Cause::too_many_failures, failure.why, failure.host);
    if (!policy_.elastic) return;
    const Unit where = unit_of(failure.host, failure.place);
    if (own_faults_ == 0) same_unit_ = where;
    if (same_unit_ != where) same_unit_.reset();
    own_faults_ = failure.own_fault ? own_faults_ + 1 : 0;
    if (!failure.own_fault) at_fault_.clear();
    if (own_faults_ >= kFailuresInARow && !same_unit_)
        return end(End::Cause::rank_failed, failure.why, failure.host);
    if (!leave_alone(failure, now) || own_faults_ < kFailuresInARow) return;
    own_faults_ = 0;
    ++at_fault_[where];
    const bool too_many = at_fault_.size() >= kFailuresInARow;
    if (too_many || !has_others() || plan(With::newcomers).size() < policy_.ranks_min)
        end(End::Cause::rank_failed, failure.why, failure.host);
}

/// Leaves the slot alone for a while if it has failed so often in a row, or its host at once, with --refill never.
/// \return whether that was the last of so many failures
bool Membership::leave_alone(const Failure& failure, Deadline now) {
    Host& host = hosts_[failure.host];
    Slot& slot = slot_at(failure.host, failure.place);
    const bool is_host = policy_.refill == Refill::never;
    if (failure.has_worked && is_host) host.failures = host.rank_failures = 0;
    if (failure.has_worked) slot.failures = slot.closings = 0;
    std::uint32_t& failures = is_host ? host.rank_failures : slot.failures;
    const bool is_last = ++failures >= kFailuresInARow || own_faults_ >= kFailuresInARow;
    if (is_last) failures = 0;
    if (is_host) {
        const Deadline until = cooled(host.failures++, now);
        for (Slot& each : host.slots) each.closed_until = until;
    } else if (is_last) {
        close_slot(slot, now);
    }
    return is_last;
}

/// The world has lasted: what failed before it says nothing of the program, nor of the slots in which it has run.
void Membership::forgive() {
    own_faults_ = 0;
    at_fault_.clear();
    for (const RankAssignment& assigned : world_) {
        hosts_[assigned.host].rank_failures = 0;
        slot_at(assigned.host, assigned.rank.place).failures = 0;
    }
}

/// Whether there are slots for a world without those at fault, which cool down and come back.
bool Membership::has_others() const {
    std::size_t others = 0;
    for (const HostId id : hosts_.hosts())
        for (std::uint32_t i = 0; i < hosts_[id].slots.size(); ++i)
            others += hosts_[id].state == State::ready && hosts_[id].slots[i].is_open() &&
                      !at_fault_.contains(unit_of(id, SlotIndex{i}));
    return others >= policy_.ranks_min;
}

}  // namespace dtrun
