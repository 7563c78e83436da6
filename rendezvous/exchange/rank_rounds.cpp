#include "rendezvous/exchange/rank_rounds.h"

#include <algorithm>

namespace dtrun {
namespace {

constexpr std::size_t kNamesMax = 262'144;
constexpr std::size_t kNameBytesMax = 64u << 20;

}  // namespace

std::uint64_t RankRounds::next(Rank rank, const std::string& name) const {
    const auto found = names_.find(name);
    if (found == names_.end()) return 0;
    const auto ahead = found->second.ahead.find(rank);
    return ahead == found->second.ahead.end() ? found->second.all : ahead->second;
}

void RankRounds::came(Rank rank, const std::string& name, std::uint64_t round) {
    const auto [at, is_new] = names_.try_emplace(name);
    if (is_new) bytes_ += name.size();
    Rounds& rounds = at->second;
    rounds.ahead[rank] = round + 1;
    order_.erase(rounds.number);
    rounds.number = ++arrivals_;
    order_[rounds.number] = name;
    while (names_.size() > kNamesMax || bytes_ > kNameBytesMax) forget_oldest();
}

void RankRounds::take_back(Rank rank, const std::string& name, std::uint64_t round) {
    const auto found = names_.find(name);
    if (found == names_.end()) return;
    auto& ahead = found->second.ahead;
    if (const auto at = ahead.find(rank); at != ahead.end())
        at->second = std::min(at->second, round);
}

void RankRounds::completed(const std::string& name, std::uint64_t round) {
    const auto found = names_.find(name);
    if (found == names_.end()) return;
    Rounds& rounds = found->second;
    rounds.all = std::max(rounds.all, round + 1);
    std::erase_if(rounds.ahead, [&](const auto& rank) { return rank.second <= rounds.all; });
}

void RankRounds::forget_oldest() {
    const auto oldest = order_.begin();
    bytes_ -= oldest->second.size();
    names_.erase(oldest->second);
    order_.erase(oldest);
}

}  // namespace dtrun
