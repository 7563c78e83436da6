#pragma once

#include "base/result.h"
#include "launcher/mpirun/mpirun_command.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/job_plan.h"

#include <string>

namespace dtrun::mpirun {

/// Finds DTRUN_MPIRUN, else the first of mpirun and mpiexec that PATH has, and asks what it is.
/// Errc: not_found (none, or an unknown one), timed_out, invalid_input (it fails)
Result<MpirunProgram> find_mpirun(plan::EnvironmentView caller);

/// What --mpi mpirun amounts to here.
struct MpirunPlan {
    MpirunProgram mpirun;
    MpirunCommand command;
};
Result<MpirunPlan> plan_mpirun(const plan::JobSpec& spec, plan::EnvironmentView caller);

/// Becomes mpirun, so that signals, the terminal and the exit code are mpirun's own and nothing of
/// ours can stay behind: its hostfile is in memory.
/// \return only if that fails
Error run_mpirun(const plan::JobSpec& spec, const MpirunCommand& command);

}  // namespace dtrun::mpirun
