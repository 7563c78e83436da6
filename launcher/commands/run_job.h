#pragma once

#include "base/result.h"
#include "launcher/cli/run.h"
#include "launcher/plan/environment.h"

#include <string>

namespace dtrun::commands {

/// Carries out a command whose words amount to a job: starts its ranks and waits for them, or shows
/// its plan, or becomes the site's mpirun.
/// \param command  what its parser has returned
/// \return the process's exit status
int run_job(Result<cli::RunCommand> command, std::string (*help)(),
            plan::EnvironmentView environment);

}  // namespace dtrun::commands
