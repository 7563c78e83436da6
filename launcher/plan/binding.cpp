#include "launcher/plan/binding.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace dtrun::plan {
namespace {

using std::string_view;

BindTo same_as(MapWithin by) {
    switch (by) {
        case MapWithin::core:
            return BindTo::core;
        case MapWithin::l3:
            return BindTo::l3;
        case MapWithin::numa:
            return BindTo::numa;
        case MapWithin::socket:
            return BindTo::socket;
        case MapWithin::gpu:
            return BindTo::gpu;
        default:
            return BindTo::none;
    }
}

BindTo implied(const BindingOptions& asked) {
    if (asked.cpus_per_rank) return BindTo::core;
    if (!asked.cpus.empty()) return BindTo::share;
    return same_as(asked.by);
}

}  // namespace

BindingRequest binding_request(const Options& options) {
    const BindingOptions& asked = options.binding;
    BindingRequest request;
    request.to = asked.to.value_or(implied(asked));
    request.by = asked.by;
    request.cpus_per_rank = static_cast<std::uint32_t>(asked.cpus_per_rank.value_or(0));
    request.cpus = asked.cpus;
    request.overlap = options.oversubscribe || asked.may_overlap;
    request.report = asked.report;
    request.threads = static_cast<std::uint32_t>(asked.threads);
    return request;
}

std::optional<BindTo> bind_to_of_slurm(string_view type) {
    constexpr std::pair<string_view, BindTo> kTypes[] = {
        {"none", BindTo::none},     {"cores", BindTo::share},    {"threads", BindTo::share},
        {"rank", BindTo::share},    {"sockets", BindTo::socket}, {"ldoms", BindTo::numa},
        {"rank_ldom", BindTo::numa}};
    const auto* const known =
        std::ranges::find(kTypes, type, &std::pair<string_view, BindTo>::first);
    return known == std::end(kTypes) ? std::nullopt : std::optional(known->second);
}

BindingOptions follow_slurm(BindingOptions binding, EnvironmentView caller,
                            std::vector<std::string>& notes) {
    const auto setting = find_variable(caller, "SLURM_CPU_BIND");
    const bool is_asked = binding.to || binding.cpus_per_rank || !binding.cpus.empty() ||
                          binding.by != MapWithin::slot;
    if (!setting || is_asked) return binding;
    for (const string_view word : split(*setting, ',')) {
        const string_view type = word.substr(0, word.find(':'));
        if (const auto to = bind_to_of_slurm(type); to && *to != BindTo::none) {
            binding.to = *to;
            binding.may_overlap = true;
            return binding;
        }
        // In a step these describe the step's own task, which dtrun is.
        const bool is_list = type.starts_with("map_") || type.starts_with("mask_");
        if (!is_list || find_variable(caller, "SLURM_STEP_ID")) continue;
        notes.push_back(fmt::format(
            "SLURM_CPU_BIND={} is a list for Slurm's own tasks: ranks are not bound; say --bind-to",
            *setting));
        return binding;
    }
    return binding;
}

std::vector<std::string> binding_words(const BindingRequest& request) {
    static constexpr const char* kTo[] = {"none", "core",   "share", "l3",
                                          "numa", "socket", "gpu",   "auto"};
    static constexpr const char* kBy[] = {"slot", "core", "l3", "numa", "socket", "gpu", "auto"};
    std::vector<std::string> words{"--bind-to", kTo[std::to_underlying(request.to)]};
    if (request.by != MapWithin::slot)
        words.insert(words.end(), {"--map-by", kBy[std::to_underlying(request.by)]});
    if (request.cpus_per_rank > 0)
        words.insert(words.end(), {"--cpus-per-rank", fmt::to_string(request.cpus_per_rank)});
    if (!request.cpus.empty()) words.insert(words.end(), {"--cpu-list", request.cpus});
    return words;
}

}  // namespace dtrun::plan
