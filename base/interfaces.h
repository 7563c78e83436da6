#pragma once

#include <string>
#include <vector>

struct sockaddr;

namespace dtrun {

/// One entry of the kernel's list of network interfaces.
struct InterfaceAddress {
    std::string interface;    ///< e.g. "eth0"
    std::string address;      ///< numeric, without a scope; empty: none of IPv4 or IPv6
    bool loopback = false;    ///< the interface is the loopback
    bool up = true;           ///< the interface is up
    bool link_local = false;  ///< IPv6 fe80::/10, which means nothing without a scope

    bool is_ipv6() const { return address.find(':') != std::string::npos; }
};

/// The addresses of this machine at which something could reach it: of interfaces that are up, IPv4
/// first, link-local IPv6 left out.
std::vector<InterfaceAddress> interface_addresses();

/// The kernel's whole list, in its order: also interfaces that are down or have no address, and
/// link-local addresses. Empty if the kernel gives none.
std::vector<InterfaceAddress> all_interfaces();

/// The address of this machine from which packets to `address` (numeric) would go, numeric; empty if
/// there is no route. Nothing is sent.
std::string address_towards(const std::string& address);

/// Whether the text is a numeric IPv4 or IPv6 address, without a scope.
bool is_numeric_address(const std::string& text);

/// IPv4 or IPv6 as a number, without a scope; empty for any other family.
std::string numeric(const sockaddr* address);
/// What connections of one machine have in common: its IPv4 address, or its IPv6 /64 network, all of whose
/// addresses it may use.
std::string origin_of(const sockaddr* address);

/// This machine's host name, as the kernel has it.
std::string host_name();

}  // namespace dtrun
