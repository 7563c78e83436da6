#pragma once

#include "base/result.h"
#include "launcher/cli/run.h"
#include "launcher/plan/environment.h"

#include <string>

namespace dtrun::commands {

/// `dtrun join`: ranks on this machine that belong to a daemon's job. Errc: invalid_input
Result<cli::RunCommand> parse_join(cli::Words words, plan::EnvironmentView environment);

std::string join_help();
std::span<const cli::Flag> join_options();

}  // namespace dtrun::commands
