#include "launcher/cli/history_rows.h"

#include "launcher/cli/setters.h"

#include <algorithm>

namespace dtrun::cli {
namespace {

using std::string_view;
using enum FlagGroup;

constexpr std::size_t kNameMax = 32;

/// It is a part of a file's name, and stands where an id or a number may stand.
Result<void> set_name(ParsedRun& parsed, string_view value) {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    const bool is_plain = std::ranges::all_of(value, [&](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
    if (value.empty() || value.size() > kNameMax || !is_plain || !is_letter(value.front()))
        return fail(Errc::invalid_input,
                    "'{}' is no name of a job: a letter, then letters, digits, - and _, at most {} "
                    "of all",
                    value, kNameMax);
    parsed.options.history.name = value;
    return {};
}

Result<void> set_detach(ParsedRun& parsed, string_view) {
    parsed.options.history.detach = true;
    return {};
}

Result<void> set_off(ParsedRun& parsed, string_view) {
    parsed.options.history.off = true;
    return {};
}

Result<void> refuse_again(ParsedRun&, string_view) {
    return fail(Errc::invalid_input,
                "a job that runs again has its own options: write dtrun --again [JOB] alone");
}

}  // namespace

Rows<ParsedRun> history_flags() {
    return {
        {{.names = "--detach -d",
          .also = "--background",
          .group = publishing,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .common = true,
          .help = "print the job's id and return once its ranks run; the job goes on without this "
                  "terminal: see `dtrun logs` (default: wait)"},
         set_detach},
        {{.names = "--name",
          .metavar = "NAME",
          .group = publishing,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .help = "a name for the job, which commands take in place of its id; no other running "
                  "job of yours here may have it (default: none)"},
         set_name},
        {{.names = "--no-record",
          .group = publishing,
          .in = {FlagScope::join, FlagScope::frontends},
          .help = "keep no record for `dtrun jobs --all` and `dtrun --again` (default: kept for 30 "
                  "days)"},
         set_off},
        {{.names = "--again",
          .metavar = "[=JOB]",
          .group = publishing,
          .help = "dtrun --again [JOB], with nothing else: run a job again, with the same command "
                  "line in the same directory (default: the last job)"},
         refuse_again},
    };
}

}  // namespace dtrun::cli
