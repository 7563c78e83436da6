#include "collectives/topology.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace dtrun::collectives {

Topology::Topology(std::uint32_t rank, std::vector<std::uint32_t> host_of)
    : rank_(rank), host_of_(std::move(host_of)) {
    std::map<std::uint32_t, std::uint32_t> numbers;
    for (std::uint32_t one = 0; one < host_of_.size(); ++one) {
        const auto next = static_cast<std::uint32_t>(numbers.size());
        const std::uint32_t host = numbers.emplace(host_of_[one], next).first->second;
        host_of_[one] = host;
        if (host == ranks_.size()) ranks_.emplace_back();
        place_of_.push_back(static_cast<std::uint32_t>(ranks_[host].size()));
        ranks_[host].push_back(one);
    }
    const auto fewest =
        std::ranges::min_element(ranks_, {}, [](const auto& ranks) { return ranks.size(); });
    rails_ = static_cast<std::uint32_t>(fewest->size());
}

std::uint32_t Topology::places_max() const {
    const auto most =
        std::ranges::max_element(ranks_, {}, [](const auto& ranks) { return ranks.size(); });
    return static_cast<std::uint32_t>(most->size());
}

Topology Topology::apart(std::uint32_t rank, std::uint32_t size) {
    std::vector<std::uint32_t> hosts(size);
    std::iota(hosts.begin(), hosts.end(), 0U);
    return {rank, std::move(hosts)};
}

std::vector<std::uint32_t> Topology::carried_by(std::uint32_t rail) const {
    std::vector<std::uint32_t> carried;
    for (const auto& ranks : ranks_)
        for (const std::uint32_t rank : ranks)
            if (place_of_[rank] % rails_ == rail) carried.push_back(rank);
    return carried;
}

}  // namespace dtrun::collectives
