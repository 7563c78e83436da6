#pragma once

#include "launcher/cli/cli.h"
#include "launcher/plan/environment.h"

namespace dtrun {

/// `dtrun serve`, until a signal ends it. \return the process's exit status
int run_serve(const ServeOptions& options, EnvironmentView environment);

}  // namespace dtrun
