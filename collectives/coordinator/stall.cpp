#include "collectives/coordinator/stall.h"

#include "collectives/user_text.h"

#include <algorithm>

namespace dtrun::collectives {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAgainWithin{3'600'000};
constexpr milliseconds kLookMin{10};
constexpr milliseconds kLookMax{3'000};

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
        if (age < times_.warning) continue;
        const auto [told, is_first] = next_.try_emplace(pattern);
        Next& next = told->second;
        const Stalled& first = *members.front();
        if (is_first || next.first != first.order)
            next = {next.at, first.order,
                    fmt::format("{}; {}", names_of(members), missing(members, open))};
        findings.told.push_back({next.what, first.waiting, age});
        if (!is_first && now < next.at) continue;
        next.at = now + std::min(age, kAgainWithin);
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
    return fmt::format("{}: {} {} {} s; {}", names_of(members), ranks(first.waiting),
                       first.waiting.size() == 1 ? "has waited for" : "have waited for",
                       in_whole_seconds(age), missing(members, open));
}

/// rank 1 has not asked for them, but for "b"
std::string StallCheck::missing(const Members& members, std::span<const Stalled> open) const {
    const Stalled& first = *members.front();
    std::string text =
        fmt::format("{} {} not asked for {}", ranks(first.absent),
                    first.absent.size() == 1 ? "has" : "have", members.size() == 1 ? "it" : "them");
    Members instead;
    for (const Stalled& other : open)
        if (other.absent != first.absent && std::ranges::includes(other.waiting, first.absent))
            instead.push_back(&other);
    std::ranges::sort(instead, {}, &Stalled::order);
    if (!instead.empty()) text += ", but for " + names_of(instead);
    return text;
}

std::string StallCheck::ranks(const std::vector<std::uint32_t>& list) const {
    std::vector<std::uint32_t> named;
    for (const std::uint32_t rank : list) named.push_back(names_[rank]);
    return name_ranks(named);
}

SilenceCheck::Finding SilenceCheck::look(milliseconds now, milliseconds limit,
                                         const std::string& first, std::size_t number) {
    if (!since_ || limit.count() <= 0) return {};
    const milliseconds age = now - *since_;
    if (age < limit || now < next_) return {};
    next_ = now + std::min(age, kAgainWithin);
    const std::string others = number == 1   ? ""
                               : number == 2 ? " and another one"
                                             : fmt::format(" and {} others", number - 1);
    constexpr std::string_view kWhy = "some rank has asked for nothing, or is stopped";
    what_ = fmt::format("\"{}\"{}; {}", first, others, kWhy);
    return {.line = fmt::format("\"{}\"{} {} waited for {} s: {}", first, others,
                                number == 1 ? "has" : "have", in_whole_seconds(age), kWhy),
            .what = what_,
            .age = age};
}

void StallReports::add(const std::string& what, milliseconds waited) {
    const std::lock_guard lock(mutex_);
    if (tell_ && open_.insert(what).second) tell_(what, waited);
}

void StallReports::end(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (open_.erase(what) > 0) tell_(what, std::nullopt);
}

void StallReports::keep_only(const std::set<std::string>& still) {
    const std::lock_guard lock(mutex_);
    std::erase_if(open_, [&](const std::string& what) {
        if (still.contains(what)) return false;
        tell_(what, std::nullopt);
        return true;
    });
}

}  // namespace dtrun::collectives
