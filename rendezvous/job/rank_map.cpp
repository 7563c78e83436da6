#include "rendezvous/job/rank_map.h"

#include <algorithm>
#include <functional>

namespace dtrun {

std::vector<RankBlock> rank_map(std::span<const std::uint32_t> node_of_rank) {
    std::vector<RankBlock> map;
    for (std::size_t begin = 0; begin < node_of_rank.size();) {
        std::size_t end = begin + 1;
        while (end < node_of_rank.size() && node_of_rank[end] == node_of_rank[begin]) ++end;
        const auto ranks = static_cast<std::uint32_t>(end - begin);
        const std::uint32_t node = node_of_rank[begin];
        const bool joins = !map.empty() && map.back().ranks == ranks &&
                           map.back().first_node + map.back().nodes == node;
        if (joins)
            ++map.back().nodes;
        else
            map.push_back({node, 1, ranks});
        begin = end;
    }
    if (std::ranges::adjacent_find(map, std::not_equal_to<>()) == map.end() && !map.empty())
        map.resize(1);  // all blocks are the same: readers repeat the first
    return map;
}

Result<std::vector<std::uint32_t>> nodes_of_ranks(std::span<const RankBlock> map,
                                                  std::uint32_t world_size, std::uint32_t nodes) {
    std::vector<std::uint32_t> node_of_rank;
    for (const RankBlock& block : map)
        if (block.ranks == 0 || block.nodes == 0 || block.first_node >= nodes ||
            block.nodes > nodes - block.first_node)
            return fail(Errc::invalid_input, "a map of ranks with hosts that there are not");
    if (map.empty() && world_size > 0) return fail(Errc::invalid_input, "an empty map of ranks");
    while (node_of_rank.size() < world_size)
        for (const RankBlock& block : map)
            for (std::uint32_t node = 0; node < block.nodes; ++node)
                for (std::uint32_t i = 0; i < block.ranks && node_of_rank.size() < world_size; ++i)
                    node_of_rank.push_back(block.first_node + node);
    return node_of_rank;
}

}  // namespace dtrun
