#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/job_policy.h"
#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <vector>

namespace dtrun {

/// What a host can give to the next world.
struct HostOffer {
    HostId host{};
    /// Where processes live on, in the order of their local ranks.
    std::vector<SlotIndex> survivors{};
    std::vector<SlotIndex> vacant{};  ///< where a process can be started, ascending
};

/// One rank of a world.
struct RankAssignment {
    HostId host{};
    RankSlot rank{};     ///< but for its `slot`
    bool fresh = false;  ///< its process is to be started

    bool operator==(const RankAssignment&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("rank", m.rank), f("fresh", m.fresh);
    }
};

/// The largest size that is allowed and not above `ranks`; 0 if there is none.
std::uint32_t allowed_size(const WorldSizes& sizes, std::uint32_t ranks);

/// Gives ranks to as many slots as may have one.
///
/// Ranks are blocks: one host after the other, on each in the order of places, so that local ranks stay with
/// their devices. Survivors have a rank before anybody else. Hosts with survivors come before those without, and
/// on the first the survivors come first if its first place is vacant: rank 0, from which frameworks copy the
/// state of the training, is never a fresh process as long as one lives on.
/// \param hosts  in the order in which they came to the job
/// \return by rank; empty if no size that is allowed is small enough
std::vector<RankAssignment> plan_world(std::vector<HostOffer> hosts, const WorldSizes& sizes);

}  // namespace dtrun
