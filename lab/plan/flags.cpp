// The words of `dtrun bench`: its own flags, and those of `dtrun run` that say where ranks run.

#include "lab/plan/flags.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "lab/names.h"
#include "lab/plan/plan.h"
#include "lab/step_regex.h"
#include "launcher/cli/setters.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <charconv>
#include <iterator>

namespace dtrun::lab {
namespace {

using std::string_view;
using enum cli::FlagGroup;

constexpr string_view kUsage = "usage: dtrun bench [options] [-- PROGRAM [ARGUMENT...]]";

/// A list without blanks, each item once, in the order given.
Result<std::vector<std::string>> parse_list(string_view text) {
    std::vector<std::string> items;
    for (const string_view part : split(text, ',')) {
        const string_view item = trim(part);
        if (item.empty())
            return fail(Errc::invalid_input, "a name is missing in '{}'; write a,b", text);
        if (std::ranges::find(items, item) == items.end()) items.emplace_back(item);
    }
    return items;
}

template <auto Member, const std::vector<std::string>& (*Known)()>
Result<void> set_known(ParsedBench& parsed, string_view value) {
    auto items = parse_list(value);
    if (!items) return std::unexpected(items.error());
    for (std::string& item : *items) {
        // Names of operations are written either way elsewhere.
        if (Known == operation_names) std::ranges::replace(item, '-', '_');
        if (std::ranges::find(Known(), item) == Known().end())
            return fail(Errc::invalid_input, "'{}' is not one of {}{}", item,
                        join_names(Known(), 16), did_you_mean(item, Known()));
    }
    parsed.own.*Member = std::move(*items);
    return {};
}

/// Accepts any names, since anybody may add plug-ins.
Result<void> set_backends(ParsedBench& parsed, string_view value) {
    auto items = parse_list(value);
    if (!items) return std::unexpected(items.error());
    for (const std::string& item : *items)
        if (!std::ranges::all_of(item, [](char c) {
                return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
            }))
            return fail(Errc::invalid_input,
                        "'{}' is not the name of a backend such as dtrun, mpi "
                        "or nccl",
                        item);
    parsed.own.backends = std::move(*items);
    return {};
}

template <auto Member, int Max>
Result<void> set_counts(ParsedBench& parsed, string_view value) {
    std::vector<int> counts;
    for (const string_view part : split(value, ',')) {
        const auto number = cli::whole_number(trim(part), 1, Max);
        if (!number) return std::unexpected(number.error());
        if (std::ranges::find(counts, *number) == counts.end()) counts.push_back(*number);
    }
    parsed.own.*Member = std::move(counts);
    return {};
}

Result<void> set_sizes(ParsedBench& parsed, string_view value) {
    auto sizes = parse_sizes(value);
    if (!sizes) return std::unexpected(sizes.error());
    parsed.own.sizes = std::move(*sizes);
    return {};
}

/// Checks names here, since unknown ones would fail only later, in the rank program.
Result<void> set_algorithms(ParsedBench& parsed, string_view value) {
    auto items = parse_list(value);
    if (!items) return std::unexpected(items.error());
    for (const std::string& item : *items) {
        if (item == "none") continue;      // which is another word for parallel
        if (item.contains('=')) continue;  // of a program, see check_program()
        if (!parse_algorithm(item))
            return fail(Errc::invalid_input,
                        "'{}' is neither serial, parallel nor one of {}, with -ef, -noef or "
                        "-stochastic behind it",
                        item, join_names(compression_names(), 16));
    }
    parsed.own.algorithms = std::move(*items);
    return {};
}

Result<void> set_model(ParsedBench& parsed, string_view value) {
    if (value != "mlp" && value != "cnn")
        return fail(Errc::invalid_input, "'{}' is neither mlp nor cnn", value);
    parsed.own.model = value;
    return {};
}

/// Keeps the number as it was typed, since the rank program parses it again.
Result<void> set_loss_scale(ParsedBench& parsed, string_view value) {
    double scale = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), scale);
    if (error != std::errc() || end != value.data() + value.size() ||
        !(scale >= kLossScaleMin && scale <= kLossScaleMax))
        return fail(Errc::invalid_input,
                    "'{}' is not a number from 0.000001 to 1000000, such as 128 or 0.01", value);
    parsed.own.loss_scale = value;
    return {};
}

