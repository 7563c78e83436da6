#pragma once

#include "launcher/plan/job_plan.h"

namespace dtrun::head {

/// Runs a job for the user of this process: hosts are reached as planned, agents connect over TCP, output
/// goes to standard output and standard error, and signals of the process are the job's.
/// \return dtrun's exit status. What is still under way then ends with the process.
int run_job(plan::JobSpec& spec);

}  // namespace dtrun::head
