#pragma once

#include "base/result.h"
#include "lab/plan/plan.h"
#include "lab/report/words.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <string>

namespace dtrun::lab {

inline constexpr const char* kRankProgram = "dtrun-bench-rank";

/// What is measured, and where. All of it outlives the run.
struct LabJob {
    const BenchCommand& command;
    const plan::Options& options;
    plan::EnvironmentView environment;
    const LabPlaces& places;
    const std::string& hostfile;  ///< that runs read; empty: none
    const std::string& rank_program;
    std::string typed;  ///< for the report
};

/// Asks the hosts what they have, measures every shape, shows rows as they come, and writes the
/// reports. Where hosts cannot be reached, shapes that need no more than the first of them are
/// measured.
/// \return the exit code, as run_bench_command()
int run_lab(const LabJob& job);

/// Prints an error. \return the exit code
int complain_of(const Error& error, Language language);

/// The message of a failed run, the most useful first, in a few lines.
/// \param said    the rank program's "error" lines
/// \param errors  the end of its standard error
std::string failure_text(int status, const std::string& said, const std::string& errors);

}  // namespace dtrun::lab
