#include "hostfiles/placement.h"

#include <fmt/format.h>
#include <algorithm>
#include <numeric>
#include <string>

namespace dtrun {

namespace {

/// "s1:4 + s2:4 = 8"; past eight hosts "s1:4 + ... + 93 more = 400".
template <class SlotsOf>
std::string show_sum(const HostList& hosts, SlotsOf slots_of) {
    constexpr std::size_t kShown = 8;
    std::string sum;
    long long total = 0;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        total += slots_of(hosts[i]);
        if (i < kShown)
            sum += fmt::format("{}{}:{}", i == 0 ? "" : " + ", hosts[i].name, slots_of(hosts[i]));
    }
    if (hosts.size() > kShown) sum += fmt::format(" + {} more hosts", hosts.size() - kShown);
    return fmt::format("{} = {}", sum, total);
}

int slots_of(const Host& host) {
    return std::max(host.slots, 0);
}

/// Most ranks a host may run; a host without slots runs none whatever its limit.
int limit_of(const Host& host) {
    if (host.slots <= 0) return 0;
    return std::max(host.slots, host.slots_max.value_or(kRanksMax));
}

long long sum(const HostList& hosts, int (*number_of)(const Host&)) {
    long long total = 0;
    for (const Host& host : hosts) total += number_of(host);
    return total;
}

/// What to write where no host was given a number of slots, which is the commonest reason for too few.
std::string ask_for_slots(const HostList& hosts, long long ranks) {
    constexpr std::size_t kShown = 4;
    const auto has_one = [](const Host& host) { return host.slots == 1 && !host.slots_max; };
    if (hosts.size() > kShown || !std::ranges::all_of(hosts, has_one)) return {};
    const auto count = static_cast<long long>(hosts.size());
    std::string words;
    for (const Host& host : hosts)
        words += fmt::format("{}{}:{}", words.empty() ? "" : ",", host.name,
                             (ranks + count - 1) / count);
    return fmt::format("a name alone is one slot: write {}; or ", words);
}

/// How many ranks there will be. `slots` is the sum over the hosts.
Result<int> choose_world_size(const HostList& hosts, const PlacementRequest& request,
                              long long slots) {
    if (slots == 0)
        return fail(Errc::invalid_input,
                    "no slots on {} host{}; give at least one a slot, as in HOST:1", hosts.size(),
                    hosts.size() == 1 ? "" : "s");
    const long long world_size = request.world_size.value_or(std::min(slots, kRanksMax + 1LL));
    if (world_size < 1)
        return fail(Errc::invalid_input, "{} ranks; -np must be at least 1", world_size);
    if (world_size > kRanksMax)
        return fail(Errc::invalid_input, "more than {} ranks; lower -np or the slots", kRanksMax);
    if (world_size > slots && !request.oversubscribe)
        return fail(Errc::invalid_input,
                    "{} ranks but {} slot{} ({}); {}lower -np, add hosts, or --oversubscribe",
                    world_size, slots, slots == 1 ? "" : "s", show_sum(hosts, slots_of),
                    ask_for_slots(hosts, world_size));
    if (const long long limit = sum(hosts, limit_of); world_size > limit)
        return fail(Errc::invalid_input,
                    "{} ranks but max_slots allow {} ({}); lower -np, add hosts, or raise "
                    "max_slots",
                    world_size, limit, show_sum(hosts, limit_of));
    return static_cast<int>(world_size);
}

/// Most ranks on each host: its slots; if those are too few, its slots once more in every round
/// until all ranks have a place.
std::vector<int> capacities(const HostList& hosts, int world_size) {
    std::vector<int> capacity(hosts.size());
    std::vector<std::size_t> open(hosts.size());  // hosts with room, in order
    std::iota(open.begin(), open.end(), 0);
    long long missing = world_size;
    for (bool first_round = true; first_round || missing > 0; first_round = false) {
        for (const std::size_t i : open) {
            const int room = limit_of(hosts[i]) - capacity[i];
            int more = std::min(slots_of(hosts[i]), room);
            if (!first_round) more = static_cast<int>(std::min<long long>(more, missing));
            capacity[i] += more;
            missing = std::max(missing - more, 0LL);
        }
        std::erase_if(open, [&](std::size_t i) { return capacity[i] >= limit_of(hosts[i]); });
    }
    return capacity;
}

/// The host of each rank.
std::vector<int> assign(const std::vector<int>& capacity, int world_size, MapBy map_by) {
    std::vector<int> host_of;
    host_of.reserve(static_cast<std::size_t>(world_size));
    const auto left = [&] { return static_cast<std::size_t>(world_size) - host_of.size(); };
    if (map_by == MapBy::slot) {
        for (std::size_t i = 0; i < capacity.size(); ++i) {
            const auto here = std::min(static_cast<std::size_t>(capacity[i]), left());
            host_of.insert(host_of.end(), here, static_cast<int>(i));
        }
        return host_of;
    }
    std::vector<int> open(capacity.size());  // hosts with room, in order
    std::iota(open.begin(), open.end(), 0);
    for (int round = 0; left() > 0; ++round) {
        std::erase_if(open, [&](int i) { return capacity[static_cast<std::size_t>(i)] <= round; });
        const auto here = std::min(open.size(), left());
        host_of.insert(host_of.end(), open.begin(),
                       open.begin() + static_cast<std::ptrdiff_t>(here));
    }
    return host_of;
}

/// Drops hosts without ranks, and renumbers `host_of` to match.
HostList keep_used(const HostList& hosts, std::vector<int>& host_of) {
    std::vector<int> new_index(hosts.size(), -1);
    for (const int host : host_of) new_index[static_cast<std::size_t>(host)] = 0;
    HostList used;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (new_index[i] < 0) continue;
        new_index[i] = static_cast<int>(used.size());
        used.push_back(hosts[i]);
    }
    for (int& host : host_of) host = new_index[static_cast<std::size_t>(host)];
    return used;
}

