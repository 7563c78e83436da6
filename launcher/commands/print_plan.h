#pragma once

#include "launcher/commands/plan_binding.h"
#include "launcher/mpirun/mpirun_run.h"
#include "launcher/plan/job_plan.h"

#include <string>

namespace dtrun::commands {

/// The whole map of a job, for a person: every rank with host, slot, address and user, the command,
/// the directory and the environment added; its values only with --verbose.
/// \param mpirun  with --mpi mpirun: what is run, as a person would type it; else nullptr
std::string plan_text(const plan::JobSpec& spec, const mpirun::MpirunPlan* mpirun = nullptr,
                      const PlannedBinding& binding = {});

/// The same for programs: one JSON object
/// {"world_size", "command", "directory", "sources", "environment", "hosts": [...], "ranks": [{"rank", "host",
/// "slot", "local_rank", "cross_rank", "world_size", "local_size", "cross_size", "address", "user"}]},
/// and with --mpi mpirun "mpirun": {"name", "command", "environment", "hostfile"}. Values of the first
/// "environment" are null without --verbose.
std::string plan_json(const plan::JobSpec& spec, const mpirun::MpirunPlan* mpirun = nullptr,
                      const PlannedBinding& binding = {});

}  // namespace dtrun::commands
