#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::frontends {

/// The file that the script's words name by --deepspeed_config; empty: none.
std::string config_of(cli::Words script);

/// The numbers of ranks with which the batch stays the same, by the "elasticity" of a DeepSpeed configuration
/// (JSON), as compute_elastic_config() of deepspeed/elasticity/elasticity.py finds them.
///
/// Computed here instead of by the user's deepspeed, whose import takes seconds and needs a Python with torch on
/// this machine, which may only start jobs.
/// \return ascending; empty if the configuration has no elasticity, or has not enabled it
/// Errc: invalid_input (no JSON, or an elasticity that DeepSpeed would refuse)
Result<std::vector<int>> elastic_sizes(std::string_view json);

}  // namespace dtrun::frontends