Result<void> set_pairs(ParsedBench& parsed, string_view value) {
    using Pairs = BenchCommand::Pairs;
    const auto pairs =
        cli::choose<Pairs>(value, {{"hosts", Pairs::hosts}, {"ranks", Pairs::ranks}});
    return cli::keep(pairs, parsed.own.pairs);
}

/// Keeps what `Parse` makes of a value.
template <auto Member, auto Parse>
Result<void> set_parsed(ParsedBench& parsed, string_view value) {
    return cli::keep(Parse(value), parsed.own.*Member);
}

cli::Rows<ParsedBench> sweep_flags() {
    static const std::string kOps =
        fmt::format("{} (default: allreduce)", fmt::join(operation_names(), ", "));
    static const std::string kTypes =
        fmt::format("{} (default: f32)", fmt::join(type_names(), ", "));
    static const std::string kCompressions = fmt::format(
        "of allreduce of f32: {}; the unscaled ones are there to be seen failing (default: none; "
        "training: none,fp16,int8)",
        fmt::join(compression_names(), ", "));
    return {
        {{.names = "--backends --backend",
          .metavar = "NAMES",
          .group = native,
          .help = "backends to measure, such as dtrun,mpi,gloo,nccl,oneccl (default: those that "
                  "every host has)"},
         set_backends},
        {{.names = "--hosts",
          .metavar = "COUNTS",
          .group = native,
          .help = "how many of the hosts to use, from the first on: 1,2,4 (default: 1, 2, 4, ... "
                  "and all)"},
         set_counts<&BenchCommand::hosts, kHostsMax>},
        {{.names = "--slots",
          .metavar = "COUNTS",
          .group = native,
          .help = "ranks on each host: 1,2,4 (default: 1, 2, 4, ... and all slots; without hosts: "
                  "this machine's GPUs, else its CPUs)"},
         set_counts<&BenchCommand::slots, kSlotsMax>},
        {{.names = "--ops", .metavar = "NAMES", .group = native, .help = kOps},
         set_known<&BenchCommand::ops, operation_names>},
        {{.names = "--sizes",
          .metavar = "SIZES",
          .group = native,
          .help = "bytes, as nccl-tests counts them: 4..64M:x4 or 1K,1M (default: 1K..16M:x4)"},
         set_sizes},
        {{.names = "--dtypes", .metavar = "NAMES", .group = native, .help = kTypes},
         set_known<&BenchCommand::dtypes, type_names>},
        {{.names = "--compress", .metavar = "NAMES", .group = native, .help = kCompressions},
         set_known<&BenchCommand::compress, compression_names>},
        {{.names = "--seconds",
          .metavar = "SECONDS",
          .group = native,
          .help = "time for each row; fractions allowed (default: all rows within a minute)"},
         cli::set_seconds<&BenchCommand::seconds>},
        {{.names = "--iters",
          .metavar = "N",
          .group = native,
          .help = "how often to measure each; with --seconds, at most (default: by --seconds)"},
         cli::set_number<&BenchCommand::iters, 1, kIterationsMax>},
        {{.names = "--warmup",
          .metavar = "N",
          .group = native,
          .help = "how often to run each before measuring (default: 5)"},
         cli::set_number<&BenchCommand::warmup, 0, kIterationsMax>},
        {{.names = "--compress-auto",
          .group = native,
          .help = "compress as programs do by default: only between hosts, and where it is faster"},
         cli::set_true<&BenchCommand::compress_auto>},
        {{.names = "--in-place",
          .group = native,
          .help = "also measure operations in place, where that is possible"},
         cli::set_true<&BenchCommand::in_place>},
        {{.names = "--pairs",
          .metavar = "hosts|ranks",
          .group = native,
          .help = "measure latency and bandwidth between every two hosts, or ranks, as a matrix"},
         set_pairs},
        {{.names = "--no-check", .group = native, .help = "do not check results"},
         cli::set_to<&BenchCommand::check, false>},
    };
}

