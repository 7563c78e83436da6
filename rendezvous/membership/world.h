#pragma once

#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dtrun {

/// The slots of one host that take part in a job as a unit.
struct Member {
    std::string name;  ///< host name, for messages
    std::uint32_t slots = 0;
    std::string peer_address;              ///< its address as the server sees it; numeric
    std::string server_address;            ///< the server's end of the connection; numeric
    std::uint16_t free_port = 0;           ///< MASTER_PORT if it gets rank 0; the next are free too
    std::vector<std::string> addresses{};  ///< all its addresses; numeric
};

/// A host of a world, with its ranks in order of local_rank.
struct SeatedHost {
    const Member* member = nullptr;
    std::span<const RankSlot> ranks;
};

/// What all hosts of a world are told of it; the generation's number and each host's own ranks are missing.
/// \param hosts           by node_rank; each has ranks
/// \param all             all members, some of which may have no ranks
/// \param describe_nodes  list all hosts with their addresses and ports
Assign describe_world(std::span<const SeatedHost> hosts, std::span<const Member* const> all,
                      bool describe_nodes);

/// Addresses of members, which may connect to rank 0's host; none twice, no loopback.
std::vector<std::string> peer_addresses(std::span<const Member* const> all);

}  // namespace dtrun
