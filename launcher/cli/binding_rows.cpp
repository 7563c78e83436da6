#include "launcher/cli/binding_rows.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"
#include "launcher/plan/binding.h"
#include "worker/binding/cpu_list.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;
using enum FlagScope;

constexpr int kCoresMax = 65'536;

Result<void> set_cores(ParsedRun& parsed, string_view value) {
    return keep(whole_number(value, 1, kCoresMax), parsed.options.binding.cpus_per_rank);
}

/// Open MPI's words for parts of a host that have others here.
string_view own_word(string_view word) {
    if (word == "l3cache") return "l3";
    return word == "package" ? "socket" : word;
}

/// As of --bind-to, where Open MPI has qualifiers behind a colon.
Result<void> set_bind_to(ParsedRun& parsed, string_view value) {
    const auto parts = split(value, ':');
    const auto choice = parse_bind_to(parts.front());
    if (!choice) return std::unexpected(choice.error());
    parsed.options.binding.to = *choice;
    for (std::size_t i = 1; i < parts.size(); ++i) {
        if (parts[i] != "overload-allowed" && parts[i] != "if-supported")
            return fail(Errc::invalid_input,
                        "'{}' is neither overload-allowed nor if-supported, what may stand behind "
                        "the ':'",
                        parts[i]);
        parsed.options.binding.may_overlap = true;
    }
    return {};
}

/// srun's --cpu-bind=[quiet,|verbose,]TYPE.
Result<void> set_cpu_bind(ParsedRun& parsed, string_view value) {
    for (const string_view word : split(value, ',')) {
        if (word == "verbose" || word == "v") parsed.options.binding.report = true;
        if (word == "verbose" || word == "v" || word == "quiet" || word == "q") continue;
        const auto to = plan::bind_to_of_slurm(word);
        if (!to)
            return fail(Errc::invalid_input,
                        "'{}': dtrun knows none, cores, threads, rank, sockets and ldoms; for a "
                        "list or masks write --wrap 'taskset -c ... {{}}'",
                        word);
        parsed.options.binding.to = *to;
        parsed.options.binding.may_overlap = true;
    }
    return {};
}

/// What Open MPI has behind the colon of --map-by.
Result<void> set_modifier(ParsedRun& parsed, string_view word) {
    std::string low(word);
    std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
    if (low == "oversubscribe") parsed.options.oversubscribe = true;
    if (low == "oversubscribe" || low == "nooversubscribe" || low == "corecpus") return {};
    if (low.starts_with("pe=")) return set_cores(parsed, word.substr(3));
    return fail(Errc::invalid_input, "'{}' is neither PE=CORES nor OVERSUBSCRIBE", word);
}

/// "ppr:2:node", ranks of each object: dtrun knows before it starts only how many hosts there are.
Result<void> set_ranks_per_object(ParsedRun& parsed, const std::vector<string_view>& parts) {
    if (parts.size() < 3 || parts[2] != "node")
        return fail(Errc::invalid_input,
                    "ppr is followed by :N:node, ranks of each host; for "
                    "parts of hosts write -N and --map-by numa or socket");
    for (std::size_t i = 3; i < parts.size(); ++i)
        if (const auto done = set_modifier(parsed, parts[i]); !done) return done;
    return set_ranks_per_host(parsed, parts[1]);
}

Result<void> set_map_by(ParsedRun& parsed, string_view value) {
    using Choice = std::pair<MapBy, MapWithin>;
    const auto parts = split(value, ':');
    if (parts.front() == "ppr") return set_ranks_per_object(parsed, parts);
    if (parts.front().empty() && parts.size() > 1) {  // ":OVERSUBSCRIBE", in the usual places
        for (std::size_t i = 1; i < parts.size(); ++i)
            if (const auto done = set_modifier(parsed, parts[i]); !done) return done;
        return {};
    }
    const auto choice =
        choose<Choice>(own_word(parts.front()), {{"slot", {MapBy::slot, MapWithin::slot}},
                                                 {"node", {MapBy::node, MapWithin::slot}},
                                                 {"core", {MapBy::slot, MapWithin::core}},
                                                 {"l3", {MapBy::slot, MapWithin::l3}},
                                                 {"numa", {MapBy::slot, MapWithin::numa}},
                                                 {"socket", {MapBy::slot, MapWithin::socket}},
                                                 {"gpu", {MapBy::slot, MapWithin::gpu}}});
    if (!choice) return std::unexpected(choice.error());
    std::tie(parsed.options.map_by, parsed.options.binding.by) = *choice;
    for (std::size_t i = 1; i < parts.size(); ++i)
        if (const auto done = set_modifier(parsed, parts[i]); !done) return done;
    return {};
}

Result<void> set_report(ParsedRun& parsed, string_view) {
    parsed.options.binding.report = true;
    return {};
}

/// Open MPI 5's "map,bind", each with qualifiers behind a colon.
Result<void> set_display(ParsedRun& parsed, string_view value) {
    for (const string_view item : split(value, ',')) {
        const string_view word = item.substr(0, item.find(':'));
        const bool is_plan = word.starts_with("map") || word == "allocation" || word == "alloc" ||
                             word.starts_with("topo");
        const bool is_binding = word.starts_with("bind");
        if (!is_plan && !is_binding)
            return fail(Errc::invalid_input, "'{}' is none of map, allocation, topo and bind",
                        item);
        parsed.options.show_plan = parsed.options.show_plan || is_plan;
        parsed.options.binding.report = parsed.options.binding.report || is_binding;
    }
    return {};
}

