#include "rendezvous/job/world_plan.h"

#include <algorithm>

namespace dtrun {

std::uint32_t allowed_size(const WorldSizes& sizes, std::uint32_t ranks) {
    ranks = std::min(ranks, sizes.max);
    if (sizes.allowed.empty()) return ranks;
    const auto above = std::ranges::upper_bound(sizes.allowed, ranks);
    return above == sizes.allowed.begin() ? 0 : *std::prev(above);
}

namespace {

std::size_t slots_of(const HostOffer& host) {
    return host.survivors.size() + host.vacant.size();
}

/// Leaves hosts with as many ranks as each has to have, and no more of them than are allowed.
void make_whole(std::vector<HostOffer>& hosts, const WorldSizes& sizes) {
    const std::uint32_t ranks = sizes.per_host;
    std::erase_if(hosts, [ranks](const HostOffer& host) { return slots_of(host) < ranks; });
    for (HostOffer& host : hosts) {
        host.survivors.resize(std::min<std::size_t>(host.survivors.size(), ranks));
        host.vacant.resize(ranks - host.survivors.size());
    }
    hosts.resize(allowed_size(sizes, static_cast<std::uint32_t>(hosts.size() * ranks)) / ranks);
}

/// Takes so many places of the front ones, and returns how many were missing.
std::size_t keep(std::vector<SlotIndex>& places, std::size_t wanted) {
    if (places.size() > wanted) places.resize(wanted);
    return wanted - places.size();
}

/// Gives ranks to the slots of a host, by place; survivors come before all others if the first would not be one.
void assign_slots(const HostOffer& host, std::vector<RankAssignment>& world) {
    std::vector<RankAssignment> here;
    for (const SlotIndex place : host.survivors)
        here.push_back({host.host, {.place = place}, false});
    for (const SlotIndex place : host.vacant) here.push_back({host.host, {.place = place}, true});
    const auto by_place = [](const RankAssignment& assigned) { return assigned.rank.place; };
    const auto lowest = std::ranges::min_element(here, {}, by_place);
    const bool leads = world.empty() && lowest != here.end() && lowest->fresh;
    if (!leads) std::ranges::sort(here, {}, by_place);
    world.insert(world.end(), here.begin(), here.end());
}

}  // namespace

std::vector<RankAssignment> plan_world(std::vector<HostOffer> hosts, const WorldSizes& sizes) {
    std::ranges::stable_partition(hosts,
                                  [](const HostOffer& host) { return !host.survivors.empty(); });
    if (sizes.per_host > 0) make_whole(hosts, sizes);
    std::size_t all = 0;
    for (const HostOffer& host : hosts) all += slots_of(host);
    std::size_t left = allowed_size(sizes, static_cast<std::uint32_t>(all));
    for (HostOffer& host : hosts) left = keep(host.survivors, left);
    for (HostOffer& host : hosts) left = keep(host.vacant, left);
    std::vector<RankAssignment> world;
    for (const HostOffer& host : hosts) assign_slots(host, world);

    std::vector<std::uint32_t> cross_sizes;  // [local_rank] number of hosts with this local rank
    std::uint32_t local = 0;
    for (std::size_t i = 0; i < world.size(); ++i) {
        local = i > 0 && world[i].host == world[i - 1].host ? local + 1 : 0;
        if (local == cross_sizes.size()) cross_sizes.push_back(0);
        RankSlot& rank = world[i].rank;
        rank.rank = Rank{static_cast<std::uint32_t>(i)};
        rank.local_rank = local;
        rank.cross_rank = cross_sizes[local]++;
    }
    for (RankAssignment& assigned : world)
        assigned.rank.cross_size = cross_sizes[assigned.rank.local_rank];
    return world;
}

}  // namespace dtrun
