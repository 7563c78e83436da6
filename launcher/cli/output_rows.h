#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// Flags of `dtrun run` about what ranks print and read.
Rows<ParsedRun> output_flags();

}  // namespace dtrun::cli
