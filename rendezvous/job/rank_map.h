#pragma once

#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dtrun {

/// \param node_of_rank  [rank] node_rank of its host
std::vector<RankBlock> rank_map(std::span<const std::uint32_t> node_of_rank);

/// The inverse of rank_map(). Errc: invalid_input (no rank in it, or more hosts than `nodes`)
Result<std::vector<std::uint32_t>> nodes_of_ranks(std::span<const RankBlock> map,
                                                  std::uint32_t world_size, std::uint32_t nodes);

}  // namespace dtrun
