#pragma once

#include "launcher/cli/flags.h"
#include "launcher/cli/run.h"
#include "launcher/plan/environment.h"

#include <string>

namespace dtrun::commands {

/// `dtrun doctor`: what is wrong with hosts before a job finds out.
struct ParsedDoctor : cli::ParsedRun {
    bool json = false;  ///< --json
};

const cli::FlagTable<ParsedDoctor>& doctor_flags();
/// \return the process's exit status: 0 if all is well, 1 if something is to be mended
int run_doctor(cli::Words words, plan::EnvironmentView environment);
std::string doctor_help();

}  // namespace dtrun::commands
