#pragma once

#include "launcher/cli/cli.h"
#include "launcher/plan/environment.h"

#include <string>

namespace dtrun::commands {

/// `dtrun store` and `dtrun status`. \return the process's exit status
int run_store_command(const cli::StoreCommand& command, plan::EnvironmentView environment);

/// What `dtrun status` shows of the daemon's answer. Names are members' own words, and shown so that no
/// terminal obeys them. \param text  JSON
std::string status_table(const std::string& text);

}  // namespace dtrun::commands
