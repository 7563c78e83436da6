#pragma once

#include "base/result.h"
#include "launcher/plan/options.h"

namespace dtrun::cli {

/// Looks for flags that contradict --mpi: with `mpirun` those that only dtrun's own agents can
/// honour, else those that are mpirun's.
/// \return invalid_input that names all of them
Result<void> check_mpirun_options(const plan::Options& options);

}  // namespace dtrun::cli
