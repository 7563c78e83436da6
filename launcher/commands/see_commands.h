#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"
#include "launcher/watch/top_text.h"

#include <chrono>
#include <string>
#include <vector>

namespace dtrun::commands {

/// `dtrun jobs`, `dtrun top` and `dtrun end`: what runs here, and its end.
struct SeeCommand {
    std::vector<std::string> operands;  ///< jobs: [HOST[:PORT]], --all [JOB]; top: [JOB]; end: JOB
    bool json = false;                  ///< jobs, top
    bool all = false;                   ///< jobs
    bool once = false;                  ///< top
    bool now = false;                   ///< end
    watch::TopOrder order = watch::TopOrder::trouble;  ///< top
    std::chrono::milliseconds interval{2'000};         ///< top
    plan::DaemonArgs daemon;                           ///< jobs
};

struct ParsedSee : cli::ParsedArgs {
    SeeCommand own;
};

const cli::FlagTable<ParsedSee>& end_flags();
const cli::FlagTable<ParsedSee>& top_flags();
const cli::FlagTable<ParsedSee>& jobs_flags();
/// Errc: invalid_input
Result<ParsedSee> parse_jobs(cli::Words words);
Result<ParsedSee> parse_top(cli::Words words);
Result<ParsedSee> parse_end(cli::Words words);

/// \return the process's exit status
int run_jobs(cli::Words words, plan::EnvironmentView environment);
int run_top(cli::Words words, plan::EnvironmentView environment);
int run_end(cli::Words words, plan::EnvironmentView environment);

std::string jobs_help();
std::string top_help();
std::string end_help();

}  // namespace dtrun::commands
