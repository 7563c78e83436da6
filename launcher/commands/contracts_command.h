#pragma once

#include "base/result.h"

#include <string>
#include <string_view>

namespace dtrun::commands {

/// What `dtrun contracts [NAME]` prints: each contract, whether it is in the default set and why;
/// with a name all of its variables. Lines of at most kHelpColumns.
/// \param name  empty: all of them
/// Errc: invalid_input, for a name that does not exist
Result<std::string> contracts_text(std::string_view name);

}  // namespace dtrun::commands
