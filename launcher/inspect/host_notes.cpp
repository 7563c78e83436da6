#include "launcher/inspect/host_notes.h"

#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "launcher/plan/rank_set.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <utility>

namespace dtrun::inspect {
namespace {

constexpr std::string_view kRank = "rank ";

/// The first rank that a text names, which then is any.
std::optional<Rank> take_rank(std::string& text) {
    const std::string_view all = text;
    for (std::size_t at = all.find(kRank); at < all.size(); at = all.find(kRank, at + 1)) {
        if (at > 0 && all[at - 1] != ' ') continue;
        const std::size_t begin = at + kRank.size();
        const std::size_t end = std::min(all.find_first_not_of("0123456789", begin), all.size());
        const auto number = to_int(all.substr(begin, end - begin), 0, UINT32_MAX);
        if (!number) continue;
        text.replace(begin, end - begin, "…");
        return Rank{static_cast<std::uint32_t>(*number)};
    }
    return std::nullopt;
}

}  // namespace

bool HostNotes::add(HostId host, const std::string& name, std::string note) {
    std::string text = note.starts_with(name + ": ") ? note.substr(name.size() + 2) : note;
    const std::optional<Rank> rank = take_rank(text);
    const auto [place, is_new] = places_.try_emplace(text, notes_.size());
    if (is_new) notes_.push_back({std::move(note), std::move(text)});
    Alike& alike = notes_[place->second];
    alike.hosts.emplace(host, name);
    if (rank) alike.ranks.insert(*rank);
    return notes_.size() == 1 && is_new;
}

std::vector<std::string> HostNotes::take() {
    std::vector<std::string> lines;
    for (const Alike& alike : notes_) {
        if (alike.hosts.size() == 1 && alike.ranks.size() <= 1) {
            lines.push_back(alike.first);
            continue;
        }
        std::vector<std::string> names;
        for (const std::string& name : alike.hosts | std::views::values) names.push_back(name);
        const std::vector<Rank> ranks(alike.ranks.begin(), alike.ranks.end());
        std::string who = name_hosts(names);
        if (!ranks.empty())
            who += fmt::format(", {} {}", ranks.size() == 1 ? "rank" : "ranks",
                               plan::rank_ranges(ranks));
        lines.push_back(fmt::format("{}: {}", who, alike.text));
    }
    notes_.clear();
    places_.clear();
    return lines;
}

}  // namespace dtrun::inspect
