#include "tests/simulation/ledger.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::simulation {

std::size_t Ledger::begin(const Store& store, const std::string& key, Operation operation) {
    auto& history = histories_[{store, key}];
    history.push_back(std::make_unique<Operation>(std::move(operation)));
    operations_.push_back(history.back().get());
    return operations_.size() - 1;
}

void Ledger::undone(std::size_t handle) {
    undone_.insert(operations_[handle]);
}

void Ledger::fence_ended(const std::string& job, std::uint64_t generation, const std::string& name,
                         std::uint64_t round, std::uint32_t rank, bool complete,
                         const std::map<std::uint32_t, std::string>& entries) {
    FenceEnd& end = fences_[{job, generation, name, round}];
    (complete ? end.complete : end.failed).insert(rank);
    const std::string which =
        fmt::format("fence {} {} of {} in generation {}", name, round, job, generation);
    if (!end.complete.empty() && !end.failed.empty())
        throw Contradiction(fmt::format("{} is complete for rank {} and has failed for rank {}",
                                        which, *end.complete.begin(), *end.failed.begin()));
    if (!complete) return;
    if (end.entries.empty()) end.entries = entries;
    if (end.entries != entries) throw Contradiction(which + " brought two ranks different bytes");
}

void Ledger::placed(const std::string& job, std::uint64_t generation, std::uint32_t rank,
                    std::uint32_t world_size, const std::string& member) {
    Generation& all = generations_[{job, generation}];
    const std::string which = fmt::format("{} in generation {} of {}", member, generation, job);
    if (all.world_size == 0) all.world_size = world_size;
    if (all.world_size != world_size || rank >= world_size)
        throw Contradiction(fmt::format("{} is rank {} of {}, others were told {}", which, rank,
                                        world_size, all.world_size));
    const auto [place, is_new] = all.ranks.emplace(rank, member);
    if (!is_new && place->second != member)
        throw Contradiction(fmt::format("{} is rank {}, and so is {}", which, rank, place->second));
    std::uint64_t& last = last_generation_[member];
    if (generation <= last)
        throw Contradiction(fmt::format("{} was in generation {} before", which, last));
    last = generation;
    check_order(job, generation);
}

/// Those who were in the generation before have kept their order.
void Ledger::check_order(const std::string& job, std::uint64_t generation) const {
    const auto before = generations_.find({job, generation - 1});
    if (before == generations_.end()) return;
    std::map<std::string, std::uint32_t> old;
    for (const auto& [rank, member] : before->second.ranks) old[member] = rank;
    std::optional<std::uint32_t> last;
    for (const auto& [rank, member] : generations_.at({job, generation}).ranks) {
        const auto survivor = old.find(member);
        if (survivor == old.end()) continue;
        if (last && survivor->second < *last)
            throw Contradiction(fmt::format(
                "generation {} of {} changes the order of its survivors", generation, job));
        last = survivor->second;
    }
}

void Ledger::job_ended(const std::string& job, const std::string& member, const std::string& why) {
    const auto [told, first] = ended_.emplace(job, std::pair(why, member));
    if (!first && told->second.first != why)
        throw Contradiction(fmt::format("{} has ended for {} because '{}', for {} because '{}'",
                                        job, told->second.second, told->second.first, member, why));
}

std::vector<std::string> Ledger::keys_of(const Store& store) const {
    std::vector<std::string> keys;
    for (const auto& [key, history] : histories_)
        if (key.first == store) keys.push_back(key.second);
    return keys;
}

std::size_t Ledger::overlap() const {
    std::size_t most = 0;
    for (const auto& [key, history] : histories_)
        for (const auto& one : history) {
            const auto meets = [&](const std::unique_ptr<Operation>& other) {
                return other->invoked <= one->invoked && other->returned &&
                       *other->returned >= one->invoked;
            };
            most = std::max(most, static_cast<std::size_t>(std::ranges::count_if(history, meets)));
        }
    return most;
}

void Ledger::check() const {
    for (const auto& [key, history] : histories_) {
        std::vector<Operation> operations;
        for (const auto& operation : history)
            if (!undone_.contains(operation.get())) operations.push_back(*operation);
        if (is_linearizable(operations)) continue;
        std::ranges::sort(operations, {}, &Operation::invoked);
        std::string text =
            fmt::format("what happened to key '{}' of {} in generation {} cannot have:\n",
                        key.second, key.first.first, key.first.second);
        for (const Operation& operation : operations) text += "  " + describe(operation) + "\n";
        throw Contradiction(text);
    }
}

}  // namespace dtrun::simulation
