#pragma once

#include "base/result.h"
#include "launcher/plan/job_plan.h"

#include <string>

namespace dtrun::plan {

/// What to do about two hosts of a job that are one machine, where each rank would have a twin with the same LOCAL_RANK
/// and device.
inline constexpr char kOneMachineAdvice[] =
    "give it one name, with all its slots, or --oversubscribe if its ranks are to share devices "
    "and "
    "processors";

/// Fails if two hosts of the job are this machine, by two names, unless ranks may share it (--oversubscribe).
/// Errc: invalid_input
Result<void> check_one_machine(const JobSpec& spec);

}  // namespace dtrun::plan
