#pragma once

#include "launcher/doctor/backends_here.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::commands {

/// `dtrun --check-build`, under the headings of horovodrun's: what this machine has, as ranks would find it.
/// \return the process's exit status
int run_check_build();

/// Pure.
/// \param packages  lines "NAME VERSION" of the Python packages that are installed
std::string check_build_text(const Result<std::vector<doctor::BackendHere>>& backends,
                             std::string_view packages);

}  // namespace dtrun::commands
