#pragma once

#include "base/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// Expands a Slurm node list such as "gpu[01-03,7],login1" or "rack[1-2]n[01-10]", in listed order,
/// zero padding kept (the width of the low bound), text after a bracket allowed ("x[1-2]-ib").
/// Several brackets vary rightmost-fastest. Empty items and blanks separate.
/// \param text  neither kept nor modified
/// \return 1..kHostsMax names, or invalid_input with a message that starts "nodelist:1:<column>:"
Result<std::vector<std::string>> expand_nodelist(std::string_view text);

}  // namespace dtrun
