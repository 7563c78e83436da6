#include "launcher/cli/look_rows.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;

/// "[RANKS:]COMMAND": what stands before the first colon is for ranks if it has only digits, commas and
/// dashes.
Result<void> add_wrap(RunDraft& draft, string_view value) {
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
    draft.options.wraps.push_back(std::move(wrap));
    return {};
}

}  // namespace

Rows<RunDraft> look_flags() {
    return {
        {{.names = "--wrap",
          .metavar = "COMMAND",
          .group = look,
          .in = {Taker::join, Taker::fronts},
          .needs_agents = true,
          .help = "run the program by it: 'perf record -o {rank} {}', RANKS:COMMAND; repeatable"},
         add_wrap},
    };
}

}  // namespace dtrun::cli
