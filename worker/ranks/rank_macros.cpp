#include "worker/ranks/rank_macros.h"

#include <fmt/format.h>
#include <array>
#include <utility>

namespace dtrun::ranks {

std::vector<std::string> replace_macros(std::vector<std::string> argv, const Assign& assign,
                                        const RankSlot& slot) {
    const std::array<std::pair<std::string, std::size_t>, 5> macros{{
        {"${rank}", std::to_underlying(slot.rank)},
        {"${local_rank}", slot.local_rank},
        {"${world_size}", assign.world_size},
        {"${local_world_size}", assign.ranks.size()},
        {"${node_rank}", assign.node_rank},
    }};
    for (std::string& argument : argv)
        for (const auto& [name, number] : macros)
            for (auto at = argument.find(name); at != std::string::npos; at = argument.find(name))
                argument.replace(at, name.size(), fmt::format("{}", number));
    return argv;
}

}  // namespace dtrun::ranks
