#include "worker/agent/hang_detector.h"

#include <algorithm>

namespace dtrun::agent {
namespace {

constexpr std::uint64_t kLimitMsMax = 10ull * 365 * 24 * 3'600 * 1'000;

}  // namespace

Result<void> HangDetector::says(PeerId peer, const Section& section, Deadline now) {
    if (section.kind == Section::Kind::beat) {
        for (auto& [who, open] : open_)
            if (who.first == peer) open = {open.limit, now + open.limit};
        return {};
    }
    if (section.name.empty() || section.name.size() > Section::kNameBytesMax)
        return fail(Errc::invalid_input, "a section's name has 1 to {} bytes",
                    Section::kNameBytesMax);
    const std::pair who(peer, section.name);
    if (section.kind == Section::Kind::end) {
        open_.erase(who);
        return {};
    }
    const auto of_peer = static_cast<std::size_t>(std::ranges::count_if(
        open_, [peer](const auto& entry) { return entry.first.first == peer; }));
    if (of_peer >= kOfPeerMax && !open_.contains(who))
        return fail(Errc::invalid_input, "a rank is in more than {} sections", kOfPeerMax);
    const std::chrono::milliseconds limit(std::min(section.limit_ms, kLimitMsMax));
    open_[who] = {limit, now + limit};
    return {};
}

void HangDetector::left(PeerId peer) {
    std::erase_if(open_, [peer](const auto& entry) { return entry.first.first == peer; });
}

Deadline HangDetector::next_deadline() const {
    Deadline next = Deadline::max();
    for (const auto& [who, open] : open_)
        if (!open.told) next = std::min(next, open.until);
    return next;
}

std::vector<HangDetector::Overdue> HangDetector::take_overdue(Deadline now) {
    std::vector<Overdue> overdue;
    for (auto& [who, open] : open_) {
        if (open.told || open.until > now) continue;
        open.told = true;
        overdue.push_back({who.first, who.second, open.limit});
    }
    return overdue;
}

}  // namespace dtrun::agent
