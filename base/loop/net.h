#pragma once

#include "base/loop/asio.h"

#include <string>
#include <vector>

namespace dtrun {

/// Numeric text of an address; IPv4 that arrived over an IPv6 socket ("::ffff:10.0.0.1") as IPv4.
std::string numeric(const asio::ip::address& address);

/// Numeric addresses of a connection's ends; "0.0.0.0" once it is closed.
std::string remote_address(const tcp::socket& socket);
std::string local_address(const tcp::socket& socket);

/// The address of this machine from which packets to `address` (numeric) would go; empty if there is
/// no way. Nothing is sent.
std::string address_towards(const std::string& address);

struct InterfaceAddress {
    std::string interface;  ///< e.g. "eth0"
    std::string address;    ///< numeric, without a scope
    bool loopback = false;
};

/// Addresses of this machine's interfaces that are up, IPv4 first, link-local IPv6 left out.
std::vector<InterfaceAddress> interface_addresses();

/// This machine's host name, as the kernel has it.
std::string host_name();

}  // namespace dtrun