Result<void> set_step_regex(ParsedBench& parsed, string_view value) {
    if (const auto read = StepRegex::parse(value); !read) return std::unexpected(read.error());
    parsed.own.step_regex = value;
    return {};
}

Result<void> set_accuracy_regex(ParsedBench& parsed, string_view value) {
    if (const auto read = AccuracyRegex::parse(value); !read) return std::unexpected(read.error());
    parsed.own.accuracy_regex = value;
    return {};
}

cli::Rows<ParsedBench> program_flags() {
    return {
        {{.names = "--step-regex",
          .metavar = "REGEX",
          .group = native,
          .help = "a regular expression whose group finds in the program's output how long a step "
                  "took: 'step ([0-9.]+) s'. The group's name gives the unit, if that is not "
                  "seconds: (?<ms>...), us, steps_per_s, samples_per_s (of all ranks), "
                  "rank_samples_per_s, or, for a running total, steps or samples (default: the "
                  "program tells, by Worker.progress or dtrun.torch, or prints 'Train Epoch: 1 "
                  "[640/30000' or a progress bar)"},
         set_step_regex},
        {{.names = "--accuracy-regex",
          .metavar = "REGEX",
          .group = native,
          .help = "a regular expression whose group finds the accuracy in the program's output; "
                  "the last match counts (default: 'accuracy: 97.5%', 'acc=0.975' and the like)"},
         set_accuracy_regex},
    };
}

/// What fingers write that know `dtrun run`, or the other flags here.
cli::Rows<ParsedBench> guessed_flags() {
    return {
        {{.names = "-np -n --np -N",
          .group = foreign,
          .refused = "ranks are --slots on each of --hosts; write --slots 2"}},
        {{.names = "--no-train",
          .group = foreign,
          .refused = "it trains only with --train; leave it out"}},
    };
}

cli::Rows<ParsedBench> train_flags() {
    return {
        {{.names = "--train",
          .group = training,
          .help = "also train the example network, on one rank and in every shape"},
         cli::set_true<&BenchCommand::train>},
        {{.names = "--no-sweep",
          .group = training,
          .help = "measure nothing but --train and --pairs"},
         cli::set_to<&BenchCommand::sweep, false>},
        {{.names = "--algorithms",
          .metavar = "NAMES",
          .group = training,
          .help =
              "parallel, or how gradients are compressed, as in --compress; the suffix -stochastic "
              "rounds at random, -noef leaves out the error feedback that scaled 8 bits have, and "
              "-ef adds it (default: parallel and those of --compress, else parallel,fp16,int8; "
              "serial always). For a program (default: parallel): those that dtrun.torch has, or "
              "NAME=ARGUMENTS, which are added to the program's own: int8=--bit8-allreduce"},
         set_algorithms},
        {{.names = "--data",
          .metavar = "FOLDER",
          .group = training,
          .help = "a folder with MNIST's four files, on every host (default: generated digits)"},
         cli::set_text<&BenchCommand::data>},
        {{.names = "--python",
          .metavar = "FILE",
          .group = training,
          .help = "the Python with PyTorch that trains, on every host (default: python3)"},
         cli::set_text<&BenchCommand::python>},
        {{.names = "--model", .metavar = "mlp|cnn", .group = training, .help = "(default: mlp)"},
         set_model},
        {{.names = "--epochs", .metavar = "N", .group = training, .help = "(default: 3)"},
         cli::set_number<&BenchCommand::epochs, 1, kEpochsMax>},
        {{.names = "--global-batch",
          .metavar = "N",
          .group = training,
          .help = "samples per step, over all ranks; in weak scaling, of each rank (default: 256; "
                  "for a program: not known, and steps are counted)"},
         cli::set_number<&BenchCommand::global_batch, 1, kGlobalBatchMax>},
        {{.names = "--seed",
          .metavar = "N",
          .group = training,
          .help = "seed for weights and the order of samples; {seed} in a program's arguments "
                  "stands for it (default: 1)"},
         cli::set_number<&BenchCommand::seed, 0, kSeedMax>},
        {{.names = "--seeds",
          .metavar = "N",
          .group = training,
          .help = "train with this many seeds, from --seed on; 5 give a meaningful confidence "
                  "interval (default: 1)"},
         cli::set_number<&BenchCommand::seeds, 1, kSeedsMax>},
        {{.names = "--target-accuracy",
          .metavar = "PERCENT",
          .group = training,
          .help =
              "report how long training took to reach this accuracy: 95% or 0.95 (default: none)"},
         set_parsed<&BenchCommand::target_accuracy, parse_accuracy>},
        {{.names = "--scaling",
          .metavar = "NAMES",
          .group = training,
          .help = "strong: ranks share one batch; weak: each rank has a batch of that size and as "
                  "many samples; strong,weak: both (default: strong)"},
         set_known<&BenchCommand::scaling, scaling_names>},
        {{.names = "--loss-scale",
          .metavar = "FACTOR",
          .group = training,
          .help = "multiply gradients by FACTOR while they travel: makes no difference to f32, but "
                  "unscaled 8 bits lose more of them if it is small, and fewer if it is large "
                  "(default: 1)"},
         set_loss_scale},
    };
}

