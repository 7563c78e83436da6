#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags of horovodrun for each of horovod_settings(), in the order of that table.
Rows<ParsedRun> horovod_tuning_flags();

/// --horovod-shim, and the flags of horovodrun that dtrun refuses.
Rows<ParsedRun> other_horovod_flags();

}  // namespace dtrun::cli
