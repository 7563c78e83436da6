// The words of `dtrun bench`: its own flags, and those of `dtrun run` that say where ranks run.

#include "lab/plan/flags.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "lab/names.h"
#include "lab/plan/plan.h"
#include "launcher/cli/setters.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace dtrun::lab {
namespace {

using std::string_view;
using Words = std::span<const std::string>;
using enum cli::FlagGroup;

constexpr string_view kUsage = "usage: dtrun bench [options]";

BenchCommand& part_of(cli::Draft& draft) {
    return draft.bench;
}

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
Result<void> set_known(cli::Draft& draft, string_view value) {
    auto items = parse_list(value);
    if (!items) return std::unexpected(items.error());
    for (std::string& item : *items) {
        // Op names are written either way elsewhere.
        if (Known == operation_names) std::ranges::replace(item, '-', '_');
        if (std::ranges::find(Known(), item) == Known().end())
            return fail(Errc::invalid_input, "'{}' is not one of {}{}", item,
                        join_names(Known(), 16), did_you_mean(item, Known()));
    }
    part_of(draft).*Member = std::move(*items);
    return {};
}

/// Names of plug-ins, which may be anybody's.
Result<void> set_backends(cli::Draft& draft, string_view value) {
    auto items = parse_list(value);
    if (!items) return std::unexpected(items.error());
    for (const std::string& item : *items)
        if (!std::ranges::all_of(item, [](char c) {
                return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
            }))
            return fail(Errc::invalid_input,
                        "'{}' is not the name of a backend such as mpi, gloo "
                        "or nccl",
                        item);
    part_of(draft).backends = std::move(*items);
    return {};
}

template <auto Member, int Max>
Result<void> set_counts(cli::Draft& draft, string_view value) {
    std::vector<int> counts;
    for (const string_view part : split(value, ',')) {
        const auto number = cli::whole_number(trim(part), 1, Max);
        if (!number) return std::unexpected(number.error());
        if (std::ranges::find(counts, *number) == counts.end()) counts.push_back(*number);
    }
    part_of(draft).*Member = std::move(counts);
    return {};
}

template <auto Member, int Min, int Max>
Result<void> set_count(cli::Draft& draft, string_view value) {
    const auto number = cli::whole_number(value, Min, Max);
    if (!number) return std::unexpected(number.error());
    part_of(draft).*Member = *number;
    return {};
}

template <auto Member>
Result<void> set_time(cli::Draft& draft, string_view value) {
    const auto time = cli::parse_seconds(value, cli::kTimeoutMin, cli::kTimeoutMax);
    if (!time) return std::unexpected(time.error());
    part_of(draft).*Member = *time;
    return {};
}

template <auto Member>
Result<void> set_word(cli::Draft& draft, string_view value) {
    part_of(draft).*Member = value;
    return {};
}

template <auto Member, bool Value = true>
Result<void> set_switch(cli::Draft& draft, string_view) {
    part_of(draft).*Member = Value;
    return {};
}

Result<void> set_sizes(cli::Draft& draft, string_view value) {
    auto sizes = parse_sizes(value);
    if (!sizes) return std::unexpected(sizes.error());
    draft.bench.sizes = std::move(*sizes);
    return {};
}

/// Names that the rank program knows; what is no word of it would only fail there, later.
Result<void> set_algorithms(cli::Draft& draft, string_view value) {
    auto items = parse_list(value);
    if (!items) return std::unexpected(items.error());
    for (const std::string& item : *items) {
        if (item == "none") continue;  // which is another word for parallel
        if (!parse_algorithm(item))
            return fail(Errc::invalid_input,
                        "'{}' is neither serial, parallel nor one of {}, with -ef, -noef or "
                        "-stochastic behind it",
                        item, join_names(compression_names(), 16));
    }
    draft.bench.algorithms = std::move(*items);
    return {};
}

Result<void> set_model(cli::Draft& draft, string_view value) {
    if (!parse_model(value)) return fail(Errc::invalid_input, "'{}' is neither mlp nor cnn", value);
    draft.bench.model = value;
    return {};
}

/// As it was typed, for the rank program reads it again.
Result<void> set_loss_scale(cli::Draft& draft, string_view value) {
    double scale = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), scale);
    if (error != std::errc() || end != value.data() + value.size() ||
        !(scale >= kLossScaleMin && scale <= kLossScaleMax))
        return fail(Errc::invalid_input,
                    "'{}' is not a number from 0.000001 to 1000000, such as 128 or 0.01", value);
    draft.bench.loss_scale = value;
    return {};
}

