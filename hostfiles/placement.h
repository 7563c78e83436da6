#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <optional>
#include <vector>

namespace dtrun {

enum class MapBy {
    slot,  ///< fill a host, then go to the next (block)
    node,  ///< one rank on each host in turn (cyclic)
};

/// Where one rank runs, in the terms of Horovod and MPI (see DESIGN: local_rank is the index on the
/// host, cross_rank the index of the host among the hosts that have this local_rank).
struct RankPlace {
    int rank = 0;
    int host = 0;        ///< index into Placement::hosts
    int local_rank = 0;  ///< 0..local_size-1, growing with rank on a host
    int local_size = 0;
    int cross_rank = 0;
    int cross_size = 0;
    int slot = 0;  ///< the slot's id on its host: an accelerator's number, where it matters

    bool operator==(const RankPlace&) const = default;
};

struct Placement {
    HostList hosts;                ///< those that run at least one rank, in the given order
    std::vector<RankPlace> ranks;  ///< [world_size], sorted by rank
    int world_size() const { return static_cast<int>(ranks.size()); }
};

struct PlacementRequest {
    std::optional<int> world_size;  ///< 1..kRanksMax; nothing: all slots
    MapBy map_by = MapBy::slot;
    /// Allows more ranks than slots: in every round each host gets as many again as it has slots,
    /// at most slots_max in all; map_by then numbers the ranks (slot: a host's ranks stay
    /// together).
    bool oversubscribe = false;
};

/// Maps ranks to hosts.
/// \return invalid_input with the arithmetic when there are too few slots:
///         "18 ranks but 16 slots (s1:4 + s2:4 + s3:4 + s4:4 = 16); lower -np, add hosts, or --oversubscribe"
Result<Placement> place_ranks(const HostList& hosts, const PlacementRequest& request);

/// Places ranks on hosts that were chosen for them; a host without ranks is left out.
/// \param host_of  [rank] index into `hosts`
Placement place_on(const HostList& hosts, std::vector<int> host_of);

}  // namespace dtrun
