#pragma once

#include <string>
#include <vector>

namespace dtrun::collectives {

/// Network interfaces that ranks are to use, from the environment: DTRUN_NETWORK_INTERFACE, which
/// users set, else what the launcher has told frameworks. Empty: nothing is said.
std::vector<std::string> interfaces_from_environment();

/// The address at which other hosts reach this one: that of the first of `interfaces` that has one,
/// else the source address of the route to MASTER_ADDR; "" if neither is known.
std::string own_address(const std::vector<std::string>& interfaces);

/// Whether this host has an InfiniBand port that works. \param folder  of the system
bool has_infiniband(const std::string& folder = "/sys/class/infiniband");

/// "a,b" -> a, b; blanks and empty names are dropped.
std::vector<std::string> split_names(const std::string& text);

}  // namespace dtrun::collectives
