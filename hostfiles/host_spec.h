#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <string_view>

namespace dtrun {

/// Reads the value of -H: `h:4`, `h` (1 slot), `user@h:4`, `[::1]:4`, `user@[fe80::1]:2`, ranges
/// `n[01-16]:8` (slots for each), separated by commas that stand outside brackets. A host named
/// twice gets the sum of its slots, at the place of its first mention.
/// \return the hosts in order, or invalid_input with a message that starts "-H:1:<column>:"
Result<HostList> parse_hosts(std::string_view text);

}  // namespace dtrun
