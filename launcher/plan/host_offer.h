#pragma once

#include "base/result.h"
#include "hostfiles/allocation.h"
#include "hostfiles/rankfile.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/host_shape.h"
#include "launcher/plan/options.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrun::plan {

/// Where the numbers of a job came from, for a person.
struct Sources {
    std::string hosts;
    std::string slots;
    std::string world_size;
};

/// Where ranks may run, before anything is chosen: all that files, scripts and this machine say of it.
struct Offer {
    HostList hosts;
    Sources sources{};
    /// Of the scheduler around us, whether or not it is used.
    std::optional<Allocation> allocation{};
    bool from_allocation = false;
    std::vector<std::string>
        discovery{};  ///< command that lists the hosts, again and again; empty: they stay
    std::vector<RankLine> ranks{};  ///< --rankfile: where each rank runs
    MachineFacts here{};            ///< if the shape of the job asks for them

    /// The allocation that the hosts are from; nullptr: they are not.
    const Allocation* used() const { return from_allocation ? &*allocation : nullptr; }
    bool in_slurm() const { return allocation && allocation->scheduler == Scheduler::slurm; }
};

/// The hosts that are named, else those of an allocation, else this machine.
/// Errc: invalid_input, not_found or denied (a file), and what a discovery script failed with
Result<Offer> find_hosts(const Options& options, EnvironmentView caller);

}  // namespace dtrun::plan
