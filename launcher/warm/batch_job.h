#pragma once

#include "base/fd.h"

#include <string>

namespace dtrun::warm {

/// The batch job in which this process runs, "SLURM_JOB_ID=17"; empty: in none.
std::string batch_job_here();

/// A descriptor that is readable once a batch job in which this process runs has ended on this machine: with the outermost of
/// the processes that have led to this one and were started in the job, as its script. None: there is no such process
/// but this one, or this kernel cannot say (before 5.3).
/// \param job  of batch_job_here(); empty: in none
Fd end_of_batch_job(const std::string& job);

}  // namespace dtrun::warm
