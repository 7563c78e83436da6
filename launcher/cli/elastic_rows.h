#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags of elastic jobs: those of horovodrun, and dtrun's own.
Rows<RunDraft> elastic_flags();

/// Makes the job of `dtrun run` elastic if the flags ask for that. Errc: invalid_input (flags contradict each other)
Result<void> add_elastic(RunDraft& draft, plan::EnvironmentView environment);

}  // namespace dtrun::cli
