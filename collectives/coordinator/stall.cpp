#include "collectives/coordinator/stall.h"

#include <algorithm>

namespace dtrun::collectives {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAgainWithin{3'600'000};
constexpr milliseconds kLookMin{10};
constexpr milliseconds kLookMax{3'000};
/// How many spans of ranks a line names.
constexpr std::size_t kSpansMax = 8;

bool is_join(const Stalled& stalled) {
    return stalled.request->operation == RequestKind::join;
}

std::int64_t in_whole_seconds(milliseconds span) {
    return std::chrono::duration_cast<std::chrono::seconds>(span).count();
}

/// "a" and 3 others
std::string names_of(std::span<const Stalled* const> members) {
    std::string text = fmt::format("\"{}\"", members.front()->request->name);
    if (members.size() == 2) text += fmt::format(" and \"{}\"", members[1]->request->name);
    if (members.size() > 2) text += fmt::format(" and {} others", members.size() - 1);
    return text;
}

}  // namespace

milliseconds StallTimes::look_every() const {
    const milliseconds least = shutdown.count() > 0 ? std::min(warning, shutdown) : warning;
    return std::clamp(least / 20, kLookMin, kLookMax);
}

StallCheck::StallCheck(StallTimes times, std::vector<std::uint32_t> names)
    : times_(times), names_(std::move(names)) {}

StallCheck::Findings StallCheck::look(std::span<const Stalled> open, milliseconds now) {
    std::map<Pattern, Members> groups;
    // Who has joined waits for what else is open, of which it is no cause.
    const bool only_joins = std::ranges::all_of(open, is_join);
    for (const Stalled& stalled : open)
        if (only_joins || !is_join(stalled)) groups[stalled.absent].push_back(&stalled);
    std::erase_if(next_, [&](const auto& told) { return !groups.contains(told.first); });

    // Those of a group that have come last wait for the same ranks, so they are told with the first.
    std::vector<std::pair<Members, milliseconds>> due;
    Findings findings;
    for (auto& [pattern, members] : groups) {
        std::ranges::sort(members, {}, &Stalled::order);
        const milliseconds age = std::ranges::max(members, {}, &Stalled::age)->age;
        if (times_.shutdown.count() > 0 && age >= times_.shutdown && findings.shutdown.empty() &&
            !only_joins)
            findings.shutdown =
                describe(members, open, age) + ": that is longer than the shutdown time";
        const auto told = next_.find(pattern);
        if (age < times_.warning || (told != next_.end() && now < told->second)) continue;
        next_[pattern] = now + std::min(age, kAgainWithin);
        due.emplace_back(members, age);
    }
    std::ranges::sort(due, {}, [](const auto& group) { return group.first.front()->order; });
    for (const auto& [members, age] : due) findings.lines.push_back(describe(members, open, age));
    return findings;
}

/// "a" and 3 others: ranks 0, 2 wait, for 60 s; rank 1 has not asked for them, but for "b"
std::string StallCheck::describe(const Members& members, std::span<const Stalled> open,
                                 milliseconds age) const {
    const Stalled& first = *members.front();
    const bool one_waits = first.waiting.size() == 1, one_absent = first.absent.size() == 1;
    std::string text = fmt::format(
        "{}: {} {} {} s; {} {} not asked for {}", names_of(members), ranks(first.waiting),
        one_waits ? "has waited for" : "have waited for", in_whole_seconds(age),
        ranks(first.absent), one_absent ? "has" : "have", members.size() == 1 ? "it" : "them");
    Members instead;
    for (const Stalled& other : open)
        if (other.absent != first.absent && std::ranges::includes(other.waiting, first.absent))
            instead.push_back(&other);
    std::ranges::sort(instead, {}, &Stalled::order);
    if (!instead.empty()) text += ", but for " + names_of(instead);
    return text;
}

/// "ranks 0-3, 7 and 12 more"
std::string StallCheck::ranks(const std::vector<std::uint32_t>& list) const {
    std::string text = list.size() == 1 ? "rank " : "ranks ";
    std::size_t at = 0;
    for (std::size_t spans = 0; at < list.size() && spans < kSpansMax; ++spans) {
        std::size_t last = at;
        while (last + 1 < list.size() && names_[list[last + 1]] == names_[list[last]] + 1) ++last;
        text += at == 0 ? "" : ", ";
        text += std::to_string(names_[list[at]]);
        if (last > at) text += (last > at + 1 ? "-" : ", ") + std::to_string(names_[list[last]]);
        at = last + 1;
    }
    if (at < list.size()) text += fmt::format(" and {} more", list.size() - at);
    return text;
}

std::string SilenceCheck::look(milliseconds now, milliseconds limit, const std::string& first,
                               std::size_t number) {
    if (!since_ || limit.count() <= 0) return {};
    const milliseconds age = now - *since_;
    if (age < limit || now < next_) return {};
    next_ = now + std::min(age, kAgainWithin);
    const std::string others = number == 1   ? " has"
                               : number == 2 ? " and another one have"
                                             : fmt::format(" and {} others have", number - 1);
    return fmt::format("\"{}\"{} waited for {} s: some rank has asked for nothing, or is stopped",
                       first, others, in_whole_seconds(age));
}

}  // namespace dtrun::collectives
