#pragma once

#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <string>

namespace dtrun::lab {

/// `dtrun bench`: measures, or compares two reports.
/// \param words  behind "bench"
/// \return the exit code: 0; 1 if a result was wrong or a run failed; 200 (plan::kExitUsage);
///         210 (a report cannot be written); 128+n after signal n
int run_bench_command(cli::Words words, plan::EnvironmentView environment);

/// The command for a report; values of -x stay secret.
std::string typed_command(cli::Words words);

}  // namespace dtrun::lab
