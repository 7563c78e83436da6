#include "launcher/commands/store_command.h"

#include "base/strings.h"
#include "launcher/cli/command.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/plan/exit_code.h"
#include "launcher/watch/daemon_page.h"
#include "launcher/watch/json_line.h"
#include "rendezvous/asking/store_run.h"

#include <unistd.h>
#include <utility>

namespace dtrun::commands {
namespace {

using asking::StoreServer;

static_assert(asking::kStoreReaderGone == cli::kExitReaderGone);
static_assert(asking::kStoreNotExecutable == plan::kExitNotExecutable);
static_assert(asking::kStoreProgramMissing == plan::kExitProgramMissing);
static_assert(asking::kStoreUsage == plan::kExitUsage);
static_assert(asking::kStoreUnreachable == plan::kExitUnreachable);
static_assert(asking::kStoreDenied == plan::kExitAuthentication);
static_assert(asking::kStoreLockLost == plan::kExitLost);
static_assert(asking::kStoreLockBusy == plan::kExitTimeout);
static_assert(asking::kStoreInternal == plan::kExitInternal);

/// DTRUN_SERVER_TIMEOUT, as for the library.
constexpr int kServerTimeout = 60;
constexpr int kServerTimeoutMax = 86'400;

/// Errc: those of find_daemon(); invalid_input
Result<StoreServer> find_server(const StoreCommand& command, plan::EnvironmentView environment) {
    StoreServer server;
    const auto given = plan::find_variable(environment, "DTRUN_SERVER_TIMEOUT");
    const auto seconds = to_int(given.value_or(""), 0, kServerTimeoutMax);
    server.return_limit = std::chrono::seconds(seconds.value_or(kServerTimeout));
    const auto socket = plan::find_variable(environment, "DTRUN_SOCKET");
    if (command.verb.op != Op::status && command.daemon.address.empty() &&
        command.daemon.job.empty() && socket && !socket->empty()) {
        server.agent_socket = *socket;
        return server;
    }
    auto target = plan::find_daemon(command.daemon, environment);
    if (!target) return std::unexpected(target.error());
    if (target->job.empty() && command.verb.op != Op::status)
        return fail(Errc::invalid_input, "which job? --job NAME, or DTRUN_JOB_NAME");
    server.daemon = {target->name, target->addresses, target->port, target->credentials,
                     target->job};
    return server;
}

/// Shows what a daemon answers of one job, or of all.
Result<int> show_status(std::string_view json, const std::string& job, bool as_json) {
    const auto answer = watch::parse_object(json);
    if (!answer)
        return fail(Errc::closed, "the daemon answers in another language: {}",
                    answer.error().message);
    if (!job.empty() && !has_job(*answer)) return asking::no_job(job);
    return asking::put(as_json ? watch::json_line(*answer) + "\n" : status_table(*answer));
}

int carry_out(const StoreCommand& command, plan::EnvironmentView environment) {
    std::string job;
    asking::StoreParts parts;
    parts.find_server = [&] {
        auto server = find_server(command, environment);
        if (server) job = server->daemon.job;
        return server;
    };
    parts.show_status = [&](std::string_view json) { return show_status(json, job, command.json); };
    return asking::carry_out(command, parts);
}

}  // namespace

int run_store(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_store(words);
    if (const auto status = cli::settled(parsed, store_help)) return *status;
    return carry_out(parsed->own, environment);
}

int show_daemon(const plan::DaemonArgs& daemon, bool json, plan::EnvironmentView environment) {
    StoreCommand command;
    command.daemon = daemon;
    command.json = json;
    return carry_out(command, environment);
}

int run_status(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_status(words);
    if (const auto status = cli::settled(parsed, status_help)) return *status;
    if (!parsed->own.page_key) return carry_out(parsed->own, environment);
    const auto secret = plan::read_secret(parsed->own.daemon, environment, false);
    if (!secret) return cli::complain(secret.error());
    return cli::print(watch::page_key(*secret) + "\n");
}

}  // namespace dtrun::commands
