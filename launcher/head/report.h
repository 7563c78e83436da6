#pragma once

#include "launcher/head/job.h"
#include "launcher/plan/job_plan.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::head {

/// The last lines of a rank's standard error.
using TailOf = std::function<std::vector<std::string>(plan::PlannedRank rank)>;

/// What is told to the user at the end of a job that did not succeed: one screen, each line ends with
/// '\n' and begins with "dtrun: " or two blanks. Empty for success.
std::string failure_report(const JobOutcome& outcome, const plan::JobSpec& spec,
                           const plan::RankNumbers& numbers, const TailOf& tail);

/// A program's text without control characters, which could imitate other parts of a report or give orders
/// to a terminal.
std::string printable(std::string_view line);
/// The same for a text of several lines.
std::string printable_lines(std::string_view text);

/// Hosts that failed, grouped by what failed: "s3, s4: connection refused ...".
std::string host_failures_text(const std::vector<HostFailure>& failures, const plan::JobSpec& spec);

}  // namespace dtrun::head
