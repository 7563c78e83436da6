#include "rendezvous/membership/world.h"

#include "rendezvous/membership/rank_map.h"

#include <algorithm>

namespace dtrun {
namespace {

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

/// An address of rank 0's host that its peers can reach: its connection's peer address, or, if that
/// is loopback, the server's address that a member on another host has reached.
std::string master_address(const Member& first, std::span<const Member* const> all) {
    if (!is_loopback(first.peer_address)) return first.peer_address;
    for (const Member* member : all)
        if (!is_loopback(member->peer_address)) return member->server_address;
    return first.peer_address;
}

}  // namespace

Assign describe_world(std::span<const SeatedHost> hosts, std::span<const Member* const> all,
                      bool describe_nodes) {
    Assign world;
    for (const SeatedHost& host : hosts)  // those whose ranks have finished may be missing
        for (const RankSlot& slot : host.ranks)
            world.world_size = std::max(world.world_size, std::to_underlying(slot.rank) + 1);
    std::vector<std::uint32_t> node_of_rank(world.world_size);
    for (const SeatedHost& host : hosts) {
        const Member& member = *host.member;
        for (const RankSlot& slot : host.ranks)
            node_of_rank.at(std::to_underlying(slot.rank)) = world.node_count;
        ++world.node_count;
        world.node_names.push_back(member.name);
        if (describe_nodes) {
            // free_port itself is for MASTER_PORT.
            const auto port = static_cast<std::uint16_t>(member.free_port + 1);
            world.nodes.push_back(
                {master_address(member, all), port, static_cast<std::uint32_t>(host.ranks.size())});
        }
        if (host.ranks.front().rank != Rank{0}) continue;
        world.master_address = master_address(member, all);
        world.master_port = member.free_port;
    }
    world.rank_map = rank_map(node_of_rank);
    return world;
}

std::vector<std::string> peer_addresses(std::span<const Member* const> all) {
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

}  // namespace dtrun
