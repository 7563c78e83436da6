#pragma once

#include "launcher/plan/job_plan.h"
#include "launcher/report/outcome.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::report {

/// The last lines of a rank's standard error.
using TailOf = std::function<std::vector<std::string>(plan::SlotId rank)>;

/// Whether whoever reads the report has the last lines of a rank's standard error before his eyes.
/// \param lines  how many
using IsOnScreen = std::function<bool(plan::SlotId rank, std::size_t lines)>;

/// What is told to the user at the end of a job that did not succeed: one screen, whose first line begins with
/// "dtrun: " and all others with two blanks, without control characters. Where it is known what helps, the last says
/// it (cures.h). Empty for success.
/// \param is_on_screen  lines that are there are not repeated; empty: none are
std::string failure_report(const JobOutcome& outcome, const plan::JobSpec& spec,
                           const plan::RankNumbers& numbers, const TailOf& tail,
                           const IsOnScreen& is_on_screen = {});

/// Hosts that failed, grouped by what failed: "s3, s4: connection refused ...".
std::string host_failures_text(const std::vector<HostFailure>& failures, const plan::JobSpec& spec);

}  // namespace dtrun::report
