#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags of elastic jobs: those of horovodrun, and dtrun's own.
Rows<ParsedRun> elastic_flags();

/// Makes the job of `dtrun run` elastic if the flags ask for that. Errc: invalid_input (flags contradict each other)
Result<void> add_elastic(ParsedRun& parsed, plan::EnvironmentView environment);

/// The same for a launcher that counts hosts, where its `shape` is elastic: the plan makes numbers of ranks of
/// that. `max_restarts` failures of ranks end the job, and the loss of hosts counts for nothing.
/// \param flags  of that launcher
Result<void> add_elastic_hosts(ParsedRun& parsed, std::span<const Flag> flags,
                               plan::EnvironmentView environment);

}  // namespace dtrun::cli
