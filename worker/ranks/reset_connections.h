#pragma once

#include <sys/types.h>
#include <array>
#include <compare>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// One end of a TCP connection, which somebody listens at.
struct Endpoint {
    std::array<std::uint8_t, 16> address{};  ///< IPv4 as ::ffff:a.b.c.d
    std::uint16_t port = 0;

    auto operator<=>(const Endpoint&) const = default;
};

/// Which connections are to be ended.
struct ConnectionSet {
    std::vector<std::string> addresses{};  ///< those to these; numeric, IPv4 or IPv6
    std::set<Endpoint> endpoints{};        ///< those that have one of these as either end
};

/// What reset_connections() has done.
struct ResetResult {
    std::uint32_t connections = 0;  ///< that were shut down
    int error = 0;  ///< errno, if the kernel has kept us from a process; others were still tried
};

/// Shuts down such TCP connections of these processes, also those that are being made: whoever waits in one
/// gets the end of file, or EPIPE, at once.
///
/// A host that has gone silent leaves its peers in recv() until a timeout of their library or of TCP itself,
/// from 30 s to hours. Their sockets cannot be reached from outside but by a duplicate of the descriptor
/// (pidfd_getfd), for which a process must be ours and dumpable. RDMA and shared memory are out of reach.
ResetResult reset_connections(std::span<const pid_t> processes, const ConnectionSet& what);

/// Why reset_connections() cannot work here, for the user; empty if nothing speaks against it.
std::string why_no_reset();

}  // namespace dtrun::ranks
