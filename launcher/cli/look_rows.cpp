#include "launcher/cli/look_rows.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;

/// "[RANKS:]COMMAND": what stands before the first colon is for ranks if it has only digits, commas and
/// dashes.
Result<void> add_wrap(ParsedRun& parsed, string_view value) {
    plan::WrapOption wrap;
    wrap.written = value;
    const std::size_t colon = value.find(':');
    const bool has_ranks =
        colon != string_view::npos && colon > 0 &&
        value.substr(0, colon).find_first_not_of("0123456789,- ") == string_view::npos;
    if (has_ranks) {
        const auto ranks = plan::RankSet::parse(value.substr(0, colon));
        if (!ranks) return std::unexpected(ranks.error());
        wrap.ranks = *ranks;
        value.remove_prefix(colon + 1);
    }
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    if (words->empty() || words->front() == "{}")
        return fail(Errc::invalid_input, "'{}' names no command before the program", wrap.written);
    wrap.words = *words;
    parsed.options.wraps.push_back(std::move(wrap));
    return {};
}

Result<void> set_pty(ParsedRun& parsed, string_view value) {
    const auto rank = value.empty() ? Result<int>(0) : whole_number(value, 0, kRanksMax - 1);
    if (!rank) return std::unexpected(rank.error());
    parsed.options.pty = *rank;
    parsed.options.stdin_target = {StdinTarget::Kind::rank, *rank};
    return {};
}

/// "N[:gdb|debugpy]"
Result<void> set_debug_rank(ParsedRun& parsed, string_view value) {
    const std::size_t colon = value.find(':');
    const auto rank = whole_number(value.substr(0, colon), 0, kRanksMax - 1);
    if (!rank) return std::unexpected(rank.error());
    parsed.options.debug_rank = *rank;
    if (colon == string_view::npos) return {};
    const auto debugger = choose<Debugger>(
        value.substr(colon + 1), {{"gdb", Debugger::gdb}, {"debugpy", Debugger::debugpy}});
    return keep(debugger, parsed.options.debugger);
}

}  // namespace

Result<void> check_looks(const plan::Options& options) {
    if (!options.pty && !options.debug_rank) return {};
    const char* const flag = options.pty ? "--pty" : "--debug-rank";
    if (options.join)
        return fail(Errc::invalid_input,
                    "{} is for a job that one dtrun starts: name all hosts with -H there", flag);
    if (!options.elastic) return {};
    return fail(Errc::invalid_input,
                "{}: a rank of an elastic job is another process after each change; leave out "
                "--min-np, or {}",
                flag, flag);
}

Rows<ParsedRun> look_flags() {
    return {
        {{.names = "--wrap",
          .metavar = "COMMAND",
          .group = look,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .adds_up = true,
          .help = "run the program under COMMAND, as in 'perf record -o p.{rank} {}'; "
                  "RANKS:COMMAND does so for some ranks; repeatable (default: none)"},
         add_wrap},
        {{.names = "--pty",
          .metavar = "[=RANK]",
          .group = look,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .excludes = "--stdin --detach",
          .help = "give a rank a terminal that stands for yours: dtrun --pty bash (default: none; "
                  "--pty alone: rank 0)"},
         set_pty},
        {{.names = "--debug-rank",
          .metavar = "N[:gdb|debugpy]",
          .group = look,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .help = "make rank N wait until your debugger has connected to a port of this machine "
                  "(default: none)"},
         set_debug_rank},
    };
}

}  // namespace dtrun::cli
