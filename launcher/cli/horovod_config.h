#pragma once

#include "launcher/cli/horovod_flags.h"

#include <string_view>

namespace dtrun::cli {

/// Reads horovodrun's --config-file:
///   controller: gloo             # or mpi
///   params: {fusion_threshold_mb: 32, cycle_time_ms: 10, ...}
///   autotune: {enabled: true, log_file: f, ...}
/// with the keys of horovod_settings(); null values count as not given.
/// \param name  what messages call the file
/// \return variable to value, or invalid_input "<name>:<line>:<column>: ..."
Result<HorovodValues> parse_horovod_config(std::string_view text, std::string_view name);

}  // namespace dtrun::cli
