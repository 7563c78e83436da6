#include "rendezvous/exchange/fence_table.h"

#include <algorithm>
#include <iterator>

namespace dtrun {
namespace {

/// How many failed fences are remembered. A rank that arrives at a forgotten one waits for its
/// deadline.
constexpr std::size_t kFailuresMax = 4'096;
/// Limits of open fences; a program that exceeds them has a bug.
constexpr std::size_t kOpenMax = 65'536;
constexpr std::size_t kOpenBytesMax = 1u << 30;

Fence sum_of(std::map<PeerId, Fence> parts) {
    Fence sum = std::move(parts.begin()->second);
    for (auto part = std::next(parts.begin()); part != parts.end(); ++part) {
        sum.ranks += part->second.ranks;
        std::ranges::move(part->second.entries, std::back_inserter(sum.entries));
    }
    return sum;
}

}  // namespace

std::size_t entry_bytes(const std::vector<FenceEntry>& entries) {
    constexpr std::size_t kAround = 32;
    std::size_t bytes = 0;
    for (const FenceEntry& entry : entries) bytes += entry.bytes.size() + kAround;
    return bytes;
}

Result<void> make_own(Fence& fence, Rank rank) {
    if (rank == kNoRank) return fail(Errc::invalid_input, "only ranks come to fences");
    if (fence.ranks != 1 || fence.entries.size() > 1)
        return fail(Errc::invalid_input, "a rank comes to a fence for itself only");
    for (FenceEntry& entry : fence.entries) entry.rank = rank;
    return {};
}

void FenceTable::begin(std::uint64_t generation, std::uint32_t ranks) {
    *this = FenceTable();
    generation_ = generation;
    ranks_ = ranks;
}

Fenced FenceTable::failed(const Key& key, std::string why) const {
    return {generation_, key.first, key.second, false, std::move(why), {}};
}

FenceTable::Arrival FenceTable::arrive(PeerId peer, Fence fence) {
    const Key key{fence.name, fence.round};
    if (all_failed_) return {Arrival::Kind::failed, {}, failed(key, *all_failed_)};
    if (const auto known = failed_.find(key); known != failed_.end())
        return {Arrival::Kind::failed, {}, failed(key, known->second)};

    const std::size_t bytes = entry_bytes(fence.entries);
    if (open_.size() >= kOpenMax || open_bytes_ + bytes > kOpenBytesMax)
        return {Arrival::Kind::too_much, {}, failed(key, "too many fences are open at once")};
    Open& open = open_[key];
    const std::uint32_t room = open.passed ? 0 : ranks_ - open.ranks;
    if (fence.ranks == 0 || fence.ranks > room || fence.entries.size() > fence.ranks ||
        open.parts.contains(peer)) {
        if (open.ranks == 0) open_.erase(key);
        return {Arrival::Kind::twice, {}, {}};
    }
    open.ranks += fence.ranks;
    open.bytes += bytes;
    open_bytes_ += bytes;
    open.parts.emplace(peer, std::move(fence));
    if (open.ranks < ranks_) return {};
    open.passed = true;
    open_bytes_ -= std::exchange(open.bytes, 0);
    return {Arrival::Kind::complete, sum_of(std::exchange(open.parts, {})), {}};
}

std::vector<FenceTable::Key> FenceTable::retract(PeerId peer) {
    std::vector<Key> taken_back;
    for (auto at = open_.begin(); at != open_.end();) {
        Open& open = at->second;
        if (const auto part = open.parts.find(peer); part != open.parts.end()) {
            const std::size_t bytes = entry_bytes(part->second.entries);
            open.ranks -= part->second.ranks;
            open.bytes -= bytes;
            open_bytes_ -= bytes;
            open.parts.erase(part);
            taken_back.push_back(at->first);
        }
        at = open.ranks == 0 ? open_.erase(at) : std::next(at);
    }
    return taken_back;
}

std::vector<Fenced> FenceTable::end(const Fenced& fenced) {
    if (fenced.name.empty()) {
        if (!all_failed_) all_failed_ = fenced.why;
        std::vector<Fenced> ended;
        for (const auto& [key, open] : open_) ended.push_back(failed(key, fenced.why));
        open_.clear();
        open_bytes_ = 0;
        return ended;
    }
    const Key key{fenced.name, fenced.round};
    if (!fenced.complete) remember_failure(key, fenced.why);
    const auto open = open_.find(key);
    if (open == open_.end()) return {};
    open_bytes_ -= open->second.bytes;
    open_.erase(open);
    return {fenced};
}

std::vector<FenceTable::Key> FenceTable::waited() {
    std::vector<Key> waited;
    for (auto& [key, open] : open_) {
        if (open.passed || key.first.starts_with(Fence::kOfAgents)) continue;
        if (std::exchange(open.waits, true)) waited.push_back(key);
    }
    return waited;
}

void FenceTable::remember_failure(const Key& key, const std::string& why) {
    if (!failed_.emplace(key, why).second) return;
    failed_order_.push_back(key);
    if (failed_order_.size() <= kFailuresMax) return;
    failed_.erase(failed_order_.front());
    forgotten_ = std::move(failed_order_.front());
    failed_order_.pop_front();
}

}  // namespace dtrun
