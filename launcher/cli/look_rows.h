#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags by which one looks into ranks: wrappers, a terminal, a debugger.
Rows<ParsedRun> look_flags();

/// Errc: invalid_input (flags contradict each other)
Result<void> check_looks(const plan::Options& options);

}  // namespace dtrun::cli
