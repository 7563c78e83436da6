#include "collectives/host/host_topology.h"

#include <utility>
#include <vector>

namespace dtrun::collectives {

Result<HostTopology> find_host_topology(const GroupSpec& spec, Group& group, Locality locality) {
    HostTopology made;
    if (spec.topology.places() > 1) {
        auto host = HostGroup::join(spec, locality);
        if (host)
            made.host = std::move(*host);
        else if (host.error().code == Errc::not_found)
            made.why_apart = host.error().message;
        else
            return std::unexpected(host.error());
    }
    // Whoever shares nothing counts as a host of its own, which all ranks have to know.
    std::vector<std::uint32_t> host_of(spec.size);
    const bool apart = spec.topology.places() > 1 && made.host == nullptr;
    host_of[spec.rank] = apart ? spec.size + spec.rank : spec.topology.host();
    const std::uint32_t own = host_of[spec.rank];
    auto told = group.allgather_on_host(&own, host_of.data(), sizeof own);
    if (!told) return std::unexpected(told.error());
    made.topology = Topology(spec.rank, std::move(host_of));
    return made;
}

}  // namespace dtrun::collectives