Result<void> set_language(ParsedBench& parsed, string_view value) {
    return cli::keep(cli::choose<bool>(value, {{"en", false}, {"zh", true}}), parsed.own.chinese);
}

cli::Rows<ParsedBench> report_flags() {
    return {
        {{.names = "--html",
          .metavar = "FILE",
          .group = output,
          .help = "write a self-contained page with tables and plots"},
         cli::set_text<&BenchCommand::html>},
        {{.names = "--markdown",
          .metavar = "FILE",
          .group = output,
          .help = "write the tables of the lab, to be handed in; the plots lie beside it, as "
                  "FILE-1.svg and so on"},
         cli::set_text<&BenchCommand::markdown>},
        {{.names = "--csv",
          .metavar = "FILE",
          .group = output,
          .help = "write every row with every column"},
         cli::set_text<&BenchCommand::csv>},
        {{.names = "--json",
          .metavar = "FILE",
          .group = output,
          .help = "write everything, for --from and --compare to read. In all of these, - is "
                  "standard output"},
         cli::set_text<&BenchCommand::json>},
        {{.names = "--line-rate",
          .metavar = "SPEED",
          .group = output,
          .help = "speed of the network between hosts, such as 25gbit, drawn beside bandwidths "
                  "(default: that of the interface, where it is known)"},
         set_parsed<&BenchCommand::line_rate_mbit, parse_line_rate>},
        {{.names = "--title",
          .metavar = "TEXT",
          .group = output,
          .help = "the reports' title (default: the hosts)"},
         cli::set_text<&BenchCommand::title>},
        {{.names = "--lang",
          .metavar = "en|zh",
          .group = output,
          .help = "the language of reports, with their tables and plots: English or Chinese "
                  "(default: en)"},
         set_language},
        {{.names = "--from",
          .metavar = "FILE",
          .group = output,
          .help = "run nothing; write reports, in another form or language, from a file that "
                  "--json wrote"},
         cli::set_text<&BenchCommand::from>},
        {{.names = "--explain",
          .group = output,
          .help = "say which way data took (shared memory, RDMA, GPUDirect), and why not another"},
         cli::set_true<&BenchCommand::explain>},
        {{.names = "--compare",
          .group = output,
          .help = "compare two files that --json wrote: dtrun bench --compare A B"},
         cli::set_true<&BenchCommand::compare>},
    };
}

