#pragma once

#include "base/interfaces.h"
#include "base/result.h"

#include <span>
#include <string>
#include <vector>

namespace dtrun::collectives::nccl {

/// NCCL's settings for its sockets.
struct SocketSettings {
    std::string interfaces;  ///< of NCCL_SOCKET_IFNAME: "=eth0,eth1"; "" for its own choice
    bool ipv6 = false;       ///< IPv6 only: NCCL_SOCKET_FAMILY
};

/// \param wanted   interfaces in order of preference, or addresses; of which this host need not have
///                 all. Empty: the interface of `address`, if it is on this host
/// \param address  at which others reach this host; "" if unknown, and nothing is said by the
///                loopback's
/// \param host     all_interfaces()
/// Errc: invalid_input (this host has nothing of what is wanted)
Result<SocketSettings> choose_sockets(std::span<const std::string> wanted,
                                      const std::string& address,
                                      std::span<const InterfaceAddress> host);

/// Sets the environment of this process, where the user has not: NCCL reads it once, when the first
/// communicator is made, so that later settings have no effect.
void export_sockets(const SocketSettings& settings);

}  // namespace dtrun::collectives::nccl
