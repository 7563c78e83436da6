#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags by which one looks into ranks: wrappers, a terminal, a debugger.
Rows<RunDraft> look_flags();

}  // namespace dtrun::cli
