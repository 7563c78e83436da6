#pragma once

#include "base/result.h"
#include "hostfiles/write_hosts.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <chrono>
#include <optional>
#include <string>

namespace dtrun::commands {

/// `dtrun hosts`.
struct HostsOptions {
    // Where hosts come from; at most one is given. Without: standard input, else the batch system.
    std::string hosts;     ///< -H, not parsed
    std::string hostfile;  ///< --hostfile, a path or "-"
    std::string nodelist;  ///< --nodelist, not parsed

    HostFormat format = HostFormat::deepspeed;  ///< --format
    std::optional<int> slots;                   ///< --slots N; unset: as the source has it
    bool slots_auto = false;                    ///< --slots auto
    bool short_names = false;                   ///< --short
    bool sort = false;                          ///< --sort
    std::string include;                        ///< --include; never with `exclude`
    std::string exclude;                        ///< --exclude
    bool resolve = false;                       ///< --resolve
    bool check = false;                         ///< --check
    int ssh_port = 22;                          ///< -p, of hosts that name none
    std::chrono::milliseconds connect_timeout{10'000};
};

struct ParsedHosts : cli::ParsedArgs {
    HostsOptions own;
};

const cli::FlagTable<ParsedHosts>& hosts_flags();

/// Errc: invalid_input
Result<ParsedHosts> parse_hosts_command(cli::Words words);

/// Carries out `dtrun hosts`: prints the list, or complains. Where it looks hosts up or connects to
/// them, it ends the process, since a name look-up that hangs would keep it. Exit codes: 0,
/// plan::kExitUsage (words, input), plan::kExitUnreachable (--resolve, --check: all such hosts are
/// named, and nothing is printed), plan::kExitInternal (standard output).
int run_hosts_command(cli::Words words, plan::EnvironmentView environment);

std::string hosts_help();

}  // namespace dtrun::commands
