#include "launcher/cli/output_rows.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"
#include "launcher/output/path_pattern.h"

namespace dtrun::cli {
namespace {

using std::string_view;
using enum FlagGroup;

constexpr std::uint64_t kLogBytesMax = 1ull << 50;
constexpr int kLogsKeptMax = 1000;

template <plan::RankSet plan::Options::*Member>
Result<void> add_ranks(ParsedRun& parsed, string_view value) {
    const auto ranks = plan::RankSet::parse(value);
    if (!ranks) return std::unexpected(ranks.error());
    (parsed.options.*Member).add(*ranks);
    return {};
}

Result<void> set_stdin(ParsedRun& parsed, string_view value) {
    using enum StdinTarget::Kind;
    if (value == "none" || value == "all") {
        parsed.options.stdin_target = {value == "all" ? all : none, 0};
        return {};
    }
    const auto number = to_int(value, 0, kRanksMax - 1);
    if (!number || value.starts_with('-'))
        return fail(Errc::invalid_input, "'{}' is neither none, all nor a rank from 0 to {}", value,
                    kRanksMax - 1);
    parsed.options.stdin_target = {StdinTarget::Kind::rank, static_cast<int>(*number)};
    return {};
}

Result<void> set_tag_form(ParsedRun& parsed, string_view value) {
    return keep(plan::Tag::parse(value), parsed.options.tag);
}

Result<void> set_color(ParsedRun& parsed, string_view value) {
    const auto choice = choose<plan::Color>(value, {{"auto", plan::Color::on_terminals},
                                                    {"always", plan::Color::always},
                                                    {"never", plan::Color::never}});
    return keep(choice, parsed.options.color);
}

Result<void> set_log_max(ParsedRun& parsed, string_view value) {
    return keep(parse_bytes(value, kLogBytesMax), parsed.options.log_rotation.bytes_max);
}

Result<void> set_log_keep(ParsedRun& parsed, string_view value) {
    return keep(whole_number(value, 0, kLogsKeptMax), parsed.options.log_rotation.keep);
}

/// The name of a file or folder, in which letters behind a '%' stand for something.
template <auto Member>
Result<void> set_path(ParsedRun& parsed, string_view value) {
    if (value.empty()) return fail(Errc::invalid_input, "the name is empty");
    if (const auto known = output::check_path_pattern(value); !known) return known;
    parsed.options.*Member = value;
    return {};
}

}  // namespace

Rows<ParsedRun> output_flags() {
    return {
        {{.names = "--tag",
          .metavar = "FORM",
          .words = "none|rank|host|rank-host|horovod",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .common = true,
          .help = "what precedes each line: none, rank, host, rank-host, horovod, or a form such "
                  "as '{host}:{rank} {stream} {time}' (default: horovod, [3]<stdout>:; none with "
                  "one rank)"},
         set_tag_form},
        {{.names = "--color",
          .metavar = "auto|always|never",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .help = "colour the ranks' tags, and reports (default: auto, on a terminal unless "
                  "NO_COLOR is set)"},
         set_color},
        {{.names = "--fold",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "show a line that several ranks print within 100 ms once, tagged [0-63]:, and "
                  "likewise a traceback (default: each by itself; tracebacks: on a terminal)"},
         set_true<&plan::Options::fold>},
        {{.names = "--timestamps --prefix-output-with-timestamp -prefix-timestamp",
          .also = "--timestamp-output -timestamp-output",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .argparse = "--prefix-output-with-timestamp -prefix-timestamp",
          .help = "put the time before each line, taken on its host (default: no time)"},
         set_true<&plan::Options::timestamps>},
        {{.names = "--output-dir --output-filename",
          .metavar = "DIR",
          .group = output,
          .needs_agents = true,
          .common = true,
          .argparse = "--output-filename",
          .help = "also write DIR/rank.N/stdout and stderr; in DIR, %j is the job's id and %t the "
                  "time (default: none)"},
         set_path<&plan::Options::output_dir>},
        {{.names = "--log",
          .metavar = "FILE",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "append everything that ranks print to FILE, with time, rank and host, and what "
                  "dtrun says; %j and %t as above (default: none)"},
         set_path<&plan::Options::log>},
        {{.names = "--log-max",
          .metavar = "SIZE",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "when a file of --log or --output-dir would grow beyond SIZE, such as 100M, "
                  "rename it FILE.1, FILE.1 to FILE.2, and so on (default: no limit)"},
         set_log_max},
        {{.names = "--log-keep",
          .metavar = "N",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "how many of these older files to keep (default: 5)"},
         set_log_keep},
        {{.names = "--only-ranks",
          .metavar = "RANKS",
          .group = output,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .adds_up = true,
          .common = true,
          .help = "show only these ranks, such as 0,3-5 (default: all)"},
         add_ranks<&plan::Options::only_ranks>},
        {{.names = "--quiet-ranks",
          .metavar = "RANKS",
          .group = output,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .adds_up = true,
          .help = "do not show what these ranks print, such as 1-63; files and logs have it all "
                  "the same "
                  "(default: show all)"},
         add_ranks<&plan::Options::quiet_ranks>},
        {{.names = "--stdin",
          .also = "-stdin",
          .metavar = "none|all|RANK",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends},
          .help = "which ranks read standard input (default: 0)"},
         set_stdin},
        {{.names = "--quiet",
          .group = output,
          .in = {FlagScope::join, FlagScope::torchrun, FlagScope::bench, FlagScope::doctor},
          .help = "of dtrun's own messages, show only errors (default: warnings too)"},
         set_to<&plan::Options::verbosity, log::Level::quiet>},
        {{.names = "--verbose",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends, FlagScope::bench, FlagScope::doctor},
          .common = true,
          .argparse = "--verbose",
          .help = "report each step, as when hosts join or ranks end"},
         set_to<&plan::Options::verbosity, log::Level::verbose>},
        {{.names = "--debug",
          .group = output,
          .in = {FlagScope::join, FlagScope::frontends, FlagScope::bench, FlagScope::doctor},
          .help = "as --verbose, and every event of the protocol, with times"},
         set_to<&plan::Options::verbosity, log::Level::debug>},
    };
}

}  // namespace dtrun::cli
