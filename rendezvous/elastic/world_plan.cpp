#include "rendezvous/elastic/world_plan.h"

#include <algorithm>

namespace dtrun {

std::uint32_t allowed_size(const WorldSizes& sizes, std::uint32_t ranks) {
    ranks = std::min(ranks, sizes.max);
    if (sizes.allowed.empty()) return ranks;
    const auto above = std::ranges::upper_bound(sizes.allowed, ranks);
    return above == sizes.allowed.begin() ? 0 : *std::prev(above);
}

std::vector<Seat> plan_world(std::vector<HostOffer> hosts, const WorldSizes& sizes) {
    std::ranges::stable_partition(hosts,
                                  [](const HostOffer& host) { return !host.survivors.empty(); });
    std::vector<Seat> seats;
    for (HostOffer& host : hosts) {
        if (sizes.per_host > 0) {
            if (host.survivors.size() + host.vacant.size() < sizes.per_host) continue;
            host.survivors.resize(std::min<std::size_t>(host.survivors.size(), sizes.per_host));
            host.vacant.resize(sizes.per_host - host.survivors.size());
        }
        const auto sit = [&seats, &host](SlotIndex place, bool fresh) {
            seats.push_back({host.host, {.place = place}, fresh});
        };
        for (const SlotIndex place : host.survivors) sit(place, false);
        for (const SlotIndex place : host.vacant) sit(place, true);
    }
    seats.resize(allowed_size(sizes, static_cast<std::uint32_t>(seats.size())));

    std::vector<std::uint32_t> cross_sizes;  // [local_rank] number of hosts with this local rank
    std::uint32_t local = 0;
    for (std::size_t i = 0; i < seats.size(); ++i) {
        local = i > 0 && seats[i].host == seats[i - 1].host ? local + 1 : 0;
        if (local == cross_sizes.size()) cross_sizes.push_back(0);
        RankSlot& rank = seats[i].rank;
        rank.rank = Rank{static_cast<std::uint32_t>(i)};
        rank.local_rank = local;
        rank.cross_rank = cross_sizes[local]++;
    }
    for (Seat& seat : seats) seat.rank.cross_size = cross_sizes[seat.rank.local_rank];
    return seats;
}

}  // namespace dtrun
