#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <string_view>

namespace dtrun {

/// Keeps or removes hosts and slots by DeepSpeed's documented grammar:
/// NODE[@NODE...], NODE = name[:slot[,slot...]]; a name without ':' means all of its slots; a name
/// may be a range n[01-04]. Repeated names merge. The result keeps the order of `hosts`, with
/// `slot_ids` set where a filter chose slots, and hosts without slots dropped.
/// \param include, exclude  at most one non-empty
/// \return invalid_input naming the host or slot that is not there (with "did you mean"), both
///         filters given, or nothing left
Result<HostList> filter_hosts(const HostList& hosts, std::string_view include,
                              std::string_view exclude);

}  // namespace dtrun
