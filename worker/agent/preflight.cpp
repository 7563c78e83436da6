#include "worker/agent/preflight.h"

#include "base/interfaces.h"
#include "base/strings.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/ranks/rank_process.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun::agent {
namespace {

constexpr const char* kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Says why ranks cannot run in `directory`; empty when they can.
std::string directory_problem(const std::string& directory) {
    struct stat info {};
    if (::stat(directory.c_str(), &info) != 0) return strerror(errno);
    if (!S_ISDIR(info.st_mode)) return "not a directory";
    if (::access(directory.c_str(), X_OK) != 0) return strerror(errno);
    return {};
}

/// Whether a variable describes the scheduler's own step, in which the agent is the task and the
/// rank is not. Variables about this host and its devices hold for the rank, too.
bool is_step_variable(std::string_view name) {
    for (const std::string_view here :
         {"SLURM_TOPOLOGY_ADDR", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS",
          "SLURM_STEP_GPUS", "SLURM_TMPDIR"})
        if (name.starts_with(here)) return false;
    for (const std::string_view step : {"SLURM_", "SRUN_", "PMI_", "PMI2_", "PMIX_"})
        if (name.starts_with(step)) return true;
    return false;
}

contracts::Environment merge_environment(const AgentConfig& config, char** host_env) {
    contracts::Environment env;
    for (char** entry = host_env; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::size_t equals = text.find('=');
        if (equals == std::string_view::npos || equals == 0) continue;
        const std::string_view name = text.substr(0, equals);
        if (!config.nodes.empty() && is_step_variable(name)) continue;
        env[std::string(name)] = text.substr(equals + 1);
    }
    // Of the shell that started us, not of the rank.
    for (const char* name : {"_", "OLDPWD", "SHLVL"}) env.erase(name);
    for (const auto& [name, value] : config.env) env[name] = value;
    env.try_emplace("PATH", kDefaultPath);
    return env;
}

std::string home_of(const contracts::Environment& env) {
    const auto home = env.find("HOME");
    return home != env.end() && directory_problem(home->second).empty() ? home->second : "/";
}

void choose_interface(const AgentConfig& config, Preflight& found) {
    if (config.network_interfaces.empty()) return;
    std::vector<std::string> names;
    for (const InterfaceAddress& address : interface_addresses())
        if (std::ranges::find(names, address.interface) == names.end())
            names.push_back(address.interface);
    for (const std::string& wanted : config.network_interfaces) {
        if (std::ranges::find(names, wanted) == names.end()) continue;
        found.interface = wanted;
        return;
    }
    found.problem = HostProblem::other;
    found.problem_text = fmt::format("no network interface {} (--network-interfaces); it has {}",
                                     join_names(config.network_interfaces), join_names(names));
}

void set_problem(Preflight& found, const Error& why, std::string_view flag) {
    found.problem =
        why.code == Errc::denied ? HostProblem::not_executable : HostProblem::program_missing;
    found.problem_text = std::string(flag) + why.message;
}

/// Finds one of several programs, if this host runs it.
void find_one(const JobProgram& program, bool runs_here, Preflight& found) {
    ProgramHere& here = found.programs.emplace_back();
    here.directory = program.directory.empty() ? found.directory : program.directory;
    if (!runs_here || found.problem != HostProblem::none) return;
    if (const std::string wrong = directory_problem(here.directory); !wrong.empty()) {
        found.problem = HostProblem::directory_missing;
        found.problem_text = fmt::format("{}: {} (--wdir)", here.directory, wrong);
        return;
    }
    const auto path =
        std::ranges::find(program.env, "PATH", &std::pair<std::string, std::string>::first);
    auto file = ranks::find_program(program.argv.front(), here.directory,
                                    path != program.env.end() ? path->second : found.env["PATH"]);
    if (file)
        here.path = std::move(*file);
    else if (!found.wrappers.are_for_all())
        set_problem(found, file.error(), "");
}

/// Of the wrappers, and then of the ranks.
void find_programs(const AgentConfig& config, Preflight& found) {
    auto wrappers = ranks::Wrappers::find(config.wraps, found.directory, found.env["PATH"]);
    if (!wrappers) return set_problem(found, wrappers.error(), "--wrap: ");
    found.wrappers = std::move(*wrappers);
    for (const JobProgram& program : config.programs)
        find_one(program, std::ranges::find(program.hosts, config.host) != program.hosts.end(),
                 found);
    if (!config.programs.empty()) return;
    auto program = ranks::find_program(config.argv.front(), found.directory, found.env["PATH"]);
    if (program)
        found.program = std::move(*program);
    else if (!found.wrappers.are_for_all())
        set_problem(found, program.error(), "");
}

/// Each rank has at least its pipes and a socket here; what is short of that fails for a rank in the middle.
void check_descriptors(const AgentConfig& config, Preflight& found) {
    constexpr std::uint64_t kDescriptorsMin = 5;  // of a rank
    const std::uint64_t ranks = config.binding.ranks.empty() ? 0 : config.binding.ranks.front();
    rlimit limit{};
    const std::uint64_t most =
        ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : UINT64_MAX;
    if (ranks * kDescriptorsMin <= most) return;
    found.problem = HostProblem::other;
    found.problem_text = fmt::format(
        "{} ranks need some {} open files here, and ulimit -n allows {}: raise that limit, "
        "or have fewer ranks on this host",
        ranks, ranks * kDescriptorsMin, most);
}

}  // namespace

Preflight check_host(const AgentConfig& config, char** host_env) {
    Preflight found;
    found.env = merge_environment(config, host_env);
    found.directory = config.directory.empty() ? home_of(found.env) : config.directory;
    const std::string wrong = directory_problem(found.directory);
    if (!wrong.empty() && config.directory_required) {
        found.problem = HostProblem::directory_missing;
        found.problem_text = fmt::format("{}: {} (--wdir)", found.directory, wrong);
        return found;
    }
    if (!wrong.empty()) found.directory = home_of(found.env);
    found.env["PWD"] = found.directory;

    choose_interface(config, found);
    if (found.problem == HostProblem::none) check_descriptors(config, found);
    if (found.problem != HostProblem::none) return found;
    if (config.argv.empty()) return found;
    find_programs(config, found);
    return found;
}

}  // namespace dtrun::agent
