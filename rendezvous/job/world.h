#pragma once

#include "base/numbered.h"
#include "rendezvous/job/world_plan.h"
#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <map>
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

/// What each host with ranks is told of a world: its ranks, and what is the same for all.
/// \param world           by rank
/// \param members         of the job, by host
/// \param describe_nodes  list all hosts with their addresses and ports
/// \param compress        makes one text of the names of all hosts, which each of them is told; "" if it cannot.
///                        Null: they are told the names as they are, as also older builds understand them, which may be members of a daemon's job
std::map<HostId, Assign> assign_world(
    std::uint64_t generation, std::span<const RankAssignment> world, const PerHost<Member>& members,
    bool describe_nodes, std::string (*compress)(std::span<const std::string>) = nullptr);

/// The same for those hosts alone that are to start processes for a world that has not begun, and these processes.
std::map<HostId, Prepare> prepare_world(std::map<HostId, Assign> assignments);

}  // namespace dtrun
