#pragma once

#include "base/result.h"
#include "launcher/doctor/doctor_report.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/job_plan.h"

#include <chrono>

namespace dtrun::doctor {

/// How long a host that is examined may take to be reached, unless the user says.
inline constexpr std::chrono::milliseconds kExamineTimeout{5'000};

/// The plan of a job that runs nothing.
Result<plan::JobSpec> plan_of_examination(plan::Options options, plan::EnvironmentView environment);

/// Examines the hosts of a plan. Name look-ups that hang may live on until the process ends.
Result<DoctorReport> examine(plan::JobSpec& spec);

/// Ends the process: a name look-up that hangs would keep it.
[[noreturn]] void leave_examination(int status);

}  // namespace dtrun::doctor
