#pragma once

#include "launcher/cli/cli.h"

namespace dtrun::commands {

/// Carries out `dtrun hosts`: prints the list, or complains, and ends the process, since a name
/// look-up that hangs would keep it. Exit codes: 0, plan::kExitUsage (input), plan::kExitUnreachable (--resolve,
/// --check: all such hosts are named, and nothing is printed), plan::kExitInternal (standard output).
[[noreturn]] void run_hosts_command(const cli::HostsCommand& command,
                                    plan::EnvironmentView environment);

}  // namespace dtrun::commands
