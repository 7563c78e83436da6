#include "tests/simulation/ledger.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::simulation {

std::size_t Ledger::begin(const std::string& store, const std::string& key, Operation operation) {
    auto& history = histories_[{store, key}];
    history.push_back(std::make_unique<Operation>(std::move(operation)));
    operations_.push_back(history.back().get());
    return operations_.size() - 1;
}

void Ledger::undone(std::size_t handle) {
    undone_.insert(operations_[handle]);
}

void Ledger::fence_ended(const std::string& group, std::uint64_t round, std::uint32_t rank,
                         bool complete, const std::map<std::uint32_t, std::string>& entries) {
    FenceEnd& end = fences_[{group, round}];
    (complete ? end.complete : end.failed).insert(rank);
    const std::string which = fmt::format("fence {} of {}", round, group);
    if (!end.complete.empty() && !end.failed.empty())
        throw Contradiction(fmt::format("{} is complete for rank {} and has failed for rank {}",
                                        which, *end.complete.begin(), *end.failed.begin()));
    if (!complete) return;
    if (end.entries.empty()) end.entries = entries;
    if (end.entries != entries) throw Contradiction(which + " brought two ranks different bytes");
}

void Ledger::placed(const Place& place) {
    Generation& all = membership_[place.generation];
    const std::string which =
        fmt::format("{} in generation {} ({})", place.member, place.number, place.generation);
    if (all.world_size == 0) all = {place.number, place.world_size, {}};
    if (all.number != place.number)
        throw Contradiction(fmt::format("{}: others were told {}", which, all.number));
    if (all.world_size != place.world_size || place.rank >= place.world_size)
        throw Contradiction(fmt::format("{} is rank {} of {}, others were told {}", which,
                                        place.rank, place.world_size, all.world_size));
    std::optional<Place> former;
    if (const auto last = last_places_.find(place.member); last != last_places_.end())
        former = last->second;
    if (former && place.number <= former->number)
        throw Contradiction(fmt::format("{} was in generation {} before", which, former->number));
    const auto [seat, is_new] = all.ranks.emplace(place.rank, Seat{place.member, former});
    if (!is_new)
        throw Contradiction(
            fmt::format("{} is rank {}, and so is {}", which, place.rank, seat->second.member));
    last_places_[place.member] = place;
    check_order(place.generation);
}

/// Those who were in the same generation before have kept their order.
void Ledger::check_order(const std::string& generation) const {
    std::map<std::string, std::uint32_t> last;
    for (const auto& [rank, seat] : membership_.at(generation).ranks) {
        if (!seat.former) continue;
        const auto [before, is_first] = last.emplace(seat.former->generation, seat.former->rank);
        if (!is_first && seat.former->rank < before->second)
            throw Contradiction(
                fmt::format("generation {} changes the order of its survivors", generation));
        before->second = seat.former->rank;
    }
}

void Ledger::job_ended(const std::string& generation, const std::string& member,
                       const std::string& why) {
    ++ends_;
    const auto [told, first] = ended_.emplace(generation, std::pair(why, member));
    if (!first && told->second.first != why)
        throw Contradiction(
            fmt::format("the job of generation {} has ended for {} because '{}', for {} because "
                        "'{}'",
                        generation, told->second.second, told->second.first, member, why));
}

std::size_t Ledger::failed_fences() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        fences_, [](const auto& fence) { return !fence.second.failed.empty(); }));
}

std::vector<std::string> Ledger::keys_of(const std::string& store) const {
    std::vector<std::string> keys;
    for (const auto& [key, history] : histories_)
        if (key.first == store) keys.push_back(key.second);
    return keys;
}

std::size_t Ledger::overlap() const {
    std::size_t most = 0;
    for (const auto& [key, history] : histories_) {
        std::vector<std::pair<Deadline, int>> changes;  // by so many at a time
        for (const auto& one : history) {
            if (!one->returned) continue;
            changes.emplace_back(one->invoked, 1);
            changes.emplace_back(*one->returned, -1);
        }
        std::ranges::sort(changes);
        int at_once = 0;
        for (const auto& [when, by] : changes)
            most = std::max(most, static_cast<std::size_t>(std::max(0, at_once += by)));
    }
    return most;
}

void Ledger::check() const {
    for (const auto& [key, history] : histories_) {
        std::vector<Operation> operations;
        for (const auto& operation : history)
            if (!undone_.contains(operation.get())) operations.push_back(*operation);
        if (is_linearizable(operations)) continue;
        std::string text =
            fmt::format("what happened to key '{}' of {} cannot have:\n", key.second, key.first);
        for (const auto& operation : history)
            text += fmt::format("  {}{}\n", describe(*operation),
                                undone_.contains(operation.get()) ? ", refused" : "");
        throw Contradiction(text);
    }
}

}  // namespace dtrun::simulation
