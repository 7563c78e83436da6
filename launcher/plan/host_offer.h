#pragma once

#include "base/result.h"
#include "hostfiles/allocation.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/job_plan.h"
#include "launcher/plan/options.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrun::plan {

/// Where ranks may run, before anything is chosen.
struct Offer {
    HostList hosts;
    Sources sources;
    /// Of the scheduler around us, whether or not it is used.
    std::optional<Allocation> allocation;
    bool from_allocation = false;
};

/// The hosts that are named, else those of an allocation, else this machine.
/// Errc: invalid_input, not_found or denied (a file), and what a discovery script failed with
Result<Offer> find_hosts(const Options& options, EnvironmentView caller);

/// The command that lists the hosts of an elastic job as they are at that time; empty if they stay.
std::vector<std::string> discovery_of(const Options& options);

}  // namespace dtrun::plan
