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

constexpr std::string_view kStore =
    R"(usage: dtrun store get|set|add|wait|watch|ls|rm|drop [options] ...

Looks into the store of a job of `dtrun serve`; inside a rank, of its own job.
  get KEY                   the value
  set KEY VALUE             VALUE may be -, for standard input
  add KEY NUMBER            the sum; a missing key counts as 0
  wait KEY...               until all exist
  watch KEY                 the value whenever it changes, until Ctrl-C; that it
                            was removed is told on standard error
  ls [PREFIX]               keys, one on a line
  rm KEY
  drop                      forgets the job, with all its keys, unless it has
                            members; a new run of its name begins with nothing
What begins with a dash stands behind "--".

Exit code: 0; 1 the key or job is not there, or not in time; 2 the key holds
something else, such as a queue; 3 the store refuses it, being full for example;
200 wrong words or input; 201 the daemon cannot be reached, or does not answer;
202 the secret is wrong; 210 standard output cannot be written.
)";

constexpr std::string_view kStatus = R"(usage: dtrun status [HOST[:PORT]] [options]

What `dtrun serve` does: its jobs, their members and how far their ranks are.
)";

struct StoreVerb {
    string_view name;
    StoreCommand::Verb verb;
    string_view operands;
    std::size_t min, max;
};
constexpr StoreVerb kStoreVerbs[] = {
    {"get", StoreCommand::Verb::get, "KEY", 1, 1},
    {"set", StoreCommand::Verb::set, "KEY VALUE|-", 2, 2},
    {"add", StoreCommand::Verb::add, "KEY NUMBER", 2, 2},
    {"wait", StoreCommand::Verb::wait, "KEY...", 1, 10'000},
    {"watch", StoreCommand::Verb::watch, "KEY", 1, 1},
    {"ls", StoreCommand::Verb::list, "[PREFIX]", 0, 1},
    {"rm", StoreCommand::Verb::erase, "KEY", 1, 1},
    {"drop", StoreCommand::Verb::drop, "", 0, 0},
};

cli::Rows<StoreDraft> store_rows() {
    return {
        {{.names = "--server",
          .metavar = "HOST[:PORT]",
          .group = daemon,
          .help = "the daemon (default: the agent when a rank asks, else DTRUN_SERVE, else this "
                  "machine)"},
         cli::set_text<&plan::DaemonWords::address>},
    };
}

cli::Rows<StoreDraft> timeout_row() {
    return {
        {{.names = "--timeout",
          .metavar = "SECONDS",
          .group = daemon,
          .help =
              "how long to wait for what does not exist yet (default: get does not wait, wait and "
              "watch have no limit); 5 s later it ends in any case, also when the daemon does not "
              "answer"},
         cli::set_seconds<&StoreCommand::timeout, 0>}};
}

cli::Rows<StoreDraft> nul_row() {
    return {
        {{.names = "-0 --null",
          .group = daemon,
          .help = "ls: a NUL behind each key; watch: behind each state, which is =VALUE, or - when "
                  "the key was removed (default: a line's end, behind the value alone)"},
         cli::set_true<&StoreCommand::nul>}};
}

cli::Rows<StoreDraft> json_row() {
    return {{{.names = "--json", .group = daemon, .help = "as JSON (default: a table)"},
             cli::set_true<&StoreCommand::json>}};
}

cli::Rows<StoreDraft> page_key_row() {
    return {{{.names = "--page-key",
              .group = cli::FlagGroup::daemon,
              .help = "print the key of the page of `dtrun serve --web`, made of the same secret; "
                      "no daemon is asked"},
             cli::set_true<&StoreCommand::page_key>}};
}

/// Options and operands in any order, but for operands that begin with a dash: these stand behind
/// "--".
Result<StoreDraft> parse_words(cli::Words words, const cli::FlagTable<StoreDraft>& flags,
                               const StoreVerb& verb, StoreDraft draft = {}) {
    std::vector<std::string>& operands = draft.own.operands;
    while (!words.empty()) {
        const auto rest = cli::read_options(flags, words, draft);
        if (!rest) return std::unexpected(rest.error());
        if (draft.asked != cli::Ask::nothing) return draft;
        words = rest->words;
        while (!words.empty() && (rest->ended || !cli::is_option(words[0]))) {
            operands.push_back(words[0]);
            words = words.subspan(1);
        }
    }
    if (operands.size() < verb.min || operands.size() > verb.max)
        return fail(Errc::invalid_input, "usage: dtrun {}{} [options] {}",
                    verb.verb == StoreCommand::Verb::status ? "" : "store ", verb.name,
                    verb.operands);
    draft.own.verb = verb.verb;
    return draft;
}

}  // namespace

const cli::FlagTable<StoreDraft>& store_flags() {
    static const cli::FlagTable<StoreDraft> table(
        "dtrun store", {store_rows(), job_row<StoreDraft>(), timeout_row(), nul_row(),
                        secret_rows<StoreDraft>(), cli::about_rows<StoreDraft>()});
    return table;
}

const cli::FlagTable<StoreDraft>& status_flags() {
    static const cli::FlagTable<StoreDraft> table(
        "dtrun status", {job_row<StoreDraft>(), json_row(), page_key_row(),
                         secret_rows<StoreDraft>(), cli::about_rows<StoreDraft>()});
    return table;
}

Result<StoreDraft> parse_store(cli::Words words) {
    StoreDraft draft;
    const auto rest = cli::read_options(store_flags(), words, draft);
    if (!rest) return std::unexpected(rest.error());
    if (draft.asked != cli::Ask::nothing) return draft;
    if (rest->words.empty())
        return fail(Errc::invalid_input,
                    "dtrun store what? get, set, add, wait, watch, ls, rm or drop");
    const std::string& name = rest->words[0];
    const auto* const verb = std::ranges::find(kStoreVerbs, name, &StoreVerb::name);
    if (verb == std::end(kStoreVerbs))
        return fail(Errc::invalid_input,
                    "'{}' is none of get, set, add, wait, watch, ls, rm and drop; see dtrun store "
                    "--help",
                    name);
    return parse_words(rest->words.subspan(1), store_flags(), *verb, std::move(draft));
}

Result<StoreDraft> parse_status(cli::Words words) {
    constexpr StoreVerb kVerb{"status", StoreCommand::Verb::status, "[HOST[:PORT]]", 0, 1};
    auto draft = parse_words(words, status_flags(), kVerb);
    if (draft && !draft->own.operands.empty())
        draft->own.daemon.address = std::exchange(draft->own.operands, {}).front();
    return draft;
}

std::string store_help() {
    return std::string(kStore) + cli::sections(store_flags().flags(), kDaemonSections);
}

std::string status_help() {
    return std::string(kStatus) + cli::sections(status_flags().flags(), kDaemonSections);
}

}  // namespace dtrun::commands
