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
    /// How many ranks run each of the job's programs, one program behind the other; empty: there is one.
    std::vector<std::uint32_t> program_ranks;

    /// MPI_APPNUM: the number of the program that a rank runs.
    std::uint32_t appnum(std::uint32_t rank) const {
        std::uint32_t next = 0;
        for (std::uint32_t program = 0; program < program_ranks.size(); ++program)
            if (rank < (next += program_ranks[program])) return program;
        return 0;
    }
};

}  // namespace dtrun::mpi
