// `dtrun torchrun`: torchrun's words become the Options of a job.

#include "base/strings.h"
#include "launcher/cli/defaults.h"
#include "launcher/frontends/torchrun_rendezvous.h"

#include <algorithm>

namespace dtrun::frontends {
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

Result<void> read_variable(ParsedTorchrun& parsed, std::size_t row, const std::string& name,
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
    const auto applied = torchrun_flags().setter(row)(parsed, is_switch ? "" : value);
    if (!applied) return fail(applied.error(), "{}", name);
    return {};
}

/// PET_* variables, which torchrun takes for defaults of its flags.
Result<void> read_variables(ParsedTorchrun& parsed, plan::EnvironmentView environment) {
    constexpr string_view kShutdown = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    parsed.options.grace = kTorchrunGrace;
    if (const auto value = plan::find_variable(environment, kShutdown); value && !value->empty()) {
        const auto time =
            cli::parse_seconds(*value, std::chrono::milliseconds(0), cli::kTimeoutMax);
        if (!time) return fail(time.error(), "{}", kShutdown);
        parsed.options.grace = *time;
    }
    const std::span<const cli::Flag> flags = torchrun_flags().flags();
    for (std::size_t row = 0; row < flags.size(); ++row) {
        if (flags[row].group != cli::FlagGroup::native) continue;
        const std::string name = variable_of(flags[row]);
        const auto value = plan::find_variable(environment, name);
        if (!value || value->empty()) continue;
        if (const auto done = read_variable(parsed, row, name, *value); !done) return done;
    }
    return {};
}

/// Where the two outputs of each local rank go.
void set_output(ParsedTorchrun& parsed, plan::EnvironmentView environment) {
    const TorchrunArgs& words = parsed.own;
    plan::Options& options = parsed.options;
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
    if (!options.tag) options.tag = plan::Tag::none;
    output.local_ranks = words.local_ranks;
    if (output.to_file.any()) options.output_dir = words.log_dir;
}

/// The command of each rank.
Result<void> set_program(ParsedTorchrun& parsed, Words script, plan::EnvironmentView environment) {
    const TorchrunArgs& words = parsed.own;
    std::vector<std::string>& program = parsed.options.program;
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
    parsed.options.rank_macros = std::ranges::any_of(
        script, [](const std::string& word) { return word.find(kMacro) != std::string::npos; });
    return {};
}

}  // namespace

Result<cli::RunCommand> parse_torchrun(Words words, plan::EnvironmentView environment) {
    ParsedTorchrun parsed;
    if (const auto done = read_variables(parsed, environment); !done)
        return std::unexpected(done.error());
    const auto all =
        cli::with_defaults(words, torchrun_flags(), cli::run_flags().flags(), environment);
    if (!all) return std::unexpected(all.error());
    const auto rest = cli::read_options(torchrun_flags(), *all, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked != cli::Ask::nothing) return cli::RunCommand{.asked = parsed.asked};
    if (parsed.options.mpirun)
        return fail(
            Errc::invalid_input,
            "--mpi mpirun: dtrun torchrun starts the ranks itself, with what torchrun gives them; "
            "for mpirun write dtrun --mpi mpirun ... program");
    if (const auto done = set_program(parsed, rest->words, environment); !done)
        return std::unexpected(done.error());
    set_output(parsed, environment);
    parsed.options.binding.threads = 1;  // OMP_NUM_THREADS
    parsed.options.sees_all_devices = true;
    const auto error_file = plan::find_variable(environment, "TORCHELASTIC_ERROR_FILE");
    parsed.options.error_file = error_file.value_or("");
    if (const auto done = set_rendezvous(parsed, environment); !done)
        return std::unexpected(done.error());
    return cli::finish_run(std::move(parsed), environment);
}

}  // namespace dtrun::frontends
