#pragma once

#include "launcher/cli/run.h"

#include <string_view>

namespace dtrun::cli {

/// The flags of horovodrun that set Horovod up.
Rows<ParsedRun> horovod_flags();

/// --horovod-shim, and the flags of horovodrun that dtrun refuses.
Rows<ParsedRun> other_horovod_flags();

/// Horovod's controller, "gloo" or "mpi", which the configuration file may set, too.
/// Errc: invalid_input (another flag has set the other one)
Result<void> set_controller(ParsedRun& parsed, std::string_view name);

}  // namespace dtrun::cli
