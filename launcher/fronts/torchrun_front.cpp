// `dtrun torchrun`: torchrun's words become the Options of a job.

#include "base/strings.h"
#include "launcher/fronts/torchrun.h"
#include "launcher/output/line_prefix.h"

#include <algorithm>

namespace dtrun::fronts {
namespace {

using cli::Words;
using std::string_view;

constexpr std::chrono::milliseconds kTorchrunGrace{30'000};  // torchrun's own
constexpr string_view kTorchrunUsage = "usage: dtrun torchrun [options] [--] script [args...]";
constexpr string_view kMacro = "${local_rank}";

/// "PET_NPROC_PER_NODE" of "--nproc-per-node"; torchrun calls it after the last of the names.
std::string variable_of(const cli::Flag& flag) {
    std::string name = "PET_";
    for (const char c : flag.names.substr(flag.names.rfind("--") + 2))
        name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
}

Result<void> read_variable(TorchrunDraft& draft, std::size_t row, const std::string& name,
                           string_view value) {
    const cli::Flag& flag = torchrun_flags().flags()[row];
    const bool is_switch = flag.value() == cli::Flag::Value::none;
    if (is_switch) {
        const auto number = to_int(value, -kSlotsMax, kSlotsMax);
        if (!number) return fail(Errc::invalid_input, "{}: '{}' is neither 0 nor 1", name, value);
        if (*number == 0) return {};
    }
    if (!flag.refused.empty())
        return fail(Errc::invalid_input, "{} is refused: {}", name, flag.refused);
    const auto applied = torchrun_flags().setter(row)(draft, is_switch ? "" : value);
    if (!applied) return fail(applied.error(), "{}", name);
    return {};
}

/// PET_* variables, which torchrun takes for defaults of its flags.
Result<void> read_variables(TorchrunDraft& draft, plan::EnvironmentView environment) {
    constexpr string_view kShutdown = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    draft.options.grace = kTorchrunGrace;
    if (const auto value = plan::find_variable(environment, kShutdown); value && !value->empty()) {
        const auto time =
            cli::parse_seconds(*value, std::chrono::milliseconds(0), cli::kTimeoutMax);
        if (!time) return fail(time.error(), "{}", kShutdown);
        draft.options.grace = *time;
    }
    const std::span<const cli::Flag> flags = torchrun_flags().flags();
    for (std::size_t row = 0; row < flags.size(); ++row) {
        if (flags[row].group != cli::FlagGroup::native) continue;
        const std::string name = variable_of(flags[row]);
        const auto value = plan::find_variable(environment, name);
        if (!value || value->empty()) continue;
        if (const auto done = read_variable(draft, row, name, *value); !done) return done;
    }
    return {};
}

/// Whether --master-addr and --master-port are where the ranks meet, as they are for torchrun.
bool meets_at_master(const TorchrunWords& words) {
    const bool is_static = words.backend.empty() || words.backend == "static";
    return is_static && words.endpoint.empty() && !words.standalone;
}

/// The flags given that say where ranks meet, which dtrun does not need.
std::vector<std::string> meeting_words(const TorchrunWords& words) {
    std::vector<std::string> given;
    const bool known =
        words.backend.empty() || words.backend == "static" || words.backend == "c10d";
    if (!known) given.push_back("--rdzv-backend " + words.backend);
    if (!words.endpoint.empty()) given.emplace_back("--rdzv-endpoint");
    const bool master = meets_at_master(words);
    if (!words.master_addr.empty() && !master) given.emplace_back("--master-addr");
    if (words.master_port && !master) given.emplace_back("--master-port");
    if (!words.local_addr.empty()) given.emplace_back("--local-addr");
    return given;
}

/// Adds notes on flags without effect, which are shown only if the flags cause no error.
void add_notes(const TorchrunWords& words, std::vector<std::string>& notes) {
    const auto given = words.standalone ? std::vector<std::string>{} : meeting_words(words);
    if (!given.empty())
        notes.push_back(
            fmt::format("{} {} no effect: dtrun brings the ranks together itself, on an address "
                        "and a free port of its own choice",
                        join_names(given), given.size() == 1 ? "has" : "have"));
    if (!words.unforwarded.empty())
        notes.push_back(fmt::format("--signals-to-handle: dtrun does not forward {}",
                                    join_names(words.unforwarded)));
}

/// What the same command on every node would look like, and what to write instead.
void describe_by_hand(const TorchrunDraft& draft, plan::HostShape& shape) {
    const TorchrunWords& words = draft.own;
    std::vector<std::string> given;
    if (words.node_rank) given.push_back(fmt::format("--node-rank {}", *words.node_rank));
    if (!words.endpoint.empty()) given.push_back("--rdzv-endpoint " + words.endpoint);
    if (!words.master_addr.empty()) given.push_back("--master-addr " + words.master_addr);
    shape.by_hand = join_names(given);
    shape.not_first = words.node_rank.value_or(0) > 0;
    shape.meets_at = words.endpoint_host.empty() ? words.master_addr : words.endpoint_host;
    const std::string nodes = words.nodes.empty() ? "" : "--nnodes " + words.nodes + " ";
    shape.one_command = fmt::format(
        "write `dtrun torchrun {}-H HOST1,HOST2,...` on one machine, which starts all nodes; or "
        "run `dtrun serve` on one, and this command on each with --rdzv-backend dtrun "
        "--rdzv-endpoint THAT-ONE",
        nodes);
}

Result<void> set_standalone(TorchrunDraft& draft) {
    plan::Options& options = draft.options;
    if (!options.hosts.empty() || !options.hostfile.empty())
        return fail(Errc::invalid_input, "--standalone is this machine alone; leave {} out",
                    options.hosts.empty() ? "--hostfile" : "-H");
    if (options.shape.hosts_min > 1)
        return fail(Errc::invalid_input, "--standalone is one node, not --nnodes {}",
                    draft.own.nodes);
    options.transport = plan::TransportChoice::local;
    return {};
}

/// --rdzv-backend dtrun: one node of a job of a daemon.
Result<void> set_join(TorchrunDraft& draft) {
    plan::Options& options = draft.options;
    const TorchrunWords& words = draft.own;
    if (!options.hosts.empty() || !options.hostfile.empty())
        return fail(Errc::invalid_input,
                    "--rdzv-backend dtrun starts the ranks of this machine alone; leave {} out",
                    options.hosts.empty() ? "--hostfile" : "-H");
    const bool restarts = options.max_restarts > 0;
    if (restarts || options.init_timeout)
        return fail(Errc::invalid_input,
                    "{} has no effect in a daemon's job (--rdzv-backend dtrun), only in one that a "
                    "single dtrun launches; leave it out",
                    restarts ? "--max-restarts (PET_MAX_RESTARTS)" : "--init-timeout");
    if (words.run_id.empty())
        return fail(Errc::invalid_input,
                    "--rdzv-backend dtrun: which job of the daemon? --rdzv-id NAME");
    const plan::HostShape& shape = options.shape;
    if (shape.count != plan::HostShape::Count::number &&
        shape.count != plan::HostShape::Count::slots)
        return fail(Errc::invalid_input,
                    "--rdzv-backend dtrun: all nodes have the same number of ranks; "
                    "--nproc-per-node takes a number");
    const int per_node = shape.count == plan::HostShape::Count::number ? shape.number : 1;
    const bool given = !words.nodes.empty();
    const long long max = static_cast<long long>(per_node) * (given ? shape.hosts_max : 1);
    if (max > kRanksMax)
        return fail(Errc::invalid_input, "--nnodes and --nproc-per-node ask for {} ranks, of {}",
                    max, kRanksMax);
    plan::JoinOptions join;
    join.daemon.address = words.endpoint;
    join.daemon.job = words.run_id;
    join.daemon.encrypt = options.encrypt;
    join.ranks_min = per_node * (given ? shape.hosts_min : 1);
    join.ranks_max = static_cast<int>(max);
    options.world_size = per_node;
    options.shape = {};
    options.join = std::move(join);
    return {};
}

/// Where the two outputs of each local rank go.
void set_output(TorchrunDraft& draft, plan::EnvironmentView environment) {
    const TorchrunWords& words = draft.own;
    plan::Options& options = draft.options;
    plan::RankOutput& output = options.rank_output;
    const bool files = words.log_dir != "/dev/null";
    const auto each = [&](std::uint32_t local_rank, std::uint8_t redirects, std::uint8_t tee,
                          bool by_name) {
        const std::uint8_t filed = files ? redirects | tee : 0;
        const auto& only = words.local_ranks;
        const bool shown = only.empty() || std::ranges::find(only, local_rank) != only.end();
        const bool hidden = by_name ? !shown : !only.empty();
        const auto visible = static_cast<std::uint8_t>(hidden ? 0 : (~filed | tee) & 3);
        return std::tuple(filed, visible, files ? tee : std::uint8_t{0});
    };
    std::tie(output.to_file.otherwise, output.shown.otherwise, output.prefixed.otherwise) =
        each(0, words.redirects.otherwise, words.tee.otherwise, false);
    std::vector<std::uint32_t> named = words.local_ranks;
    for (const auto* streams : {&words.redirects, &words.tee})
        for (const auto& [local_rank, value] : streams->of_local_rank) named.push_back(local_rank);
    for (const std::uint32_t local_rank : named)
        std::tie(output.to_file.of_local_rank[local_rank], output.shown.of_local_rank[local_rank],
                 output.prefixed.of_local_rank[local_rank]) =
            each(local_rank, words.redirects.of(local_rank), words.tee.of(local_rank), true);

    output.files = plan::RankOutput::Files::torchrun;
    const auto prefix = plan::find_variable(environment, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    output.prefix = prefix && !prefix->empty() ? *prefix : "[${role_name}${local_rank}]:";
    if (options.tag) output.prefixed = {};
    if (!options.tag) options.tag = output::Tag::none;
    output.local_ranks = words.local_ranks;
    if (output.to_file.any()) options.output_dir = words.log_dir;
}

/// The command of each rank.
Result<void> set_program(TorchrunDraft& draft, Words script, plan::EnvironmentView environment) {
    const TorchrunWords& words = draft.own;
    std::vector<std::string>& program = draft.options.program;
    if (script.empty() || script.front().empty())
        return fail(Errc::invalid_input, "no script to run; {} (dtrun torchrun --help tells more)",
                    kTorchrunUsage);
    if (words.no_python && words.module && !words.run_path)
        return fail(Errc::invalid_input, "--no-python and --module exclude each other");
    if (words.run_path || !words.no_python) {
        const auto chosen = plan::find_variable(environment, "PYTHON_EXEC");
        program = {
            chosen && !chosen->empty() ? std::string(*chosen) : cli::python_command(environment),
            "-u"};
    }
    if (words.run_path)
        program.insert(program.end(), {"-c",
                                       "import runpy, sys\n"
                                       "del sys.argv[0]\n"
                                       "runpy.run_path(sys.argv[0], run_name='__main__')"});
    else if (words.module)
        program.emplace_back("-m");
    program.insert(program.end(), script.begin(), script.end());
    draft.options.rank_macros = std::ranges::any_of(
        script, [](const std::string& word) { return word.find(kMacro) != std::string::npos; });
    return {};
}

}  // namespace

Result<cli::RunCommand> parse_torchrun(Words words, plan::EnvironmentView environment) {
    TorchrunDraft draft;
    if (const auto done = read_variables(draft, environment); !done)
        return std::unexpected(done.error());
    const auto rest = cli::read_options(torchrun_flags(), words, draft);
    if (!rest) return std::unexpected(rest.error());
    if (draft.asked != cli::Ask::nothing) return cli::RunCommand{.asked = draft.asked};
    if (draft.options.mpirun)
        return fail(
            Errc::invalid_input,
            "--mpi mpirun: dtrun torchrun starts the ranks itself, with what torchrun gives them; "
            "for mpirun write dtrun --mpi mpirun ... program");
    if (const auto done = set_program(draft, rest->words, environment); !done)
        return std::unexpected(done.error());
    const TorchrunWords& own = draft.own;
    set_output(draft, environment);
    const bool joins = own.backend == "dtrun" && !own.standalone;
    if (!own.standalone && !joins) draft.options.run_id = own.run_id;
    const auto error_file = plan::find_variable(environment, "TORCHELASTIC_ERROR_FILE");
    draft.options.error_file = error_file.value_or("");
    if (meets_at_master(own)) cli::set_master(draft.options, own.master_addr, own.master_port);
    if (!joins) add_notes(own, draft.options.notes);
    if (!own.standalone && !joins) describe_by_hand(draft, draft.options.shape);
    if (own.standalone)
        if (const auto done = set_standalone(draft); !done) return std::unexpected(done.error());
    if (joins) {
        draft.options.run_id = own.run_id;
        if (const auto done = set_join(draft); !done) return std::unexpected(done.error());
    }
    return cli::finish_run(std::move(draft), environment);
}

}  // namespace dtrun::fronts
