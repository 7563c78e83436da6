#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags that say what ranks find: variables, a directory, and whom their frameworks and MPI ask.
Rows<ParsedRun> environment_flags();

}  // namespace dtrun::cli
