#pragma once

#include "launcher/cli/cli.h"
#include "launcher/plan/environment.h"

namespace dtrun::commands {

/// `dtrun serve`, until a signal ends it. \return the process's exit status
int run_serve(const cli::ServeOptions& options, plan::EnvironmentView environment);

}  // namespace dtrun::commands
