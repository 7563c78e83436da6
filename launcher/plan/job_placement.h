#pragma once

#include "base/result.h"
#include "hostfiles/placement.h"
#include "launcher/plan/host_offer.h"
#include "launcher/plan/options.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrun::plan {

/// Where the ranks of a job run.
struct Placed {
    Placement placement;
    Sources sources{};
    std::optional<ElasticOptions> elastic{};  ///< what was asked for, in ranks
    int cpus_per_rank = 0;             ///< of what a batch system has given; 0: it has not said
    std::vector<std::string> notes{};  ///< for the user, each a line
};

/// Chooses hosts and their ranks, and checks that the job fits them. In an elastic job all slots are places
/// for ranks. Errc: invalid_input, with the arithmetic
Result<Placed> place_job(const Options& options, const Offer& offer);

}  // namespace dtrun::plan
