#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace dtrun {

/// The tree of connections: up to a threshold every host connects to the head. Above it the first
/// sqrt(hosts) hosts do, and relay for the others, so that no node has more than about sqrt(hosts).
class Tree {
public:
    Tree(std::uint32_t hosts, std::uint32_t threshold) : hosts_(hosts) {
        if (hosts > threshold && hosts > 2)
            relays_ = static_cast<std::uint32_t>(std::ceil(std::sqrt(static_cast<double>(hosts))));
    }

    bool is_relay(std::uint32_t host) const { return host < relays_; }

    /// The relay of a host; nothing if it connects to the head.
    std::optional<std::uint32_t> parent(std::uint32_t host) const {
        if (relays_ == 0 || is_relay(host)) return std::nullopt;
        const std::uint64_t behind = hosts_ - relays_;
        return static_cast<std::uint32_t>(std::uint64_t(host - relays_) * relays_ / behind);
    }

private:
    std::uint32_t hosts_ = 0;
    std::uint32_t relays_ = 0;
};

}  // namespace dtrun
