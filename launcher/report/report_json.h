#pragma once

#include "launcher/report/report.h"

#include <boost/json/object.hpp>

namespace dtrun::report {

/// What failure_report() tells, and what it leaves out to be short, for programs: members of the document of --report,
/// which docs/JOBS.md lists. Text of others is as failure_report() has it, without control characters.
boost::json::object outcome_json(const JobOutcome& outcome, const plan::JobSpec& spec,
                                 const plan::RankNumbers& numbers, const TailOf& tail);

}  // namespace dtrun::report
