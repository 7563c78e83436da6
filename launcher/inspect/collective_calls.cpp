#include "launcher/inspect/collective_calls.h"

#include "launcher/plan/rank_set.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace dtrun::inspect {
namespace {

constexpr std::size_t kGroupsMax = 6;

/// Files of libraries, by how their names begin.
constexpr std::array<std::string_view, 4> kLibraries{"torch/distributed/", "horovod/",
                                                     "deepspeed/comm/", "dtrun/"};

/// How the names of their operations begin, leading "_" and "grouped_" left out.
constexpr std::array<std::string_view, 16> kOperations{
    "all_gather",         "all_reduce", "all_to_all", "allgather", "allreduce",
    "alltoall",           "barrier",    "broadcast",  "gather",    "join",
    "init_process_group", "recv",       "reduce",     "scatter",   "monitored_barrier",
    "synchronize"};

std::string_view function_of(std::string_view frame) {
    return frame.substr(0, frame.find(" ("));
}

std::string_view file_of(std::string_view frame) {
    const std::size_t begin = frame.find(" (");
    return begin == frame.npos ? std::string_view() : frame.substr(begin + 2);
}

bool is_of_library(std::string_view frame) {
    const std::string_view file = file_of(frame);
    return std::ranges::any_of(
        kLibraries, [file](std::string_view library) { return file.starts_with(library); });
}

bool is_operation(std::string_view frame) {
    std::string_view name = function_of(frame);
    for (const std::string_view before : {"_", "grouped_"})
        if (name.starts_with(before)) name.remove_prefix(before.size());
    return std::ranges::any_of(
        kOperations, [name](std::string_view operation) { return name.starts_with(operation); });
}

/// "ranks 0-2 are", "rank 3 is".
std::string subject(const std::vector<Rank>& ranks, std::string_view one, std::string_view many) {
    if (ranks.size() == 1) return fmt::format("rank {} {}", ranks.front(), one);
    return fmt::format("ranks {} {}", plan::rank_ranges(ranks), many);
}

std::string at_place(const std::string& place) {
    return place.empty() ? "" : ": " + place;
}

template <class Key>
using Groups = std::vector<std::pair<Key, std::vector<Rank>>>;

/// The largest first.
template <class Key>
Groups<Key> sorted(const std::map<Key, std::vector<Rank>>& by_key) {
    Groups<Key> groups(by_key.begin(), by_key.end());
    std::ranges::stable_sort(groups, std::greater(),
                             [](const auto& group) { return group.second.size(); });
    return groups;
}

}  // namespace

std::optional<CollectiveCall> collective_call(const std::vector<std::string>& frames) {
    std::optional<CollectiveCall> call;
    for (std::size_t i = 0; i < frames.size(); ++i) {
        if (!is_of_library(frames[i])) {
            if (call && call->caller.empty()) call->caller = frames[i];
            continue;
        }
        if (is_operation(frames[i])) call = {std::string(function_of(frames[i])), ""};
    }
    return call;
}

std::vector<std::string> who_takes_part(const std::map<Rank, std::vector<std::string>>& frames,
                                        const std::map<Rank, std::string>& silent) {
    std::map<CollectiveCall, std::vector<Rank>> calls;
    std::map<std::string, std::vector<Rank>> elsewhere, unknown;
    for (const auto& [rank, stack] : frames) {
        if (const auto call = collective_call(stack))
            calls[*call].push_back(rank);
        else
            elsewhere[stack.empty() ? "" : stack.front()].push_back(rank);
    }
    for (const auto& [rank, why] : silent) unknown[why].push_back(rank);
    std::vector<std::string> lines;
    if (calls.empty()) return lines;
    const bool is_all = calls.size() == 1 && elsewhere.empty() && silent.empty();
    for (const auto& [call, ranks] : sorted(calls)) {
        const std::string who = is_all && ranks.size() > 1
                                    ? fmt::format("all {} ranks are", ranks.size())
                                    : subject(ranks, "is", "are");
        lines.push_back(fmt::format("{} in {}{}", who, call.name, at_place(call.caller)));
    }
    const std::string_view there = calls.size() == 1 ? "not" : "in none";
    for (const auto& [place, ranks] : sorted(elsewhere))
        lines.push_back(
            fmt::format("{} {}{}", subject(ranks, "is", "are"), there, at_place(place)));
    for (const auto& [why, ranks] : sorted(unknown))
        lines.push_back(
            fmt::format("{} said nothing{}", subject(ranks, "has", "have"), at_place(why)));
    if (lines.size() > kGroupsMax) {
        const std::size_t more = lines.size() - kGroupsMax;
        lines.resize(kGroupsMax);
        lines.push_back(fmt::format("… and ranks at {} other places", more));
    }
    return lines;
}

}  // namespace dtrun::inspect
