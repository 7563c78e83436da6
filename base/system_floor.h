#pragma once

#include <optional>
#include <string>

namespace dtrun {

/// What this system lacks without which nothing of dtrun works, with what to do; nothing: it has all of it. It is the
/// system that is tried and not its version asked for, since vendors give old kernels new calls, and containers
/// refuse calls that their kernel has.
std::optional<std::string> lacking_in_system();

}  // namespace dtrun
