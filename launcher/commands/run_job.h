#pragma once

#include "base/result.h"
#include "launcher/cli/run.h"
#include "launcher/plan/environment.h"

#include <string>
#include <string_view>

namespace dtrun::commands {

/// What a person has typed, for who wants to type it again.
struct Typed {
    std::string_view command;  ///< "torchrun"; "run" may be left out
    cli::Words words;          ///< behind that
};

/// Carries out a command whose words amount to a job: starts its ranks and waits for them, or for their start if the
/// job is detached, or shows its plan, or becomes the site's mpirun.
/// \param command  what its parser has returned
/// \return the process's exit status
int run_job(const Typed& typed, Result<cli::RunCommand> command, std::string (*help)(),
            plan::EnvironmentView environment);

}  // namespace dtrun::commands
