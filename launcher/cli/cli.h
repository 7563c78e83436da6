#pragma once

#include "base/result.h"
#include "hostfiles/write_hosts.h"
#include "lab/plan/options.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"
#include "rendezvous/heartbeat.h"

#include <string>
#include <vector>

namespace dtrun::cli {

/// `dtrun serve`.
struct ServeOptions {
    std::string listen;           ///< --listen ADDRESS[:PORT]; empty: every interface
    plan::DaemonWords daemon;     ///< the secret, and whether to encrypt
    std::string state_directory;  ///< --state; empty: nothing is kept
    std::chrono::milliseconds heartbeat_timeout{kHeartbeatTimeout};
    log::Level verbosity = log::Level::verbose;
};

/// `dtrun store` and `dtrun status`.
struct StoreCommand {
    enum class Verb { get, set, wait, watch, list, add, erase, status };
    Verb verb = Verb::status;
    plan::DaemonWords daemon;
    std::vector<std::string> operands;  ///< as many as the verb takes
    std::optional<std::chrono::milliseconds> timeout;
    bool json = false;  ///< status
};

/// `dtrun hosts`.
struct HostsCommand {
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

/// What the user wants of this process.
struct CommandLine {
    enum class Kind { run, serve, store, hosts, bench, help, version, check_build };
    Kind kind = Kind::run;
    plan::Options options;              ///< with Kind::run and Kind::bench
    ServeOptions serve;                 ///< with Kind::serve
    StoreCommand store;                 ///< with Kind::store
    HostsCommand hosts;                 ///< with Kind::hosts
    lab::BenchCommand bench;            ///< with Kind::bench
    std::string text;                   ///< otherwise: for standard output, whole lines
    std::vector<std::string> warnings;  ///< for standard error, one line each, without '\n'
};

/// Reads the command line. Of files it reads the --config-file, and for `deepspeed` also
/// .deepspeed_env; and it looks which Python PATH has, and whether DeepSpeed's usual hostfile is
/// there.
///
/// Options end at the first word that is none, or at `--`. Long names may be shortened as long as
/// they stay unique, begin with one dash if they are whole, and contain '_' for '-'; a value is the
/// next word or follows '='. Given twice: the last value counts, lists add up. A flag always wins
/// over --config-file.
/// \param args         without argv[0]
/// \param environment  for HOROVOD_START_TIMEOUT
/// \return invalid_input for what the user should have written otherwise (exit code: usage), or
///         not_found, denied (--config-file)
Result<CommandLine> parse_command_line(const std::vector<std::string>& args,
                                       plan::EnvironmentView environment);

}  // namespace dtrun::cli
