#pragma once

#include "base/loop/asio.h"

#include <string>

namespace dtrun {

/// Numeric text of an address; IPv4 that arrived over an IPv6 socket ("::ffff:10.0.0.1") as IPv4.
std::string numeric(const asio::ip::address& address);

/// Numeric addresses of a connection's ends; "0.0.0.0" once it is closed.
std::string remote_address(const tcp::socket& socket);
std::string local_address(const tcp::socket& socket);

}  // namespace dtrun