cli::Flags sweep_flags() {
    return {
        {"--backends --backend", "NAMES", native,
         "such as mpi,gloo,nccl,oneccl (default: those that every host has)", set_backends, ""},
        {"--hosts", "COUNTS", native,
         "on so many of the hosts, the first ones: 1,2,4 (default: 1, 2, 4, ... and all)",
         set_counts<&BenchCommand::hosts, kHostsMax>, ""},
        {"--slots", "COUNTS", native,
         "ranks on each host: 1,2,4 (default: 1, 2, 4, ... and all slots; without hosts: this "
         "machine's GPUs, else its CPUs)",
         set_counts<&BenchCommand::slots, kSlotsMax>, ""},
        {"--ops", "NAMES", native,
         "allreduce, allgather, reduce_scatter, reduce, broadcast, gather, scatter, alltoall, "
         "sendrecv, barrier (default: allreduce)",
         set_known<&BenchCommand::ops, operation_names>, ""},
        {"--sizes", "SIZES", native,
         "bytes, as nccl-tests counts them: 4..64M:x4 or 1K,1M (default: 1K..16M:x4)", set_sizes,
         ""},
        {"--dtypes", "NAMES", native, "f32, f64, f16, bf16, i8, u8, i32, i64 (default: f32)",
         set_known<&BenchCommand::dtypes, type_names>, ""},
        {"--compress", "NAMES", native,
         "of allreduce of f32: none, fp16, bf16, int8, fp8-e4m3, fp8-e5m2, and to see it fail "
         "fp8-e4m3-unscaled or fp8-e5m2-unscaled (default: none; training: none,fp16,int8)",
         set_known<&BenchCommand::compress, compression_names>, ""},
        {"--seconds", "SECONDS", native,
         "for each row; fractions allowed (default: all rows within a minute)",
         set_time<&BenchCommand::seconds>, ""},
        {"--iters", "N", native,
         "times each is measured; with --seconds, at most (default: by --seconds)",
         set_count<&BenchCommand::iters, 1, kIterationsMax>, ""},
        {"--warmup", "N", native, "times before that (default: 5)",
         set_count<&BenchCommand::warmup, 0, kIterationsMax>, ""},
        {"--no-check", "", native, "do not compare results with what they should be",
         set_switch<&BenchCommand::check, false>, ""},
    };
}

cli::Flags train_flags() {
    return {
        {"--train", "", training, "train the example network too, alone and in every shape",
         set_switch<&BenchCommand::train>, ""},
        {"--no-sweep", "", training, "nothing but --train", set_switch<&BenchCommand::sweep, false>,
         ""},
        {"--algorithms", "NAMES", training,
         "parallel, or how gradients are compressed: as --compress; -stochastic behind it rounds "
         "at random, -noef leaves out error feedback, which scaled 8 bits have otherwise, and -ef "
         "adds it (default: parallel and those of --compress, else parallel,fp16,int8; serial "
         "always)",
         set_algorithms, ""},
        {"--data", "FOLDER", training,
         "with MNIST's four files, on every host (default: generated digits)",
         set_word<&BenchCommand::data>, ""},
        {"--model", "mlp|cnn", training, "(default: mlp)", set_model, ""},
        {"--epochs", "N", training, "(default: 3)", set_count<&BenchCommand::epochs, 1, kEpochsMax>,
         ""},
        {"--global-batch", "N", training, "samples of all ranks in one step (default: 256)",
         set_count<&BenchCommand::global_batch, 1, kGlobalBatchMax>, ""},
        {"--seed", "N", training, "of weights and of the order of samples (default: 1)",
         set_count<&BenchCommand::seed, 0, kSeedMax>, ""},
        {"--loss-scale", "FACTOR", training,
         "gradients travel multiplied by it: no difference to f32, but unscaled 8 bits lose more "
         "of them if it is small, and fewer if it is large (default: 1)",
         set_loss_scale, ""},
    };
}

cli::Flags report_flags() {
    return {
        {"--html", "FILE", output, "a page with tables and plots, of one file",
         set_word<&BenchCommand::html>, ""},
        {"--markdown", "FILE", output, "the tables of the lab", set_word<&BenchCommand::markdown>,
         ""},
        {"--csv", "FILE", output, "every row with every column", set_word<&BenchCommand::csv>, ""},
        {"--json", "FILE", output,
         "everything; what --compare reads. - is standard output in all "
         "of these",
         set_word<&BenchCommand::json>, ""},
        {"--explain", "", output,
         "which way data took (shared memory, RDMA, GPUDirect), and why not another",
         set_switch<&BenchCommand::explain>, ""},
        {"--compare", "", output, "compare two files of --json: dtrun bench --compare A B",
         set_switch<&BenchCommand::compare>, ""},
    };
}

cli::Flags limit_flags() {
    return {
        {"--rank-program", "FILE", ending,
         "what ranks run, on every host (default: dtrun-bench-rank beside dtrun, or in "
         "../libexec/dtrun)",
         set_word<&BenchCommand::rank_program>, ""},
        {"--timeout", "SECONDS", ending,
         "a run that says nothing for so long is ended (default: 300; training 3600)",
         set_time<&BenchCommand::timeout>, ""},
    };
}

