#pragma once

#include "launcher/cli/flags.h"
#include "launcher/cli/run.h"
#include "launcher/plan/environment.h"

#include <string>

namespace dtrun::commands {

/// `dtrun hold` and `dtrun release`: log-ins that stay for later jobs. Hosts are named as for a job.
struct ParsedHold : cli::ParsedRun {
    bool list = false;  ///< hold
};

const cli::FlagTable<ParsedHold>& hold_flags();
const cli::FlagTable<ParsedHold>& release_flags();

/// \return the process's exit status
int run_hold(cli::Words words, plan::EnvironmentView environment);
int run_release(cli::Words words, plan::EnvironmentView environment);

std::string hold_help();
std::string release_help();

}  // namespace dtrun::commands
