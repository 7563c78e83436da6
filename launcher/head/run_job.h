#pragma once

#include "launcher/head/start_teller.h"
#include "launcher/plan/job_plan.h"

namespace dtrun::head {

/// Runs a job for the user of this process: hosts are reached as planned, agents connect over TCP, output
/// goes to standard output and standard error, and signals of the process are the job's.
/// \param teller  who waits for the start of a detached one
/// \return dtrun's exit status. What is still under way then ends with the process.
int run_job(plan::JobSpec& spec, StartTeller& teller);

}  // namespace dtrun::head