Result<void> set_binding_args(ParsedRun& parsed, string_view value) {
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    std::ranges::copy(*words, std::back_inserter(parsed.options.binding_args));
    return {};
}

Result<void> check_rank_by(ParsedRun&, string_view value) {
    if (value == "slot") return {};
    return fail(Errc::invalid_input, "'{}': dtrun numbers ranks by slot only", value);
}

/// The part of mpirun's words that dtrun can do itself.
const FlagTable<ParsedRun>& args_flags() {
    static const FlagTable<ParsedRun> table(
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
    return choose<BindTo>(own_word(word), {{"none", BindTo::none},
                                           {"core", BindTo::core},
                                           {"share", BindTo::share},
                                           {"l3", BindTo::l3},
                                           {"numa", BindTo::numa},
                                           {"socket", BindTo::socket},
                                           {"gpu", BindTo::gpu},
                                           {"auto", BindTo::automatic}});
}

Result<void> set_cpus(ParsedRun& parsed, string_view value) {
    const auto cpus = binding::parse_cpus(value);
    if (!cpus) return std::unexpected(cpus.error());
    parsed.options.binding.cpus = binding::cpu_text(*cpus);
    return {};
}

Result<void> set_ranks_per_host(ParsedRun& parsed, string_view value) {
    const auto number = whole_number(value, 1, kSlotsMax);
    if (!number) return std::unexpected(number.error());
    plan::HostShape& shape = parsed.options.shape;
    shape.count = plan::HostShape::Count::number;
    shape.number = *number;
    shape.count_flag = fmt::format("-N {}", *number);
    return {};
}

Rows<ParsedRun> binding_flags() {
    return {
        {{.names = "--bind-to",
          .also = "-bind-to",
          .metavar = "OBJECT",
          .words = "auto|core|share|l3|numa|socket|gpu|none",
          .group = binding,
          .in = {join, frontends, bench},
          .common = true,
          .help = "what each rank is bound to: auto (cores near its GPU), core, share (an equal "
                  "part of all cores), l3, numa, socket, gpu or none (default: none)"},
         set_bind_to},
        {{.names = "--cpus-per-rank",
          .also = "--cpus-per-proc -cpus-per-proc --cpus-per-task",
          .metavar = "N",
          .group = binding,
          .in = {join, frontends, bench},
          .help = "how many cores each rank gets (default: as --bind-to gives)"},
         set_cores},
        {{.names = "--map-by",
          .also = "-map-by",
          .metavar = "OBJECT",
          .words = "slot|node|core|l3|numa|socket|gpu",
          .group = binding,
          .in = {frontends, bench},
          .help =
              "slot: fill each host before the next; node: one rank on each host in turn; core, "
              "l3, numa, socket, gpu: fill each host, going round these inside it (default: slot)"},
         set_map_by},
        {{.names = "--report-bindings",
          .also = "-report-bindings",
          .group = binding,
          .in = {join, frontends, bench},
          .help = "report which processors each rank is bound to (default: only if they differ "
                  "from those asked for)"},
         set_report},
        {{.names = "--binding-args",
          .metavar = "ARGS",
          .group = binding,
          .is_arguments = true,
          .argparse = "--binding-args",
          .excludes = "--bind-to --cpus-per-rank",
          .help = "binding in mpirun's own flags; with --mpi mpirun they are passed to it "
                  "(default: none)"},
         set_binding_args},
    };
}

Rows<ParsedRun> foreign_binding_flags() {
    return {
        {{.names = "--bind-to-core -bind-to-core", .group = foreign, .help = "--bind-to core"},
         [](ParsedRun& parsed, string_view) { return set_bind_to(parsed, "core"); }},
        {{.names = "--rank-by -rank-by",
          .metavar = "slot",
          .group = foreign,
          .help = "accepted if it is slot"},
         check_rank_by},
        {{.names = "--cpu-set -cpu-set --cpu-list -cpu-list",
          .metavar = "LIST",
          .group = foreign,
          .help = "let ranks share only these processors of each host, such as 0-3,8"},
         set_cpus},
        {{.names = "--display -display",
          .metavar = "WORDS",
          .group = foreign,
          .help = "Open MPI's: map, allocation or topo print the plan, bind reports bindings"},
         set_display},
        {{.names = "--cpu-bind",
          .metavar = "TYPE",
          .group = foreign,
          .help = "srun's: cores, threads and rank mean --bind-to share, sockets means socket, "
                  "ldoms numa"},
         set_cpu_bind},
    };
}

Result<void> read_binding_args(plan::Options& options) {
    const std::vector<std::string> args = std::exchange(options.binding_args, {});
    if (args.empty() || args == std::vector<std::string>{"none"}) return {};
    ParsedRun parsed;
    parsed.options.binding = options.binding;
    parsed.options.map_by = options.map_by;
    parsed.options.oversubscribe = options.oversubscribe;
    const auto rest = read_options(args_flags(), args, parsed);
    if (!rest) return fail(rest.error(), "--binding-args");
    if (!rest->words.empty())
        return fail(Errc::invalid_input, "--binding-args: '{}' is for mpirun only (--mpi mpirun)",
                    rest->words.front());
    options.binding = parsed.options.binding;
    options.map_by = parsed.options.map_by;
    options.oversubscribe = parsed.options.oversubscribe;
    return {};
}

}  // namespace dtrun::cli
