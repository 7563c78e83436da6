#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

namespace dtrun {

/// Cuts every name at its first dot, "n1.example.com" to "n1"; numeric addresses stay whole. Hosts
/// that then have the same name become one, with the sum of their slots.
/// \param hosts  without slot_ids
/// \return invalid_input "--short: ..." if hosts that become one contradict each other
Result<HostList> shorten_names(const HostList& hosts);

/// Makes hosts of the same name one, at the place of the first, with the sum of their slots.
/// \param hosts  without slot_ids, if names repeat
/// \return invalid_input "<what>: ..." if they contradict each other
Result<HostList> merge_names(const HostList& hosts, std::string_view what);

/// Sorts by name as a person would: n2 before n10, n02 after n2. Hosts of one name keep their order.
void sort_naturally(HostList& hosts);

}  // namespace dtrun