/// A flag of `dtrun run` that is checked here and handed on to each run.
cli::Flag handed_on(cli::Flag flag, string_view names) {
    flag.names = names;
    const bool is_source = flag.first_name() == "--hostfile";  // standard input is read once
    flag.apply = [inner = std::move(flag.apply), is_source, name = flag.first_name()](
                     cli::Draft& draft, string_view value) -> Result<void> {
        if (auto done = inner(draft, value); !done) return done;
        if (is_source) return {};
        std::vector<std::string>& words = draft.bench.launch;
        if (value.starts_with('-') || (name == "--mpi" && !value.empty())) {
            words.push_back(fmt::format("{}={}", name, value));
            return {};
        }
        words.emplace_back(name);
        if (!value.empty()) words.emplace_back(value);
        return {};
    };
    return flag;
}

cli::Flags launch_flags() {
    static constexpr string_view kNames[] = {"-H",
                                             "--hostfile",
                                             "--include",
                                             "--exclude",
                                             "--oversubscribe",
                                             "--map-by",
                                             "-x",
                                             "--env-file",
                                             "--no-env",
                                             "--contract",
                                             "--mpi",
                                             "--wdir",
                                             "--transport",
                                             "--ssh-port",
                                             "--ssh-identity-file",
                                             "--ssh-command",
                                             "--accept-new-host-keys",
                                             "--network-interfaces",
                                             "--connect-timeout",
                                             "--encrypt",
                                             "--tree-threshold",
                                             "--start-timeout",
                                             "--grace",
                                             "--heartbeat-timeout",
                                             "--verbose",
                                             "--debug"};
    cli::Flags of_run;
    cli::add_of_run(of_run, {std::begin(kNames), std::end(kNames)});
    cli::Flags flags;
    for (cli::Flag& flag : of_run) {
        // --hosts counts here.
        const string_view names = flag.first_name() == "-H" ? "-H" : flag.names;
        flags.push_back(handed_on(std::move(flag), names));
    }
    return flags;
}

cli::Flags make_bench_flags() {
    cli::Flags flags;
    for (auto part : {sweep_flags, train_flags, report_flags, limit_flags, launch_flags})
        std::ranges::move(part(), std::back_inserter(flags));
    cli::add_of_run(flags, {"--quiet", "--help"});
    return flags;
}

Result<void> check_bench(const cli::Draft& draft) {
    const plan::Options& options = draft.options;
    const BenchCommand& bench = draft.bench;
    if (bench.compare && bench.files.size() != 2)
        return fail(Errc::invalid_input,
                    "--compare takes two files that --json has written: dtrun bench --compare A B");
    if (bench.compare && !(bench.markdown + bench.csv + bench.json).empty())
        return fail(Errc::invalid_input,
                    "--compare writes no file but that of --html; leave out --markdown, --csv and "
                    "--json");
    if (!bench.compare && !bench.files.empty())
        return fail(Errc::invalid_input, "'{}' is no option; {}", bench.files.front(), kUsage);
    if (!options.hosts.empty() && !options.hostfile.empty())
        return fail(Errc::invalid_input, "-H and --hostfile exclude each other; give one of them");
    if (!options.include.empty() && !options.exclude.empty())
        return fail(Errc::invalid_input,
                    "--include and --exclude exclude each other; give one of them");
    if (options.mpirun)
        return fail(Errc::invalid_input,
                    "--mpi mpirun: dtrun bench starts the ranks itself; leave it out");
    if (!bench.sweep && !bench.train)
        return fail(Errc::invalid_input, "--no-sweep without --train leaves nothing to do");
    if (!bench.sweep || bench.train || bench.data.empty()) return {};
    return fail(Errc::invalid_input, "--data is for training; add --train");
}

}  // namespace

const cli::Flags& bench_flags() {
    static const cli::Flags flags = make_bench_flags();
    return flags;
}

Result<cli::CommandLine> parse_bench(Words words, plan::EnvironmentView) {
    cli::Draft draft;
    while (!words.empty()) {
        cli::OptionReader options(words, bench_flags());
        if (const auto done = options.read(draft); !done) return std::unexpected(done.error());
        if (draft.kind != cli::CommandLine::Kind::run)
            return cli::text_command(draft.kind, bench_help);
        words = words.subspan(options.at());
        if (words.empty()) break;
        draft.bench.files.push_back(words.front());
        words = words.subspan(1);
    }
    if (const auto done = check_bench(draft); !done) return std::unexpected(done.error());
    cli::CommandLine command;
    command.kind = cli::CommandLine::Kind::bench;
    command.options = std::move(draft.options);
    command.bench = std::move(draft.bench);
    return command;
}

}  // namespace dtrun::lab
