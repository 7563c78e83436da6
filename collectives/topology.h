#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// Which ranks of a group share the memory of a host.
///
/// Hosts are numbered by their lowest rank. A rank's place is its number among those of its host. Ranks with
/// the same place, one on each host, are a rail: data that all hosts need are cut into one slice for each rail,
/// so that every host sends and receives each byte once. The host with the fewest ranks decides how many
/// rails there are; ranks beyond that only add and copy.
class Topology {
public:
    /// One rank.
    Topology() : Topology(0, {0}) {}
    /// \param host_of  by rank: equal numbers share a host
    Topology(std::uint32_t rank, std::vector<std::uint32_t> host_of);
    /// Every rank has a host of its own.
    static Topology apart(std::uint32_t rank, std::uint32_t size);

    std::uint32_t rank() const { return rank_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(host_of_.size()); }
    std::uint32_t hosts() const { return static_cast<std::uint32_t>(ranks_.size()); }
    std::uint32_t rails() const { return rails_; }

    std::uint32_t host_of(std::uint32_t rank) const { return host_of_[rank]; }
    std::uint32_t place_of(std::uint32_t rank) const { return place_of_[rank]; }
    /// Of this process's rank.
    std::uint32_t host() const { return host_of_[rank_]; }
    std::uint32_t place() const { return place_of_[rank_]; }

    /// Ranks of a host, by place.
    std::span<const std::uint32_t> ranks_of(std::uint32_t host) const { return ranks_[host]; }
    std::uint32_t places() const { return static_cast<std::uint32_t>(ranks_[host()].size()); }
    /// Ranks of the host that has most of them.
    std::uint32_t places_max() const;

    /// Ranks whose own parts of an array a rail carries, those of one host behind those of another. Each rank is
    /// carried by one rail, also where it is on none.
    std::vector<std::uint32_t> carried_by(std::uint32_t rail) const;

    bool one_host() const { return hosts() == 1; }
    /// No host has two ranks.
    bool is_apart() const { return hosts() == size(); }

private:
    std::uint32_t rank_;
    std::vector<std::uint32_t> host_of_;
    std::vector<std::uint32_t> place_of_;
    std::vector<std::vector<std::uint32_t>> ranks_;  ///< by host
    std::uint32_t rails_ = 1;
};

}  // namespace dtrun::collectives
