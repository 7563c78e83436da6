#pragma once

#include "collectives/host/host_group.h"
#include "collectives/topology.h"

#include <memory>
#include <string>

namespace dtrun::collectives {

/// How the ranks of a group are spread over hosts, as far as they can make use of it.
struct HostTopology {
    Topology topology;  ///< ranks that cannot share memory are apart
    std::unique_ptr<HostGroup>
        host;               ///< of this rank's host; nullptr if it has no other rank there
    std::string why_apart;  ///< why ranks of one host do not share memory; "" if all do
};

/// Finds out which hosts' ranks can share memory, and lets them. All ranks of the group call it.
/// \param locality  where this rank is bound to
/// Errc: those of Group
Result<HostTopology> find_host_topology(const GroupSpec& spec, Group& group,
                                        Locality locality = own_locality());

}  // namespace dtrun::collectives
