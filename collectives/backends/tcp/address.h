#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <sys/socket.h>

#include <string>
#include <string_view>

namespace dtrun::collectives::over_tcp {

/// The address at which other ranks reach this one.
struct LocalAddress {
    std::string ip;
    std::string interface;  ///< "" if no interface has the address
};

/// Chooses the address of the first of spec.interfaces that has one, else spec.address, else that
/// of the first interface that is up and not the loopback. Names are never looked up: on many hosts
/// the host's own name means 127.0.1.1.
/// Errc: invalid_input, with the interfaces that there are
Result<LocalAddress> choose_address(const GroupSpec& spec);

/// "10.0.0.3 4711", as it is published for the others.
std::string text_of(const sockaddr_storage& address);
/// Errc: invalid_input
Result<sockaddr_storage> parse_address(std::string_view text);

}  // namespace dtrun::collectives::over_tcp
