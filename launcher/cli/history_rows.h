#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags by which a job outlives its terminal, and is found again.
Rows<ParsedRun> history_flags();

}  // namespace dtrun::cli
