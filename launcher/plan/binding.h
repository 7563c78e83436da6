#pragma once

#include "hostfiles/allocation.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <string>
#include <vector>

namespace dtrun::plan {

/// What the agents of a job are told of their ranks' processors, less how many ranks they have.
///
/// Nothing is bound where nothing is asked for. --map-by of a part of hosts binds to that, as a rank could not stay
/// there otherwise, and --cpus-per-rank to cores.
BindingRequest binding_request(const Options& options);

/// Takes what the user has told Slurm of binding (SLURM_CPU_BIND) for the ranks, unless the command line says
/// anything of that.
/// \return what is to be told to the user; empty: nothing
std::string follow_slurm(BindingOptions& binding, EnvironmentView caller);

/// "--bind-to core --map-by numa", for people and for mpirun.
std::vector<std::string> binding_words(const BindingRequest& request);

}  // namespace dtrun::plan
