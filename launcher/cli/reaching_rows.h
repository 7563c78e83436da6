#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags that say how dtrun gets onto the hosts, and how long it tries.
Rows<ParsedRun> reaching_flags();

}  // namespace dtrun::cli
