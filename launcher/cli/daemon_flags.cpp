// The flags of `dtrun join` and of the other commands around a daemon.

#include "launcher/cli/flags.h"

#include <algorithm>
#include <iterator>

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;

template <class Number, Number plan::JoinOptions::*Member>
Result<void> set_join_number(Draft& draft, string_view value) {
    const auto number = whole_number(value, 1, kRanksMax);
    if (!number) return std::unexpected(number.error());
    draft.join.*Member = *number;
    return {};
}

Result<void> set_secret_fd(Draft& draft, string_view value) {
    const auto number = whole_number(value, 0, 1'000'000);
    if (!number) return std::unexpected(number.error());
    draft.daemon.secret_fd = *number;
    return {};
}

template <auto Member>
Result<void> set_daemon_text(Draft& draft, string_view value) {
    draft.daemon.*Member = value;
    return {};
}

template <auto Part, auto Member, int MinMs>
Result<void> set_part_seconds(Draft& draft, string_view value) {
    const auto time = parse_seconds(value, std::chrono::milliseconds(MinMs), kTimeoutMax);
    if (!time) return std::unexpected(time.error());
    draft.*Part.*Member = *time;
    return {};
}

Result<void> set_encrypt(Draft& draft, string_view) {
    draft.daemon.encrypt = true;
    return {};
}

template <log::Level Level>
Result<void> set_serve_verbosity(Draft& draft, string_view) {
    draft.serve.verbosity = Level;
    return {};
}

Flags secret_flags() {
    return {
        {"--secret-file", "FILE", daemon,
         "the daemon's secret, readable for you alone (default: DTRUN_SECRET_FILE, else "
         "~/.config/dtrun/secret)",
         set_daemon_text<&plan::DaemonWords::secret_file>, ""},
        {"--secret-fd", "N", daemon, "read the secret from this open descriptor", set_secret_fd,
         ""},
        {"--encrypt", "", daemon,
         "encrypt the connection; daemon and members must want the same (default: authenticated, "
         "but in the clear)",
         set_encrypt, ""},
    };
}

Flag job_flag() {
    return {"--job",
            "NAME",
            daemon,
            "which job of the daemon (default: DTRUN_JOB_NAME)",
            set_daemon_text<&plan::DaemonWords::job>,
            ""};
}

Flags make_join_flags() {
    Flags flags{job_flag()};
    add_of_run(flags, {"-np"});
    flags.back().group = daemon;
    flags.push_back({"--min-np", "N", daemon,
                     "the job begins with so many ranks, and goes on with so many after a loss "
                     "(default: -np of its first member)",
                     set_join_number<std::optional<int>, &plan::JoinOptions::ranks_min>, ""});
    flags.push_back({"--max-np", "N", daemon, "more are spares (default: --min-np: a static job)",
                     set_join_number<std::optional<int>, &plan::JoinOptions::ranks_max>, ""});
    flags.push_back({"--last-call", "SECONDS", daemon,
                     "between --min-np and --max-np ranks, wait so long for more (default: 2)",
                     set_part_seconds<&Draft::join, &plan::JoinOptions::last_call, 0>, ""});
    flags.push_back({"--server-timeout", "SECONDS", daemon,
                     "for a daemon that has ended to be started again (default: 60)",
                     set_part_seconds<&Draft::join, &plan::JoinOptions::server_timeout, 0>, ""});
    std::ranges::move(secret_flags(), std::back_inserter(flags));
    add_of_run(flags, {"-x", "--env-file", "--no-env", "--wdir", "--connect-timeout",
                       "--start-timeout", "--tag", "--timestamps", "--stdin", "--quiet",
                       "--verbose", "--debug", "--grace", "--heartbeat-timeout", "--help"});
    return flags;
}

Flags make_serve_flags() {
    Flags flags{
        {"--listen", "ADDRESS[:PORT]", daemon,
         "numeric; port 0: any free one (default: every interface, port 29400)",
         [](Draft& draft, string_view value) -> Result<void> {
             draft.serve.listen = value;
             return {};
         },
         ""},
        {"--state", "DIR", daemon,
         "keep jobs here, and go on with them after a restart (default: nothing is kept)",
         [](Draft& draft, string_view value) -> Result<void> {
             draft.serve.state_directory = value;
             return {};
         },
         ""},
        {"--heartbeat-timeout", "SECONDS", daemon,
         "a member that is silent for so long is lost; at least 1 (default: 3)",
         set_part_seconds<&Draft::serve, &ServeOptions::heartbeat_timeout, 1'000>, ""},
    };
    std::ranges::move(secret_flags(), std::back_inserter(flags));
    flags.push_back({"--quiet", "", other, "warnings and errors only (default: what jobs do)",
                     set_serve_verbosity<log::Level::normal>, ""});
    flags.push_back(
        {"--debug", "", other, "every event", set_serve_verbosity<log::Level::debug>, ""});
    add_of_run(flags, {"--help"});
    return flags;
}

Flags make_store_flags() {
    Flags flags{
        {"--server", "HOST[:PORT]", daemon,
         "the daemon (default: the agent when a rank asks, else DTRUN_SERVE, else this machine)",
         set_daemon_text<&plan::DaemonWords::address>, ""},
        job_flag(),
        {"--timeout", "SECONDS", daemon,
         "for what does not exist yet (default: get does not wait, the others have no limit)",
         [](Draft& draft, string_view value) -> Result<void> {
             const auto time = parse_seconds(value, std::chrono::milliseconds(0), kTimeoutMax);
             if (!time) return std::unexpected(time.error());
             draft.store.timeout = *time;
             return {};
         },
         ""},
    };
    std::ranges::move(secret_flags(), std::back_inserter(flags));
    add_of_run(flags, {"--help"});
    return flags;
}

Flags make_status_flags() {
    Flags flags{job_flag()};
    flags.push_back({"--json", "", daemon, "as JSON (default: a table)",
                     [](Draft& draft, string_view) -> Result<void> {
                         draft.store.json = true;
                         return {};
                     },
                     ""});
    std::ranges::move(secret_flags(), std::back_inserter(flags));
    add_of_run(flags, {"--help"});
    return flags;
}

}  // namespace

const Flags& join_flags() {
    static const Flags flags = make_join_flags();
    return flags;
}

const Flags& serve_flags() {
    static const Flags flags = make_serve_flags();
    return flags;
}

const Flags& store_flags() {
    static const Flags flags = make_store_flags();
    return flags;
}

const Flags& status_flags() {
    static const Flags flags = make_status_flags();
    return flags;
}

}  // namespace dtrun::cli
