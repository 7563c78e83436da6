#pragma once

#include "base/result.h"
#include "launcher/plan/job_plan.h"

#include <string>

namespace dtrun::plan {

/// What to say of two hosts of a job that are one machine, where each rank would have a twin with the same
/// LOCAL_RANK and device.
std::string same_machine_text(const std::string& name, const std::string& other);

/// Fails if two hosts of the job are this machine, by two names. With --oversubscribe that is a warning.
/// Errc: invalid_input
Result<void> check_one_machine(const JobSpec& spec);

}  // namespace dtrun::plan
