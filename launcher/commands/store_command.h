#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"
#include "rendezvous/asking/store_order.h"

#include <boost/json/object.hpp>
#include <string>

namespace dtrun::commands {

/// `dtrun store` and `dtrun status`.
struct StoreCommand : asking::StoreOrder {
    plan::DaemonArgs daemon;
    bool json = false;      ///< status
    bool page_key = false;  ///< status
};

struct ParsedStore : cli::ParsedArgs {
    StoreCommand own;
};

const cli::FlagTable<ParsedStore>& status_flags();
const cli::FlagTable<ParsedStore>& store_flags();
/// Errc: invalid_input
Result<ParsedStore> parse_store(cli::Words words);
Result<ParsedStore> parse_status(cli::Words words);

/// \return the process's exit status
int run_store(cli::Words words, plan::EnvironmentView environment);
int run_status(cli::Words words, plan::EnvironmentView environment);

/// As `dtrun status`.
int show_daemon(const plan::DaemonArgs& daemon, bool json, plan::EnvironmentView environment);

std::string store_help();
std::string status_help();

/// Whether the daemon's answer about one job has it. Who asks is one of the job's clients, so that there is
/// always a store; a job is there once it has members, keys or other clients.
bool has_job(const boost::json::object& status);

/// What `dtrun status` shows of the daemon's answer. Names are members' own words, and shown so that no
/// terminal obeys them.
std::string status_table(const boost::json::object& status);

}  // namespace dtrun::commands
