#include "worker/ranks/rank_macros.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::ranks {

RankMacros RankMacros::of_program(const Assign& assign, const RankSlot& slot) {
    RankMacros macros;
    macros.names_ = {
        {"${rank}", fmt::format("{}", slot.rank)},
        {"${local_rank}", fmt::format("{}", slot.local_rank)},
        {"${world_size}", fmt::format("{}", assign.world_size)},
        {"${local_world_size}", fmt::format("{}", assign.ranks.size())},
        {"${node_rank}", fmt::format("{}", assign.node_rank)},
    };
    return macros;
}

RankMacros RankMacros::of_wrapper(const RankSlot& slot, const std::string& host,
                                  const contracts::Environment& env) {
    RankMacros macros;
    macros.names_ = {
        {"{rank}", fmt::format("{}", slot.rank)},
        {"{local_rank}", fmt::format("{}", slot.local_rank)},
        {"{host}", host},
    };
    macros.variables_ = &env;
    return macros;
}

std::pair<std::string_view, std::size_t> RankMacros::at_begin(std::string_view text) const {
    for (const auto& [name, value] : names_)
        if (text.starts_with(name)) return {value, name.size()};
    constexpr std::string_view kVariable = "%q{";
    const std::size_t end = text.find('}');
    if (variables_ == nullptr || !text.starts_with(kVariable) || end == std::string_view::npos)
        return {};
    const auto found = variables_->find(text.substr(kVariable.size(), end - kVariable.size()));
    if (found == variables_->end()) return {};
    return {found->second, end + 1};
}

std::string RankMacros::replace(std::string_view text) const {
    std::string replaced;
    while (!text.empty()) {
        const auto [value, length] = at_begin(text);
        replaced += length > 0 ? value : text.substr(0, 1);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return replaced;
}

std::vector<std::string> RankMacros::replace(std::vector<std::string> words) const {
    for (std::string& word : words) word = replace(std::string_view(word));
    return words;
}

}  // namespace dtrun::ranks