cli::Rows<ParsedBench> limit_flags() {
    return {
        {{.names = "--rank-program",
          .metavar = "FILE",
          .group = ending,
          .help = "the program that ranks run, on every host (default: dtrun-bench-rank beside "
                  "dtrun, or in ../libexec/dtrun)"},
         cli::set_text<&BenchCommand::rank_program>},
        {{.names = "--timeout",
          .metavar = "SECONDS",
          .group = ending,
          .help = "end a run that prints nothing for this long (default: 300; training: 3600)"},
         cli::set_seconds<&BenchCommand::timeout>},
    };
}

/// Checks a flag of `dtrun run` here, and hands it on to each run.
cli::Row<ParsedBench> handed_on(cli::Row<cli::ParsedRun> row) {
    const string_view name = row.flag.first_name();
    if (name == "-H") row.flag.names = name;  // for bench, --hosts is a number
    const auto set = [inner = std::move(row.set), name](ParsedBench& parsed,
                                                        string_view value) -> Result<void> {
        if (auto done = inner(parsed, value); !done) return done;
        std::vector<std::string>& words = parsed.own.launch;
        if (value.starts_with('-') || (name == "--mpi" && !value.empty())) {
            words.push_back(fmt::format("{}={}", name, value));
            return {};
        }
        words.emplace_back(name);
        if (!value.empty()) words.emplace_back(value);
        return {};
    };
    return {row.flag, set};
}

/// Whether runs must not get a flag as it was given: bench itself tells them the list of hosts,
/// which is read once, and how much to show.
bool is_of_bench_alone(string_view name) {
    return name == "--hostfile" || name == "--quiet" || name == "--help" || name == "--version";
}

cli::Rows<ParsedBench> launch_flags() {
    cli::Rows<ParsedBench> rows;
    for (cli::Row<cli::ParsedRun>& row : cli::run_flags().in_scope(cli::FlagScope::bench)) {
        if (is_of_bench_alone(row.flag.first_name()))
            rows.push_back({row.flag, row.set});
        else
            rows.push_back(handed_on(std::move(row)));
    }
    return rows;
}

/// With --from nothing is run, and so flags that say what to run are mistakes.
Result<void> check_from(const ParsedBench& parsed) {
    const BenchCommand& bench = parsed.own;
    const bool names_hosts = !parsed.options.hosts.empty() || !parsed.options.hostfile.empty();
    for (const auto& [words, is_given] : {std::pair<string_view, bool>{"--compare", bench.compare},
                                          {"--train", bench.train},
                                          {"--pairs", bench.pairs != BenchCommand::Pairs::none},
                                          {"the hosts", names_hosts},
                                          {"the program", !bench.program.empty()}})
        if (is_given)
            return fail(Errc::invalid_input,
                        "--from writes reports of what was measured before; leave out {}", words);
    return {};
}

/// Flags of what is not done are mistakes.
Result<void> check_training(const BenchCommand& bench) {
    if (bench.train) return {};
    for (const auto& [flag, is_given] :
         {std::pair<string_view, bool>{"--data", !bench.data.empty()},
          {"--seeds", bench.seeds != 1 && bench.program.empty()},
          {"--target-accuracy",
           bench.target_accuracy > 0 && bench.program.empty() && bench.from.empty()},
          {"--python", bench.python != BenchCommand().python}})
        if (is_given) return fail(Errc::invalid_input, "{} is for training; add --train", flag);
    return {};
}

