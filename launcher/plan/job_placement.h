#pragma once

#include "base/result.h"
#include "hostfiles/placement.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/host_offer.h"
#include "launcher/plan/options.h"

namespace dtrun::plan {

/// Says of each rank on which of the hosts that are offered it runs, and in offer.sources what has decided that.
/// Errc: invalid_input, not_found or denied (a rankfile)
Result<Placement> place_job(const Options& options, Offer& offer, EnvironmentView caller);

/// Where a host of the allocation has more ranks than tasks of the batch system's, its processors are shared out
/// among them: allocation.cpus_per_rank, and SLURM_CPUS_PER_TASK where the ranks have that.
void share_processors(Allocation& allocation, const Placement& placement, EnvironmentPlan& env);

}  // namespace dtrun::plan
