#include "worker/stores/rejoin_queue.h"

#include <algorithm>
#include <iterator>

namespace dtrun::stores {

/// One that was started as the same rank, and is being ended, may still run.
void RejoinQueue::started(SlotIndex place, std::uint64_t generation, Rank rank) {
    if (const auto before = started_as(generation, rank)) processes_[*before].born_as = kNoRank;
    Process& process = processes_[place] = {};
    process.born_in = process.generation = generation;
    process.born_as = rank;
}

std::optional<SlotIndex> RejoinQueue::started_as(std::uint64_t generation, Rank rank) const {
    for (const auto& [place, process] : processes_)
        if (process.born_in == generation && process.born_as == rank) return place;
    return std::nullopt;
}

void RejoinQueue::supports_rejoin(SlotIndex place) {
    const auto found = processes_.find(place);
    if (found == processes_.end() || std::exchange(found->second.supports_rejoin, true)) return;
    tell_({place, RejoinState::supports_rejoin});
}

void RejoinQueue::rendezvoused(SlotIndex place) {
    const auto found = processes_.find(place);
    if (found == processes_.end() || !std::exchange(found->second.forming, false)) return;
    tell_({place, RejoinState::rendezvoused});
}

bool RejoinQueue::is_early(SlotIndex place) const {
    const auto found = processes_.find(place);
    return found != processes_.end() && found->second.generation > generation_;
}

RejoinQueue::Ticket RejoinQueue::hold(SlotIndex place, Answer answer) {
    const Ticket ticket = owe(place, std::move(answer));
    tell_({place, RejoinState::held_at_start});
    return ticket;
}

RejoinQueue::Ticket RejoinQueue::ask(SlotIndex place, Answer answer) {
    const Ticket ticket = owe(place, std::move(answer));
    tell_({place, RejoinState::wants_rank});
    return ticket;
}

RejoinQueue::Ticket RejoinQueue::owe(SlotIndex place, Answer answer) {
    processes_.at(place).owed.emplace(++last_ticket_, std::move(answer));
    return last_ticket_;
}

bool RejoinQueue::waits(SlotIndex place) const {
    const auto found = processes_.find(place);
    return found != processes_.end() && !found->second.owed.empty();
}

void RejoinQueue::forget(Ticket ticket) {
    for (auto& [place, process] : processes_) process.owed.erase(ticket);
}

void RejoinQueue::begin(const Assign& world) {
    generation_ = world.generation;
    std::vector<std::pair<Answer, const RankSlot*>> answers;
    for (const RankSlot& rank : world.ranks) {
        const auto found = processes_.find(rank.place);
        if (found == processes_.end()) continue;
        Process& process = found->second;
        process.generation = world.generation;
        process.forming = true;
        for (auto& [ticket, answer] : std::exchange(process.owed, {}))
            answers.emplace_back(std::move(answer), &rank);
    }
    // Who is answered may ask again at once.
    for (const auto& [answer, rank] : answers) answer(*rank, world);
}

}  // namespace dtrun::stores
