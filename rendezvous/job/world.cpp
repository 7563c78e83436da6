#include "rendezvous/job/world.h"

#include "rendezvous/job/rank_map.h"

#include <algorithm>

namespace dtrun {
namespace {

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

/// An address of rank 0's host that its peers can reach: its connection's peer address, or, if that
/// is loopback, the server's address that a member on another host has reached.
std::string master_address(const Member& first, const std::vector<const Member*>& all) {
    if (!is_loopback(first.peer_address)) return first.peer_address;
    for (const Member* member : all)
        if (!is_loopback(member->peer_address)) return member->server_address;
    return first.peer_address;
}

/// Addresses of members, which may connect to rank 0's host; none twice, no loopback.
std::vector<std::string> peer_addresses(const std::vector<const Member*>& all) {
    std::vector<std::string> addresses;
    for (const Member* member : all) {
        addresses.push_back(member->peer_address);
        addresses.insert(addresses.end(), member->addresses.begin(), member->addresses.end());
    }
    std::erase_if(addresses, is_loopback);
    std::ranges::sort(addresses);
    const auto [first, last] = std::ranges::unique(addresses);
    addresses.erase(first, last);
    return addresses;
}

}  // namespace

std::map<HostId, Assign> assign_world(std::uint64_t generation,
                                      std::span<const RankAssignment> world,
                                      const PerHost<Member>& members, bool describe_nodes,
                                      std::string (*compress)(std::span<const std::string>)) {
    std::map<HostId, Assign> assignments;
    std::vector<HostId> order;  // by node_rank
    std::vector<std::uint32_t> node_of_rank;
    for (const RankAssignment& assigned : world) {
        const auto [at, is_new] = assignments.try_emplace(assigned.host);
        Assign& assign = at->second;
        if (is_new) {
            assign.node_rank = static_cast<std::uint32_t>(order.size());
            order.push_back(assigned.host);
        }
        assign.ranks.push_back(assigned.rank);
        if (!assigned.fresh) assign.kept.push_back(assigned.rank.place);
        node_of_rank.push_back(assign.node_rank);
    }
    std::vector<const Member*> nodes;
    for (const HostId host : order) nodes.push_back(&members[host]);
    Assign common;
    common.generation = generation;
    common.world_size = static_cast<std::uint32_t>(world.size());
    common.node_count = static_cast<std::uint32_t>(order.size());
    common.rank_map = rank_map(node_of_rank);
    common.master_address = master_address(*nodes.front(), nodes);
    common.master_port = nodes.front()->free_port;
    for (std::size_t node = 0; node < order.size(); ++node) {
        common.node_names.push_back(nodes[node]->name);
        if (!describe_nodes) continue;
        // free_port itself is for MASTER_PORT.
        const auto port = static_cast<std::uint16_t>(nodes[node]->free_port + 1);
        const auto ranks = static_cast<std::uint32_t>(assignments[order[node]].ranks.size());
        common.nodes.push_back({master_address(*nodes[node], nodes), port, ranks});
    }
    if (compress != nullptr) common.nodelist = compress(common.node_names);
    if (!common.nodelist.empty()) common.node_names.clear();
    for (auto& [host, assign] : assignments) {
        Assign whole = common;
        whole.node_rank = assign.node_rank;
        whole.ranks_below = static_cast<std::uint32_t>(assign.ranks.size());
        whole.ranks = std::move(assign.ranks);
        whole.kept = std::move(assign.kept);
        assign = std::move(whole);
    }
    assignments[order.front()].peers = peer_addresses(nodes);
    return assignments;
}

std::map<HostId, Prepare> prepare_world(std::map<HostId, Assign> assignments) {
    std::map<HostId, Prepare> prepared;
    for (auto& [host, assign] : assignments) {
        std::erase_if(assign.ranks, [&assign](const RankSlot& rank) {
            return std::ranges::count(assign.kept, rank.place) > 0;
        });
        if (!assign.ranks.empty()) prepared[host].world = std::move(assign);
    }
    return prepared;
}

}  // namespace dtrun