Result<void> check_program(const BenchCommand& bench) {
    if (bench.program.empty()) {
        for (const std::string& item : bench.algorithms)
            if (item.contains('='))
                return fail(Errc::invalid_input,
                            "--algorithms '{}' adds words to a program; name it behind --", item);
        const char* const flag = !bench.step_regex.empty()       ? "--step-regex"
                                 : !bench.accuracy_regex.empty() ? "--accuracy-regex"
                                                                 : nullptr;
        if (flag == nullptr) return {};
        return fail(Errc::invalid_input,
                    "{0} looks at what a program prints; name it behind --: dtrun bench {0} REGEX "
                    "-- python3 train.py",
                    flag);
    }
    for (const std::string& item : bench.algorithms)
        if (const auto parsed = parse_program_algorithm(item); !parsed)
            return fail(parsed.error(), "--algorithms");
    if (bench.compare)
        return fail(Errc::invalid_input, "--compare runs nothing; leave out -- {}",
                    bench.program.front());
    if (bench.train || bench.pairs != BenchCommand::Pairs::none)
        return fail(Errc::invalid_input,
                    "-- {}: a program is measured alone; leave out --train and --pairs",
                    bench.program.front());
    if (bench.scaling.size() > 1)
        return fail(Errc::invalid_input,
                    "--scaling: a program's is strong (all ranks share a batch) or weak (each has "
                    "one); say which");
    if (bench.backends.empty() && bench.program_text.find("{backend}") != std::string::npos)
        return fail(Errc::invalid_input,
                    "{{backend}} in the program's words is one of --backends; name them");
    return {};
}

Result<void> check_bench(const ParsedBench& parsed) {
    const BenchCommand& bench = parsed.own;
    if (!bench.from.empty())
        if (auto done = check_from(parsed); !done) return done;
    if (auto done = check_program(bench); !done) return done;
    if (bench.compare && bench.files.size() != 2)
        return fail(Errc::invalid_input,
                    "--compare takes two files that --json has written: dtrun bench --compare A B");
    if (bench.compare && !(bench.markdown + bench.csv + bench.json).empty())
        return fail(Errc::invalid_input,
                    "--compare writes no file but that of --html; leave out --markdown, --csv and "
                    "--json");
    if (!bench.compare && !bench.files.empty())
        return fail(
            Errc::invalid_input,
            "'{}' is no option, and a program to measure stands behind --: dtrun bench -- {}; {}",
            bench.files.front(), bench.files.front(), kUsage);
    if (parsed.options.mpirun)
        return fail(Errc::invalid_input,
                    "--mpi mpirun: dtrun bench starts the ranks itself; leave it out");
    if (!bench.sweep && !bench.train && bench.pairs == BenchCommand::Pairs::none &&
        bench.program.empty())
        return fail(Errc::invalid_input,
                    "--no-sweep without --train or --pairs leaves nothing to do");
    if (bench.compress_auto && !bench.sweep)
        return fail(Errc::invalid_input, "--compress-auto is for the sweep; leave out --no-sweep");
    if (bench.in_place && !bench.sweep)
        return fail(Errc::invalid_input, "--in-place is for the sweep; leave out --no-sweep");
    if (bench.seed + bench.seeds - 1 > kSeedMax)
        return fail(Errc::invalid_input, "--seeds {}: the last would be above {}", bench.seeds,
                    kSeedMax);
    return check_training(bench);
}

}  // namespace

const cli::FlagTable<ParsedBench>& bench_flags() {
    static const cli::FlagTable<ParsedBench> table(
        "dtrun bench", {sweep_flags(), program_flags(), guessed_flags(), train_flags(),
                        report_flags(), limit_flags(), launch_flags()});
    return table;
}

Result<ParsedBench> parse_bench(cli::Words words) {
    ParsedBench parsed;
    while (!words.empty()) {
        const auto rest = cli::read_options(bench_flags(), words, parsed);
        if (!rest) return std::unexpected(rest.error());
        if (parsed.asked != cli::Ask::nothing) return parsed;
        words = rest->words;
        if (rest->ended) {
            parsed.own.program.assign(words.begin(), words.end());
            if (words.empty())
                return fail(Errc::invalid_input, "which program? it stands behind --; {}", kUsage);
            for (const std::string& word : words)
                parsed.own.program_text +=
                    (parsed.own.program_text.empty() ? "" : " ") + shell_quote(word);
            break;
        }
        if (words.empty()) break;
        parsed.own.files.push_back(words.front());
        words = words.subspan(1);
    }
    if (const auto done = check_bench(parsed); !done) return std::unexpected(done.error());
    return parsed;
}

}  // namespace dtrun::lab
