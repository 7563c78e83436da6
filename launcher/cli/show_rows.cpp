#include "launcher/cli/show_rows.h"

#include "base/interfaces.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "launcher/cli/setters.h"
#include "launcher/output/path_pattern.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/watch/event.h"
#include "launcher/watch/event_commands.h"

#include <algorithm>

namespace dtrun::cli {
namespace {

using std::string_view;
using enum FlagGroup;

/// "[EVENT,EVENT:]COMMAND": what stands before the first colon names events if it has only their letters.
Result<void> add_event_command(ParsedRun& parsed, string_view value) {
    plan::EventCommand command;
    const std::size_t colon = value.find(':');
    const string_view before = value.substr(0, colon);
    const bool has_names =
        colon != string_view::npos && !before.empty() &&
        before.find_first_not_of("abcdefghijklmnopqrstuvwxyz_,") == string_view::npos;
    if (has_names) {
        for (const string_view name : split(before, ',')) {
            if (!watch::event_kind(name))
                return fail(Errc::invalid_input, "there is no event '{}'{}; there are {}", name,
                            did_you_mean(name, watch::event_names()),
                            join_names(watch::event_names()));
            command.events.emplace_back(name);
        }
        value.remove_prefix(colon + 1);
    } else {
        command.events = watch::events_by_default();
    }
    if (trim(value).empty()) return fail(Errc::invalid_input, "no command is given");
    command.line = value;
    parsed.options.show.commands.push_back(std::move(command));
    return {};
}

template <auto Member>
Result<void> set_listen(ParsedRun& parsed, string_view value) {
    return keep(parse_listen_address(value), parsed.options.show.*Member);
}

Result<void> set_log(ParsedRun& parsed, string_view value) {
    if (value.empty()) return fail(Errc::invalid_input, "the name is empty");
    parsed.options.show.log_json = value;
    return {};
}

Result<void> set_report_file(ParsedRun& parsed, string_view value) {
    if (value.empty()) return fail(Errc::invalid_input, "the name is empty");
    if (const auto known = output::check_path_pattern(value); !known) return known;
    parsed.options.show.report = value;
    return {};
}

}  // namespace

Result<plan::ListenAddress> parse_listen_address(string_view value) {
    constexpr const char* kLoopback = "127.0.0.1";
    if (value.empty()) return plan::ListenAddress{kLoopback, 0};
    if (const auto port = to_int(value, 0, kPortMax))
        return plan::ListenAddress{kLoopback, static_cast<std::uint16_t>(*port)};
    if (std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; }))
        return fail(Errc::invalid_input, "'{}' is no port: 0 to {}, 0 for any free one", value,
                    kPortMax);
    const auto parsed = plan::parse_address(value, 0);
    if (!parsed) return std::unexpected(parsed.error());
    const std::string address = parsed->first == "localhost" ? kLoopback : parsed->first;
    if (!is_numeric_address(address))
        return fail(
            Errc::invalid_input,
            "'{}' is neither a port nor a numeric address of this machine, such as 127.0.0.1 "
            "or 0.0.0.0",
            parsed->first);
    return plan::ListenAddress{address, parsed->second};
}

Rows<ParsedRun> show_flags() {
    return {
        {{.names = "--log-json",
          .metavar = "FILE",
          .group = publishing,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "append each event to FILE as a line of JSON: hosts joining or lost, ranks "
                  "starting and ending, restarts, the end (default: none)"},
         set_log},
        {{.names = "--report",
          .metavar = "FILE",
          .group = publishing,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "write how the job ended to FILE as JSON: the cause, and what became of each "
                  "host and rank; %j and %t as in --log (default: none)"},
         set_report_file},
        {{.names = "--on-event",
          .metavar = "COMMAND",
          .group = publishing,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .adds_up = true,
          .help = "run COMMAND in a shell at the start, for each lost host or restart, and at the "
                  "end; EVENT,EVENT:COMMAND for other events; the event is its standard input; "
                  "repeatable (default: none)"},
         add_event_command},
        {{.names = "--web",
          .metavar = "[=ADDRESS:PORT]",
          .group = publishing,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .common = true,
          .help = "show the job on a web page and print its address; --web alone: a free port of "
                  "loopback (default: none)"},
         set_listen<&plan::ShowOptions::page>},
        {{.names = "--metrics",
          .metavar = "ADDRESS:PORT",
          .group = publishing,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "serve metrics for Prometheus at http://ADDRESS:PORT/metrics; PORT alone: on the "
                  "loopback interface (default: none)"},
         set_listen<&plan::ShowOptions::metrics>},
    };
}

}  // namespace dtrun::cli
