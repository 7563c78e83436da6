#include "rendezvous/exchange/rank_rounds.h"

#include <algorithm>
#include <functional>

namespace dtrun {

RankRounds::Name RankRounds::hash_of(std::string_view name) {
    return std::hash<std::string_view>()(name);
}

std::uint64_t RankRounds::next(Rank rank, std::string_view name) const {
    const Name hash = hash_of(name);
    if (const auto ahead = ahead_.find({hash, rank}); ahead != ahead_.end()) return ahead->second;
    if (const auto newest = newest_.find(hash); newest != newest_.end()) return newest->second;
    const auto oldest = oldest_.find(hash);
    return oldest == oldest_.end() ? 0 : oldest->second;
}

void RankRounds::came(Rank rank, std::string_view name, std::uint64_t round) {
    const Name hash = hash_of(name);
    const auto known = oldest_.extract(hash);
    if (known)
        newest_.emplace(hash, known.mapped());
    else
        newest_.try_emplace(hash);
    ahead_[{hash, rank}] = round + 1;
    if (newest_.size() >= names_kept_) forget_oldest();
}

void RankRounds::take_back(Rank rank, std::string_view name, std::uint64_t round) {
    if (const auto at = ahead_.find({hash_of(name), rank}); at != ahead_.end())
        at->second = std::min(at->second, round);
}

void RankRounds::completed(std::string_view name, std::uint64_t round) {
    const Name hash = hash_of(name);
    std::uint64_t* const all = find(hash);
    if (all == nullptr) return;
    *all = std::max(*all, round + 1);
    for (auto at = ahead_.lower_bound({hash, Rank{}});
         at != ahead_.end() && at->first.first == hash;)
        at = at->second <= *all ? ahead_.erase(at) : std::next(at);
}

std::uint64_t* RankRounds::find(Name name) {
    for (Rounds* const rounds : {&newest_, &oldest_})
        if (const auto found = rounds->find(name); found != rounds->end()) return &found->second;
    return nullptr;
}

/// Names at which nobody has been since so many others go; these are put aside.
void RankRounds::forget_oldest() {
    std::erase_if(ahead_, [this](const auto& rank) { return oldest_.contains(rank.first.first); });
    oldest_ = std::exchange(newest_, {});
}

}  // namespace dtrun
