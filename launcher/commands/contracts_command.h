#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <string>

namespace dtrun::commands {

/// What `dtrun contracts [NAME]` prints: each contract, whether it is in the default set and why;
/// with a name all of its variables. Lines of at most kHelpColumns.
/// Errc: invalid_input, for a name that does not exist, or several
Result<std::string> parse_contracts(cli::Words words);

int run_contracts(cli::Words words, plan::EnvironmentView environment);

/// The overview, which is what `dtrun contracts` prints.
std::string contracts_help();

}  // namespace dtrun::commands
