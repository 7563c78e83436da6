#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <string>
#include <vector>

namespace dtrun::commands {

/// `dtrun config`: which options are set before anything is typed, and where.
struct ParsedConfig : cli::ParsedArgs {
    struct {
        std::vector<std::string> operands;  ///< [show]
        std::string profile;                ///< empty: DTRUN_PROFILE
    } own;
};

const cli::FlagTable<ParsedConfig>& config_flags();
/// \return the process's exit status
int run_config(cli::Words words, plan::EnvironmentView environment);
std::string config_help();

}  // namespace dtrun::commands
