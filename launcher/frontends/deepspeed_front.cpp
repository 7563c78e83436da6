// `dtrun deepspeed`: the words of DeepSpeed's runner become the Options of a job.

#include "base/fd.h"
#include "base/strings.h"
#include "launcher/cli/defaults.h"
#include "launcher/cli/elastic_rows.h"
#include "launcher/frontends/deepspeed.h"
#include "launcher/frontends/deepspeed_elasticity.h"
#include "launcher/frontends/deepspeed_env.h"
#include "launcher/plan/allocation_here.h"
#include "launcher/plan/machine_facts.h"

#include <unistd.h>
#include <algorithm>

namespace dtrun::frontends {
namespace {

using cli::Words;
using std::string_view;

constexpr std::chrono::milliseconds kDeepspeedGrace{30'000};  // DeepSpeed's own
constexpr const char* kHostfile = "/job/hostfile";
constexpr int kElasticRestarts = 100;  // DeepSpeed's own
constexpr string_view kDeepspeedUsage = "usage: dtrun deepspeed [options] [--] script [args...]";

bool is_filtered(const plan::Options& options) {
    return !options.include.empty() || !options.exclude.empty();
}

/// CUDA_VISIBLE_DEVICES, where it stands for an --include of this machine. Devices that it names otherwise
/// than by number, as "GPU-8932f937", are counted, and ranks inherit the list.
Result<void> set_devices(ParsedDeepspeed& parsed, plan::EnvironmentView environment,
                         std::vector<std::string>& warnings) {
    constexpr string_view kName = "CUDA_VISIBLE_DEVICES";
    const auto list = plan::find_variable(environment, kName);
    if (!list) return {};
    const plan::Options& options = parsed.options;
    if (is_filtered(options) || parsed.own.gpus || parsed.own.nodes.value_or(1) > 1) {
        if (!trim(*list).empty())
            warnings.push_back(fmt::format(
                "{}={} is ignored: --include, --exclude, --num_gpus or --num_nodes is given", kName,
                *list));
        return {};
    }
    plan::HostShape& shape = parsed.options.shape;
    const auto items = split(*list, ',');
    const auto count_only = [&](int slots) {
        shape.count = plan::HostShape::Count::number;
        shape.number = slots;
        shape.count_flag = fmt::format("{}={}", kName, *list);
    };
    if (plan::hides_devices(trim(items.front()))) {
        count_only(plan::machine_facts(environment).numa_nodes);
        return {};
    }
    std::vector<int> devices;
    bool by_number = true;
    for (const string_view each : items) {
        const string_view item = trim(each);
        const auto device = to_int(item, 0, kSlotsMax - 1);
        const bool is_uuid = item.starts_with("GPU-") || item.starts_with("MIG-");
        if (!device && !is_uuid)
            return fail(Errc::invalid_input,
                        "{}={}: '{}' is neither a device's number nor its GPU-... or MIG-...; "
                        "unset it, or write 0,1",
                        kName, *list, item);
        if (device) devices.push_back(static_cast<int>(*device));
        by_number = by_number && device;
    }
    if (by_number)
        shape.devices_here = std::move(devices);
    else
        count_only(static_cast<int>(items.size()));
    return {};
}

/// --elastic_training, and how many hosts it may have.
Result<void> set_elastic(ParsedDeepspeed& parsed, plan::EnvironmentView environment) {
    const DeepspeedWords& words = parsed.own;
    plan::Options& options = parsed.options;
    plan::HostShape& shape = options.shape;
    shape.elastic_words = "write --elastic_training, and name the hosts";
    if (!words.elastic) {
        if (words.nodes_min || words.nodes_max)
            options.notes.push_back(
                fmt::format("{} has no effect without --elastic_training",
                            words.nodes_min ? "--min_elastic_nodes" : "--max_elastic_nodes"));
        return {};
    }
    shape.hosts_min = words.nodes_min.value_or(1);
    shape.hosts_max = words.nodes_max.value_or(words.nodes.value_or(kHostsMax));
    shape.hosts_flag = fmt::format("--elastic_training, --min_elastic_nodes {}", shape.hosts_min);
    if (shape.hosts_min > shape.hosts_max)
        return fail(Errc::invalid_input,
                    "--max_elastic_nodes {} is less than --min_elastic_nodes {}", shape.hosts_max,
                    shape.hosts_min);
    if (options.hosts.empty() && options.hostfile.empty() && !plan::has_allocation(environment))
        return fail(
            Errc::invalid_input,
            "--elastic_training: which hosts may the job have? Name them in a --hostfile, or "
            "as --hosts s1:8,s2:8");
    shape.elastic = true;
    const bool counts = std::ranges::any_of(
        parsed.given, [](const cli::GivenFlag& flag) { return flag.name == "--max-restarts"; });
    if (!counts) options.max_restarts = kElasticRestarts;
    return {};
}

/// The numbers of ranks that the elasticity of the script's --deepspeed_config has, unless --allowed-np says
/// which.
Result<void> set_sizes(ParsedDeepspeed& parsed, Words script, std::vector<std::string>& warnings) {
    std::vector<int>& allowed = parsed.elastic.allowed;
    const std::string file = config_of(script);
    if (!parsed.options.shape.elastic || !allowed.empty() || file.empty()) return {};
    const auto text = read_file(file);
    if (!text) {
        warnings.push_back(
            fmt::format("{}: what its \"elasticity\" allows is not known here, so any number of "
                        "hosts is used; or "
                        "say --allowed-np 2,4,8",
                        text.error().message));
        return {};
    }
    auto sizes = elastic_sizes(*text);
    if (!sizes) return fail(sizes.error(), "{}", file);
    allowed = std::move(*sizes);
    return {};
}

Result<void> set_hosts(ParsedDeepspeed& parsed, plan::EnvironmentView environment,
                       std::vector<std::string>& warnings) {
    plan::Options& options = parsed.options;
    const DeepspeedWords& words = parsed.own;
    if ((words.nodes || words.gpus) && is_filtered(options))
        return fail(Errc::invalid_input, "{} and {} exclude each other; give one of them",
                    words.nodes ? "--num_nodes" : "--num_gpus",
                    options.include.empty() ? "--exclude" : "--include");
    if (options.hosts.empty() && options.hostfile.empty() && ::access(kHostfile, F_OK) == 0)
        options.hostfile = kHostfile;
    plan::HostShape& shape = options.shape;
    shape.count = plan::HostShape::Count::accelerator;
    if (words.gpus) {
        shape.count = plan::HostShape::Count::number;
        shape.number = *words.gpus;
        shape.count_flag = fmt::format("--num_gpus {}", *words.gpus);
    }
    if (words.nodes) {
        shape.hosts_min = shape.hosts_max = *words.nodes;
        shape.hosts_flag = fmt::format("--num_nodes {}", *words.nodes);
    }
    shape.devices_chosen = words.gpus || words.nodes.value_or(1) > 1;
    if (words.node_rank >= 0) shape.by_hand = fmt::format("--node_rank {}", words.node_rank);
    shape.not_first = words.node_rank > 0;
    shape.one_command =
        "name all hosts in a --hostfile, or as --hosts s1:8,s2:8, in one command on one machine";
    if (const auto done = set_elastic(parsed, environment); !done) return done;
    if (!options.hosts.empty() || !options.hostfile.empty()) return {};
    shape.note_here =
        fmt::format("no {} and no --hostfile: ranks run on this machine only", kHostfile);
    return set_devices(parsed, environment, warnings);
}

void set_output(ParsedDeepspeed& parsed) {
    const std::string& directory = parsed.own.rank_logs;
    plan::Options& options = parsed.options;
    if (directory.empty() || directory == "None") return;
    options.output_dir = directory;
    options.rank_output.files = plan::RankOutput::Files::deepspeed;
    options.rank_output.shown.otherwise = 0;
}

/// The command of each rank.
Result<void> set_program(ParsedDeepspeed& parsed, Words script, plan::EnvironmentView environment) {
    const DeepspeedWords& words = parsed.own;
    std::vector<std::string>& program = parsed.options.program;
    if (script.empty() || script.front().empty())
        return fail(Errc::invalid_input, "no script to run; {} (dtrun deepspeed --help tells more)",
                    kDeepspeedUsage);
    if (words.no_python && words.module)
        return fail(Errc::invalid_input, "--no_python and --module exclude each other");
    if (!words.venv_script.empty()) {
        const bool is_path = words.venv_script.find('/') != std::string::npos;
        program = {"bash", "-c", "source \"$0\" && exec \"$@\"",
                   (is_path ? "" : "./") + words.venv_script};
    }
    if (!words.no_python) {
        program.push_back(cli::python_command(environment));
        program.emplace_back("-u");
        if (words.module) program.emplace_back("-m");
    }
    program.push_back(script.front());
    if (!words.no_local_rank) program.emplace_back("--local_rank=${local_rank}");
    parsed.options.rank_macros = !words.no_local_rank;
    program.insert(program.end(), script.begin() + 1, script.end());
    return {};
}

/// Adds variables that are weaker than all that the command line says.
void add_env(plan::Options& options, const DeepspeedEnv& env) {
    for (auto variable = env.variables.rbegin(); variable != env.variables.rend(); ++variable)
        if (std::ranges::find(options.tuning_env, variable->first,
                              &plan::Options::Variable::first) == options.tuning_env.end())
            options.tuning_env.push_back(*variable);
}

/// As DeepSpeed: the list is for --bind_cores_to_rank, and threads are not bound in two ways.
Result<void> check_binding(ParsedDeepspeed& parsed, plan::EnvironmentView environment,
                           std::vector<std::string>& warnings) {
    plan::BindingOptions& binding = parsed.options.binding;
    if (!binding.cpus.empty() && !binding.to) {
        warnings.emplace_back("--bind_core_list has no effect without --bind_cores_to_rank");
        binding.cpus.clear();
    }
    if (binding.to == BindTo::share && plan::find_variable(environment, "KMP_AFFINITY"))
        return fail(Errc::invalid_input,
                    "KMP_AFFINITY is set, which binds threads otherwise than --bind_cores_to_rank; "
                    "unset it");
    return {};
}

/// What pdsh, which DeepSpeed runs for its hosts, is told to give to ssh: often the port. Inside a rank it is that
/// of the job around us.
void follow_pdsh(ParsedDeepspeed& parsed, plan::EnvironmentView environment) {
    if (plan::find_variable(environment, "DTRUN_RANK")) return;
    if (const auto words = plan::find_variable(environment, "PDSH_SSH_ARGS_APPEND"))
        parsed.rsh.arguments = *words;
}

}  // namespace

Result<cli::RunCommand> parse_deepspeed(Words words, plan::EnvironmentView environment) {
    ParsedDeepspeed parsed;
    parsed.options.grace = kDeepspeedGrace;
    parsed.options.directory_in_pythonpath = true;
    parsed.options.sees_all_devices = true;
    const auto all =
        cli::with_defaults(words, deepspeed_flags(), cli::run_flags().flags(), environment);
    if (!all) return std::unexpected(all.error());
    const auto rest = cli::read_options(deepspeed_flags(), *all, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked != cli::Ask::nothing) return cli::RunCommand{.asked = parsed.asked};
    if (parsed.options.mpirun)
        return fail(Errc::invalid_input,
                    "--mpi mpirun: dtrun deepspeed starts the ranks itself, with what deepspeed "
                    "gives them; for mpirun write dtrun --mpi mpirun ... program");
    if (const auto done = set_program(parsed, rest->words, environment); !done)
        return std::unexpected(done.error());
    std::vector<std::string> warnings;
    if (const auto done = set_hosts(parsed, environment, warnings); !done)
        return std::unexpected(done.error());
    if (const auto done = check_binding(parsed, environment, warnings); !done)
        return std::unexpected(done.error());
    if (const auto done = set_sizes(parsed, rest->words, warnings); !done)
        return std::unexpected(done.error());
    if (const auto done = cli::add_elastic_hosts(parsed, deepspeed_flags().flags(), environment);
        !done)
        return std::unexpected(done.error());
    if (!parsed.options.elastic)
        cli::set_master(parsed.options, parsed.own.master_addr, parsed.own.master_port);
    set_output(parsed);
    parsed.options.contracts.insert(parsed.options.contracts.begin(), "deepspeed");
    if (parsed.own.save_pid) parsed.options.pid_file = fmt::format("/tmp/{}.deepspeed", ::getpid());
    if (!parsed.own.launcher.empty())
        warnings.push_back(fmt::format("--launcher {} has no effect: dtrun starts the ranks itself",
                                       parsed.own.launcher));
    follow_pdsh(parsed, environment);
    auto env = read_deepspeed_env(environment);
    if (!env) return std::unexpected(env.error());
    std::ranges::move(env->notes, std::back_inserter(warnings));
    auto command = cli::finish_run(std::move(parsed), environment);
    if (!command) return command;
    add_env(command->options, *env);
    command->warnings.insert(command->warnings.begin(), warnings.begin(), warnings.end());
    return command;
}

}  // namespace dtrun::frontends
