#pragma once

#include "hostfiles/allocation.h"
#include "launcher/plan/environment.h"

namespace dtrun::plan {

/// The batch system's allocation in which this process runs, with files and commands read as
/// AllocationInput wants them.
/// \param environment  outlives the call
/// Errc: as find_allocation(), and timed_out (a scheduler's command)
Result<std::optional<Allocation>> allocation_here(EnvironmentView environment);

/// Whether it finds one. One that cannot be read counts, for reading it again tells why.
bool has_allocation(EnvironmentView environment);

/// Slurm's alone. Errc: as find_allocation()
Result<std::optional<Allocation>> slurm_here(EnvironmentView environment);

}  // namespace dtrun::plan
