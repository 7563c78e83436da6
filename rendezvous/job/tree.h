#pragma once

#include "base/numbered.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace dtrun {

/// The tree of connections: up to a threshold every host connects to the head. Above it the first
/// sqrt(hosts) hosts do, and relay for the others, so that no node has more than about sqrt(hosts). Hosts that
/// come later connect to the head.
class Tree {
public:
    Tree(std::uint32_t hosts, std::uint32_t threshold) : hosts_(hosts) {
        if (hosts > threshold && hosts > 2)
            relays_ = static_cast<std::uint32_t>(std::ceil(std::sqrt(static_cast<double>(hosts))));
    }

    bool is_relay(HostId host) const { return std::to_underlying(host) < relays_; }

    /// The relay of a host; nothing if it connects to the head.
    std::optional<HostId> parent(HostId host) const {
        if (relays_ == 0 || is_relay(host) || !is_below(host, hosts_)) return std::nullopt;
        const std::uint64_t behind = hosts_ - relays_;
        const std::uint64_t place = std::to_underlying(host) - relays_;  // among those behind one
        return static_cast<HostId>(place * relays_ / behind);
    }

private:
    std::uint32_t hosts_ = 0;
    std::uint32_t relays_ = 0;
};

}  // namespace dtrun
