#pragma once

#include "lab/plan/options.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <string>
#include <vector>

namespace dtrun::lab {

/// `dtrun bench`: measures, or compares two reports.
/// \param words  as typed, without "dtrun"
/// \return the exit code: 0; 1 if a result was wrong or a run failed; 200 (plan::kExitUsage);
///         210 (a report cannot be written); 128+n after signal n
int run_bench_command(const BenchCommand& command, const plan::Options& options,
                      plan::EnvironmentView environment, const std::vector<std::string>& words);

/// The command for a report; values of -x stay secret.
std::string typed_command(const std::vector<std::string>& words);

}  // namespace dtrun::lab