int slot_id(const Host& host, int local_rank) {
    if (host.slot_ids.empty()) return local_rank % host.slots;
    return host.slot_ids[static_cast<std::size_t>(local_rank) % host.slot_ids.size()];
}

void number_locally(Placement& placement) {
    std::vector<int> local_size(placement.hosts.size());
    for (RankPlace& place : placement.ranks) {
        const auto host = static_cast<std::size_t>(place.host);
        place.local_rank = local_size[host]++;
        place.slot = slot_id(placement.hosts[host], place.local_rank);
    }
    for (RankPlace& place : placement.ranks)
        place.local_size = local_size[static_cast<std::size_t>(place.host)];
}

void number_across(Placement& placement) {
    // Ranks are visited host by host, since cross_rank counts hosts in their order.
    std::vector<std::size_t> by_host(placement.ranks.size());
    std::iota(by_host.begin(), by_host.end(), 0);
    std::stable_sort(by_host.begin(), by_host.end(), [&](std::size_t a, std::size_t b) {
        return placement.ranks[a].host < placement.ranks[b].host;
    });
    std::vector<int> cross_size;  // by local rank
    for (const std::size_t i : by_host) {
        RankPlace& place = placement.ranks[i];
        const auto local_rank = static_cast<std::size_t>(place.local_rank);
        if (local_rank >= cross_size.size()) cross_size.resize(local_rank + 1);
        place.cross_rank = cross_size[local_rank]++;
    }
    for (RankPlace& place : placement.ranks)
        place.cross_size = cross_size[static_cast<std::size_t>(place.local_rank)];
}

}  // namespace

Result<Placement> place_ranks(const HostList& hosts, const PlacementRequest& request) {
    const auto world_size = choose_world_size(hosts, request, sum(hosts, slots_of));
    if (!world_size) return std::unexpected(world_size.error());
    return place_on(hosts, assign(capacities(hosts, *world_size), *world_size, request.map_by));
}

Placement place_on(const HostList& hosts, std::vector<int> host_of) {
    Placement placement;
    placement.hosts = keep_used(hosts, host_of);
    placement.ranks.resize(host_of.size());
    for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
        placement.ranks[rank].rank = static_cast<int>(rank);
        placement.ranks[rank].host = host_of[rank];
    }
    number_locally(placement);
    number_across(placement);
    return placement;
}

}  // namespace dtrun
