#pragma once

#include "launcher/cli/cli.h"

namespace dtrun {

/// Carries out `dtrun hosts`: prints the list, or complains, and ends the process, since a name
/// look-up that hangs would keep it. Exit codes: 0, kExitUsage (input), kExitUnreachable (--resolve,
/// --check: all such hosts are named, and nothing is printed), kExitInternal (standard output).
[[noreturn]] void run_hosts_command(const HostsCommand& command, EnvironmentView environment);

}  // namespace dtrun
