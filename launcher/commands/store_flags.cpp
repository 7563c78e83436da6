// The flags, words and help of `dtrun store` and `dtrun status`.

#include "launcher/commands/daemon_flags.h"
#include "launcher/commands/store_command.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::commands {
namespace {

using std::string_view;
using enum cli::FlagGroup;

constexpr std::string_view kStatus = R"(usage: dtrun status [HOST[:PORT]] [options]

Shows what `dtrun serve` is doing: its jobs, their members, and the steps that
their ranks have reached.
)";

cli::Rows<ParsedStore> store_rows() {
    return {
        {{.names = "--server",
          .metavar = "HOST[:PORT]",
          .group = daemon,
          .help =
              "the daemon (default: inside a rank its agent, else DTRUN_SERVE, else this machine)"},
         cli::set_text<&plan::DaemonArgs::address>},
    };
}

cli::Rows<ParsedStore> timeout_row() {
    return {{{.names = "--timeout",
              .metavar = "SECONDS",
              .group = daemon,
              .help = "how long to wait for a key that does not exist yet or a lock that is taken "
                      "(default: get and pop do not wait; wait, watch and lock have no limit); 5 s "
                      "later waiting ends in any case, even if the daemon does not answer"},
             cli::set_seconds<&StoreCommand::timeout, 0>}};
}

cli::Rows<ParsedStore> word_rows() {
    return {
        {{.names = "-0 --null",
          .group = daemon,
          .help =
              "ls: a NUL after each key; watch: after each state, which is =VALUE, - when the key "
              "was removed, or * when it is a queue (default: a newline after the bare value)"},
         cli::set_true<&StoreCommand::nul>},
        {{.names = "--prefix",
          .group = daemon,
          .help = "rm: remove all keys that begin with KEY and print their number; watch: print "
                  "every change of them, in order, as key, tab and state (with -0, a NUL after "
                  "both); refused if the values exceed 15 MiB together"},
         cli::set_true<&StoreCommand::is_prefix>},
        {{.names = "--ttl",
          .metavar = "SECONDS",
          .group = daemon,
          .help = "set: how long the key lives (default: until it is removed)"},
         cli::set_seconds<&StoreCommand::ttl>},
        {{.names = "--value",
          .metavar = "TEXT",
          .group = daemon,
          .help = "lock: what NAME holds meanwhile, for others to read (default: HOST:PID)"},
         cli::set_text<&StoreCommand::holder>},
    };
}

cli::Rows<ParsedStore> json_row() {
    return {{{.names = "--json", .group = daemon, .help = "print JSON (default: a table)"},
             cli::set_true<&StoreCommand::json>}};
}

cli::Rows<ParsedStore> page_key_row() {
    return {{{.names = "--page-key",
              .group = cli::FlagGroup::daemon,
              .help = "print the key for the page of `dtrun serve --web`, which is made from the "
                      "same secret; no daemon is asked"},
             cli::set_true<&StoreCommand::page_key>}};
}

/// Options and operands in any order, but for operands that begin with a dash: these stand behind
/// "--".
Result<ParsedStore> parse_words(cli::Words words, const cli::FlagTable<ParsedStore>& flags,
                                const asking::StoreVerb& verb, ParsedStore parsed = {}) {
    std::vector<std::string>& operands = parsed.own.operands;
    while (!words.empty()) {
        const auto rest = cli::read_options(flags, words, parsed);
        if (!rest) return std::unexpected(rest.error());
        if (parsed.asked != cli::Ask::nothing) return parsed;
        words = rest->words;
        while (!words.empty() &&
               (rest->ended || !cli::is_option(words[0]) || verb.is_in_command(operands))) {
            operands.push_back(words[0]);
            words = words.subspan(1);
        }
    }
    if (const auto right = asking::take_verb(parsed.own, verb); !right)
        return std::unexpected(right.error());
    return parsed;
}

}  // namespace

const cli::FlagTable<ParsedStore>& store_flags() {
    static const cli::FlagTable<ParsedStore> table(
        "dtrun store", {store_rows(), job_row<ParsedStore>(), timeout_row(), word_rows(),
                        secret_rows<ParsedStore>(), cli::about_rows<ParsedStore>()});
    return table;
}

const cli::FlagTable<ParsedStore>& status_flags() {
    static const cli::FlagTable<ParsedStore> table(
        "dtrun status", {job_row<ParsedStore>(), json_row(), page_key_row(),
                         secret_rows<ParsedStore>(), cli::about_rows<ParsedStore>()});
    return table;
}

Result<ParsedStore> parse_store(cli::Words words) {
    ParsedStore parsed;
    const auto rest = cli::read_options(store_flags(), words, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked != cli::Ask::nothing) return parsed;
    const auto verb = asking::find_store_verb(rest->words.empty() ? "" : rest->words[0]);
    if (!verb) return std::unexpected(verb.error());
    return parse_words(rest->words.subspan(1), store_flags(), *verb, std::move(parsed));
}

Result<ParsedStore> parse_status(cli::Words words) {
    auto parsed = parse_words(words, status_flags(), asking::kStatusVerb);
    if (parsed && !parsed->own.operands.empty())
        parsed->own.daemon.address = std::exchange(parsed->own.operands, {}).front();
    return parsed;
}

std::string store_help() {
    return asking::store_words_help() + cli::sections(store_flags().flags(), kDaemonSections);
}

std::string status_help() {
    return std::string(kStatus) + cli::sections(status_flags().flags(), kDaemonSections);
}

}  // namespace dtrun::commands
