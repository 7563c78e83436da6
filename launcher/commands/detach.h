#pragma once

#include "launcher/head/start_teller.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <optional>
#include <string_view>

namespace dtrun::commands {

/// Goes on in a process of its own, which neither the terminal nor its end can reach, while this one waits until the job
/// has started, or cannot. To be called before there are threads.
/// \param teller  of the new process: tells this one
/// \return in this process its exit code; in the new one nothing
std::optional<int> detach(const plan::Options& options, head::StartTeller& teller);

/// Says so where this is within a rank, with whose job all that it leaves behind ends.
/// \param what  as "the detached job"
void warn_within_rank(std::string_view what, plan::EnvironmentView environment);

}  // namespace dtrun::commands
