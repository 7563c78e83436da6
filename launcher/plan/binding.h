#pragma once

#include "hostfiles/allocation.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::plan {

/// What the agents of a job are told of their ranks' processors, less how many ranks they have.
///
/// Nothing is bound where nothing is asked for. --map-by of a part of hosts binds to that, as a rank could not stay
/// there otherwise, and --cpus-per-rank to cores.
BindingRequest binding_request(const Options& options);

/// What a type of --cpu-bind, such as "cores", is here; nullopt: a list of masks, or no such type.
std::optional<BindTo> bind_to_of_slurm(std::string_view type);

/// Takes what the user has told Slurm of binding (SLURM_CPU_BIND) for the ranks, unless the command line says
/// anything of that.
/// \param notes  gets what is to be told to the user
BindingOptions follow_slurm(BindingOptions binding, EnvironmentView caller,
                            std::vector<std::string>& notes);

/// "--bind-to core --map-by numa", for people and for mpirun.
std::vector<std::string> binding_words(const BindingRequest& request);

}  // namespace dtrun::plan
