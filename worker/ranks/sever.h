#pragma once

#include <sys/types.h>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// What sever() has done.
struct Severed {
    std::uint32_t connections = 0;  ///< that were shut down
    int error = 0;  ///< errno, if the kernel has kept us from a process; others were still tried
};

/// Shuts down all TCP connections of these processes to these addresses, also those that are being made:
/// whoever waits in one gets the end of file, or EPIPE, at once.
///
/// A host that has gone silent leaves its peers in recv() until a timeout of their library or of TCP itself,
/// from 30 s to hours. Their sockets cannot be reached from outside but by a duplicate of the descriptor
/// (pidfd_getfd), for which a process must be ours and dumpable. RDMA and shared memory are out of reach.
/// \param addresses  numeric, IPv4 or IPv6
Severed sever(std::span<const pid_t> processes, std::span<const std::string> addresses);

/// Why sever() cannot work here, for the user; empty if nothing speaks against it.
std::string why_not_sever();

}  // namespace dtrun::ranks
