#include "worker/agent/rank_stalls.h"

#include "base/milliseconds.h"
#include "base/strings.h"

#include <algorithm>
#include <chrono>

namespace dtrun::agent {
namespace {

constexpr std::uint64_t kStallMsMax = 365ull * 24 * 3'600 * 1'000;
constexpr std::size_t kToldBytesMax = 1 << 20;  // in all: a frame has room for 16 times that

}  // namespace

Result<void> RankStalls::says(PeerId peer, const Stall& stall, Deadline now) {
    if (stall.what.empty() || stall.what.size() > Stall::kWhatBytesMax)
        return fail(Errc::invalid_input, "what a rank waits for has 1 to {} bytes",
                    Stall::kWhatBytesMax);
    const std::pair who(peer, escaped(stall.what, Stall::kWhatBytesMax));
    if (stall.over) {
        since_.erase(who);
        return {};
    }
    const auto of_peer = static_cast<std::size_t>(std::ranges::count_if(
        since_, [peer](const auto& entry) { return entry.first.first == peer; }));
    if (of_peer >= kOfPeerMax && !since_.contains(who))
        return fail(Errc::invalid_input, "a rank waits for more than {} things", kOfPeerMax);
    since_[who] = now - std::chrono::milliseconds(std::min(stall.waited_ms, kStallMsMax));
    return {};
}

void RankStalls::left(PeerId peer) {
    std::erase_if(since_, [peer](const auto& entry) { return entry.first.first == peer; });
}

void RankStalls::add_waits(std::vector<RankWait>& waits,
                           const std::function<std::optional<Rank>(PeerId)>& rank_of,
                           Deadline now) const {
    std::size_t bytes = 0;
    for (const auto& [who, since] : since_) {
        const auto rank = rank_of(who.first);
        if (!rank || *rank == kNoRank) continue;
        bytes += who.second.size();
        if (bytes > kToldBytesMax) return;
        RankWait& wait = waits.emplace_back();
        wait.rank = *rank;
        wait.what = who.second;
        wait.waited_ms = to_ms(now - since);
        wait.stalled = wait.told = true;
    }
}

}  // namespace dtrun::agent
