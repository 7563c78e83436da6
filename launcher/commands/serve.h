#pragma once

#include "base/log.h"
#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"
#include "rendezvous/wire/heartbeat.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::commands {

/// `dtrun serve`.
struct ServeOptions {
    std::string listen;           ///< --listen ADDRESS[:PORT]; empty: every interface
    plan::DaemonArgs daemon;      ///< the secret, and whether to encrypt
    std::string state_directory;  ///< --state; empty: nothing is kept
    std::chrono::milliseconds heartbeat_timeout{kHeartbeatTimeout};
    /// --keep-unused; nothing: for ever
    std::optional<std::chrono::milliseconds> keep_unused = std::chrono::hours(7 * 24);
    std::optional<std::uint64_t> store_bytes_max;  ///< nothing: half of the memory
    std::optional<plan::ListenAddress> page;       ///< --web
    std::string backup;                            ///< --backup FILE
    std::string restore;                           ///< --restore FROM
    bool replaces = false;                         ///< --replace
    log::Level verbosity = log::Level::verbose;
};

struct ParsedServe : cli::ParsedArgs {
    ServeOptions own;
};

const cli::FlagTable<ParsedServe>& serve_flags();
/// Errc: invalid_input
Result<ParsedServe> parse_serve(cli::Words words);

/// Serves until a signal ends it. \return the process's exit status
int run_serve(cli::Words words, plan::EnvironmentView environment);

std::string serve_help();

}  // namespace dtrun::commands
