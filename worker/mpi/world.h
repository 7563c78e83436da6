#pragma once

#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::mpi {

/// A generation's ranks, as MPI libraries want to know of them.
struct MpiWorld {
    std::string job;  ///< hexadecimal id
    std::uint64_t generation = 0;
    std::uint32_t world_size = 0;
    std::vector<std::string> node_names;      ///< by node_rank; what the user calls the hosts
    std::vector<RankBlock> rank_map;          ///< as Assign's
    std::vector<std::uint32_t> node_of_rank;  ///< the same, by rank
    std::uint32_t node_rank = 0;              ///< of this host
    std::vector<std::uint32_t> ranks;         ///< of this host, in order of local_rank
};

}  // namespace dtrun::mpi
