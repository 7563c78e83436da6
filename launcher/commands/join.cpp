#include "launcher/commands/join.h"

#include "launcher/cli/defaults.h"

#include "launcher/commands/daemon_flags.h"

#include <algorithm>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;

constexpr std::string_view kJoinIntroduction =
    R"(usage: dtrun join [HOST[:PORT]] --job NAME [options] [VAR=VALUE...] program...

Starts ranks on this machine that belong to a job of `dtrun serve`. The job
begins when enough ranks have come together, from any machines; it ends, as this
command does, when all of them have ended. With --max-np above --min-np it is
elastic: whenever a machine is lost or another one joins, ranks are numbered
anew and the store is emptied (a new generation). Processes that can live on
(docs/ELASTIC.md) do so; all others are ended with SIGTERM and started again.

Without HOST the daemon is that of DTRUN_SERVE, else the one on this machine.

Examples:
  dtrun join head:29400 --job train -np 4 --min-np 16 -- python3 train.py
      4 of 16 ranks; run the same command on three more machines
  dtrun join head --job train -np 4 --min-np 8 --max-np 32 -- python3 train.py
      between 8 and 32 ranks, as machines come and go
)";

constexpr std::string_view kUsage =
    "usage: dtrun join [HOST[:PORT]] --job NAME [options] [--] [VAR=VALUE...] program [args...]";

struct ParsedJoin : cli::ParsedRun {
    plan::JoinOptions own;
};

cli::Rows<ParsedJoin> size_rows() {
    return {
        {{.names = "--min-np",
          .metavar = "N",
          .group = daemon,
          .help = "the fewest ranks the job may run with (default: -np of its first member)"},
         cli::set_number<&plan::JoinOptions::ranks_min, 1, kRanksMax>},
        {{.names = "--max-np",
          .metavar = "N",
          .group = daemon,
          .help = "the most ranks; further ones wait as spares (default: --min-np, a static job)"},
         cli::set_number<&plan::JoinOptions::ranks_max, 1, kRanksMax>},
        {{.names = "--last-call",
          .metavar = "SECONDS",
          .group = daemon,
          .help = "with --min-np to --max-np ranks present, wait this long for more (default: 2)"},
         cli::set_seconds<&plan::JoinOptions::last_call, 0>},
        {{.names = "--server-timeout",
          .metavar = "SECONDS",
          .group = daemon,
          .help = "how long to wait for a daemon that has ended to be started again (default: 60)"},
         cli::set_seconds<&plan::JoinOptions::server_timeout, 0>},
    };
}

/// Those of `dtrun run`, in the words of a command that is about this machine alone; -np is one of the
/// numbers of ranks here.
cli::Rows<ParsedJoin> run_rows() {
    constexpr std::pair<std::string_view, std::string_view> kHelps[] = {
        {"-np", "ranks of this machine (default: 1)"},
        {"--connect-timeout",
         "to reach the daemon, whose name may not be known yet, nor its port open; fractions "
         "allowed (default: 10)"},
        {"--wdir", "working directory (default: the current one)"},
    };
    auto rows = cli::rows_for<ParsedJoin>(cli::run_flags().in_scope(cli::FlagScope::join));
    for (cli::Row<ParsedJoin>& row : rows) {
        if (row.flag.group == hosts || row.flag.group == elastic) row.flag.group = daemon;
        for (const auto& [name, help] : kHelps)
            if (row.flag.first_name() == name) row.flag.help = help;
    }
    return rows;
}

Result<void> check_sizes(const plan::JoinOptions& join) {
    if (join.ranks_max && join.ranks_max < join.ranks_min.value_or(1))
        return fail(Errc::invalid_input, "--max-np {} is less than --min-np {}", *join.ranks_max,
                    join.ranks_min.value_or(1));
    if (join.ranks_max && !join.ranks_min)
        return fail(Errc::invalid_input, "--max-np needs --min-np");
    const int least = join.ranks_min.value_or(1), most = join.ranks_max.value_or(kRanksMax);
    const auto& allowed = join.limits.allowed;
    if (!allowed.empty() && std::ranges::none_of(allowed, [least, most](int size) {
            return size >= least && size <= most;
        }))
        return fail(Errc::invalid_input, "--allowed-np has no number from {} to {}", least, most);
    return {};
}

const cli::FlagTable<ParsedJoin>& join_flags() {
    static const cli::FlagTable<ParsedJoin> table(
        "dtrun join", {job_row<ParsedJoin>(), run_rows(), size_rows(), secret_rows<ParsedJoin>()});
    return table;
}

}  // namespace

Result<cli::RunCommand> parse_join(cli::Words words, plan::EnvironmentView environment) {
    ParsedJoin parsed;
    if (!words.empty() && !cli::is_option(words[0])) {
        parsed.own.daemon.address = words[0];
        words = words.subspan(1);
    }
    const auto all = cli::with_defaults(words, join_flags(), cli::run_flags().flags(), environment);
    if (!all) return std::unexpected(all.error());
    const auto rest = cli::read_options(join_flags(), *all, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked != cli::Ask::nothing) return cli::RunCommand{.asked = parsed.asked};
    if (const auto done = cli::read_program(parsed, *rest, kUsage); !done)
        return std::unexpected(done.error());
    if (const auto done = cli::add_start_timeout(parsed.options, environment); !done)
        return std::unexpected(done.error());
    parsed.own.limits = std::move(parsed.elastic);
    const auto counts = [](const cli::GivenFlag& flag) { return flag.name == "--max-restarts"; };
    if (std::ranges::any_of(parsed.given, counts))
        parsed.own.limits.rank_failure_limit = parsed.options.max_restarts;
    if (const auto done = check_sizes(parsed.own); !done) return std::unexpected(done.error());
    cli::RunCommand command{.options = std::move(parsed.options)};
    command.options.encrypt = parsed.own.daemon.encrypt;
    command.options.join = std::move(parsed.own);
    return command;
}

std::span<const cli::Flag> join_options() {
    return join_flags().flags();
}

std::string join_help() {
    return std::string(kJoinIntroduction) + cli::sections(join_flags().flags(), kDaemonSections);
}

}  // namespace dtrun::commands
