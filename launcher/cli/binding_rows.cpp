#include "launcher/cli/binding_rows.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;
using enum Taker;

constexpr int kCoresMax = 65'536;

Result<void> set_bind_to(RunDraft& draft, string_view value) {
    const auto choice = parse_bind_to(value);
    if (!choice) return std::unexpected(choice.error());
    draft.options.binding.to = *choice;
    return {};
}

Result<void> set_cores(RunDraft& draft, string_view value) {
    const auto number = whole_number(value, 1, kCoresMax);
    if (!number) return std::unexpected(number.error());
    draft.options.binding.cpus_per_rank = *number;
    return {};
}

/// What Open MPI has behind the colon of --map-by.
Result<void> set_modifier(RunDraft& draft, string_view word) {
    if (word == "OVERSUBSCRIBE" || word == "oversubscribe") {
        draft.options.oversubscribe = true;
        return {};
    }
    if (word.starts_with("PE=") || word.starts_with("pe=")) return set_cores(draft, word.substr(3));
    return fail(Errc::invalid_input, "'{}' is neither PE=CORES nor OVERSUBSCRIBE", word);
}

Result<void> set_map_by(RunDraft& draft, string_view value) {
    using Choice = std::pair<MapBy, MapWithin>;
    const auto parts = split(value, ':');
    const auto choice = choose<Choice>(parts.front(), {{"slot", {MapBy::slot, MapWithin::slot}},
                                                       {"node", {MapBy::node, MapWithin::slot}},
                                                       {"core", {MapBy::slot, MapWithin::core}},
                                                       {"l3", {MapBy::slot, MapWithin::l3}},
                                                       {"l3cache", {MapBy::slot, MapWithin::l3}},
                                                       {"numa", {MapBy::slot, MapWithin::numa}},
                                                       {"socket", {MapBy::slot, MapWithin::socket}},
                                                       {"gpu", {MapBy::slot, MapWithin::gpu}}});
    if (!choice) return std::unexpected(choice.error());
    std::tie(draft.options.map_by, draft.options.binding.by) = *choice;
    for (std::size_t i = 1; i < parts.size(); ++i)
        if (const auto done = set_modifier(draft, parts[i]); !done) return done;
    return {};
}

Result<void> set_report(RunDraft& draft, string_view) {
    draft.options.binding.report = true;
    return {};
}

Result<void> set_binding_args(RunDraft& draft, string_view value) {
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    std::ranges::copy(*words, std::back_inserter(draft.options.binding_args));
    return {};
}

Result<void> check_rank_by(RunDraft&, string_view value) {
    if (value == "slot") return {};
    return fail(Errc::invalid_input, "'{}': dtrun numbers ranks by slot only", value);
}

/// The part of mpirun's words that dtrun can do itself.
const FlagTable<RunDraft>& args_flags() {
    static const FlagTable<RunDraft> table(
        "--binding-args",
        {{{{.names = "--bind-to", .metavar = "OBJECT"}, set_bind_to},
          {{.names = "--map-by", .metavar = "OBJECT"}, set_map_by},
          {{.names = "--rank-by", .metavar = "slot"}, check_rank_by},
          {{.names = "--cpus-per-rank --cpus-per-proc", .metavar = "N"}, set_cores},
          {{.names = "--report-bindings"}, set_report}}});
    return table;
}

}  // namespace

Result<BindTo> parse_bind_to(string_view word) {
    return choose<BindTo>(word, {{"none", BindTo::none},
                                 {"core", BindTo::core},
                                 {"share", BindTo::share},
                                 {"l3", BindTo::l3},
                                 {"l3cache", BindTo::l3},
                                 {"numa", BindTo::numa},
                                 {"socket", BindTo::socket},
                                 {"gpu", BindTo::gpu},
                                 {"auto", BindTo::automatic}});
}

Rows<RunDraft> binding_flags() {
    return {
        {{.names = "--bind-to",
          .metavar = "OBJECT",
          .group = binding,
          .in = {join, fronts, bench},
          .help =
              "core, share (of all cores), l3, numa, socket, gpu, auto or none (default: none)"},
         set_bind_to},
        {{.names = "--cpus-per-rank --cpus-per-proc",
          .metavar = "N",
          .group = binding,
          .in = {join, fronts, bench},
          .help = "cores of each rank (default: what --bind-to gives)"},
         set_cores},
        {{.names = "--map-by",
          .metavar = "OBJECT",
          .group = binding,
          .in = {fronts, bench},
          .help = "slot: fill a host before the next; node: one rank on each in turn; core, l3, "
                  "numa, socket, gpu: fill, in turn within a host (default: slot)"},
         set_map_by},
        {{.names = "--report-bindings",
          .group = binding,
          .in = {join, fronts, bench},
          .help = "say which processors each rank has (default: only where these are others)"},
         set_report},
        {{.names = "--binding-args",
          .metavar = "ARGS",
          .group = binding,
          .is_arguments = true,
          .argparse = "--binding-args",
          .excludes = "--bind-to --cpus-per-rank",
          .help = "all of that in mpirun's words, and for it with --mpi mpirun (default: none)"},
         set_binding_args},
    };
}

Result<void> read_binding_args(plan::Options& options) {
    const std::vector<std::string> args = std::exchange(options.binding_args, {});
    if (args.empty() || args == std::vector<std::string>{"none"}) return {};
    RunDraft draft;
    draft.options.binding = options.binding;
    draft.options.map_by = options.map_by;
    draft.options.oversubscribe = options.oversubscribe;
    const auto rest = read_options(args_flags(), args, draft);
    if (!rest) return fail(rest.error(), "--binding-args");
    if (!rest->words.empty())
        return fail(Errc::invalid_input, "--binding-args: '{}' is for mpirun only (--mpi mpirun)",
                    rest->words.front());
    options.binding = draft.options.binding;
    options.map_by = draft.options.map_by;
    options.oversubscribe = draft.options.oversubscribe;
    return {};
}

}  // namespace dtrun::cli
