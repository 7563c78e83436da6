#pragma once

#include "base/result.h"
#include "launcher/output/output_mux.h"
#include "launcher/plan/job_plan.h"

#include <string_view>

namespace dtrun::output {

/// What a job's OutputMux is to show and which files it is to write. Makes torchrun's folder for
/// this run, which has a name of its own, and what is above it; without --log-dir that is new too,
/// and a warning names it. Removes what restarts of an earlier job have left in --output-dir.
/// \param spec    outlives the OutputMux, which asks for names of files later
/// \param job_id  what torchrun's folder is called after without a --rdzv-id
/// Errc: denied, not_found, internal (a folder; the message names it and the flag)
Result<OutputOptions> output_options(const plan::JobSpec& spec, std::string_view job_id);

/// What the user wrote to have files of ranks.
std::string_view files_flag(const plan::RankOutput& output);

/// `text` in which "${role_name}" and "${local_rank}", also without braces, are replaced, and
/// "$rank" has got braces.
std::string expand_line_prefix(std::string text, std::string_view role, std::uint32_t local_rank);

}  // namespace dtrun::output
