#pragma once

#include "base/result.h"
#include "launcher/output/output_mux.h"
#include "launcher/plan/job_plan.h"

#include <string>
#include <string_view>

namespace dtrun::output {

/// What a job's OutputMux is to show and which files it is to write. Makes torchrun's folder for
/// this run, under a new name, and its parents; without --log-dir its parent is new, too, and a
/// warning names that. Removes what restarts of an earlier job have left in --output-dir.
/// \param job_id  what torchrun's folder is called after without a --rdzv-id
/// Errc: invalid_input, internal (a folder; the message names it and the flag)
Result<OutputOptions> output_options(const plan::JobSpec& spec, std::string_view job_id);

/// The same for ranks that have been added to the job.
/// \param first  the first of them
MoreSlots more_slots(const plan::JobSpec& spec, plan::SlotId first);

/// The first line of the job in a log.
std::string log_begin(const plan::JobSpec& spec, std::string_view job_id);

/// `text` in which "${role_name}" and "${local_rank}", also without braces, are replaced, and
/// "$rank" has got braces.
std::string expand_line_prefix(std::string text, std::string_view role, std::uint32_t local_rank);

}  // namespace dtrun::output
