#include "launcher/plan/environment.h"

#include "base/fd.h"
#include "base/process/command_output.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/plan/env_file.h"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

namespace dtrun::plan {

namespace {

constexpr std::string_view kSchedulerFiles =
#define DTRUN_SCHEDULER(name, shown, files, more) files
#include "hostfiles/schedulers.def"
    ;

constexpr VariableGroup kGroups[] = {
    {NameRule::own, "each rank's place in the job",
     "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK "
     "ROLE_WORLD_SIZE LOCAL_SIZE CROSS_RANK CROSS_SIZE HOROVOD_RANK HOROVOD_SIZE "
     "HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE "
     "HOROVOD_HOSTNAME OMPI_COMM_WORLD_* PMI_RANK PMI_SIZE PMIX_RANK"},
    {NameRule::own, "reserved for dtrun", "DTRUN_*"},
    {NameRule::stale, "where the job meets; another job's would join the wrong one",
     "MASTER_ADDR MASTER_PORT HOROVOD_GLOO_RENDEZVOUS_* HOROVOD_ELASTIC _HOROVOD_SECRET_KEY"},
    {NameRule::stale, "another job's places, for jax, TensorFlow and MXNet",
     "TF_CONFIG JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID DMLC_ROLE "
     "DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_WORKER_ID DMLC_NODE_HOST"},
    {NameRule::stale, "left by torchrun or another torch launcher around dtrun",
     "NODE_RANK ROLE_NAME TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS "
     "TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE "
     "TORCHELASTIC_TIMER_FILE"},
    {NameRule::stale, "left by an MPI launcher around dtrun; programs would call that one",
     "OMPI_UNIVERSE_SIZE OMPI_WORLD_SIZE OMPI_WORLD_LOCAL_SIZE OMPI_APP_CTX_NUM_PROCS "
     "OMPI_APP_SIZES OMPI_FIRST_RANKS OMPI_FILE_LOCATION OMPI_ARGV OMPI_COMMAND OMPI_NUM_APP_CTX "
     "OMPI_TOOL_NAME OMPI_VERSION OMPI_MCA_schizo OMPI_MCA_orte_* OMPI_MCA_ess* "
     "OMPI_MCA_initial_wdir OMPI_MCA_num_procs OMPI_MCA_cpu_type OMPI_MCA_mpi_oversubscribe "
     "PRTE_LAUNCHED PRTE_SHARED_FS PRTE_MCA_ess* PRTE_MCA_prte_ess* PRTE_MCA_prte_hnp_uri "
     "PRTE_MCA_prte_parent_uri PMI_* PMIX_NAMESPACE PMIX_ID PMIX_HOSTNAME PMIX_VERSION "
     "PMIX_SERVER_* PMIX_SECURITY_MODE PMIX_BFROP_BUFFER_TYPE PMIX_GDS_MODULE PMIX_PTL_MODULE "
     "PMIX_DSTORE_* PMIX_SYSTEM_TMPDIR PMIX_KEEPALIVE_PIPE PMIX_LAUNCHER_* PMIX_PARAM_FILE_PASSED "
     "PMIX_MCA_mca_base_component_path MPI_LOCALRANKID MPI_LOCALNRANKS HYDI_* HYDRA_BSTRAP_* "
     "HYDRA_LAUNCH_TYPE HYDRA_IP_VERSION MPIR_CVAR_CH3_INTERFACE_HOSTNAME I_MPI_HYDRA_UUID "
     "I_MPI_INFO_* I_MPI_INTERNAL_* I_MPI_PIN_INFO I_MPI_PIN_MAPPING I_MPI_MPIRUN "
     "MV2_COMM_WORLD_* MPIRUN_RANK MPIRUN_NPROCS MPIRUN_ID MPIRUN_HOST MPIRUN_PORT MPISPAWN_*"},
    {NameRule::stale, "a batch system's place of one task; dtrun is one and starts many ranks",
     "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_TASK_PID LSF_PM_TASKID "
     "JSM_NAMESPACE_RANK JSM_NAMESPACE_LOCAL_RANK JSM_NAMESPACE_SIZE "
     "JSM_NAMESPACE_LOCAL_SIZE FLUX_TASK_RANK FLUX_TASK_LOCAL_ID FLUX_JOB_SIZE FLUX_JOB_NNODES "
     "PALS_APID PALS_RANKID PALS_LOCAL_RANKID PALS_LOCAL_SIZE PALS_NODEID PALS_FD ALPS_APP_PE "
     "ALPS_APP_ID"},
    {NameRule::launcher, "Slurm's word on its own tasks; MPI libraries would take ranks for these",
     "SLURM_NTASKS SLURM_NPROCS SLURM_NNODES SLURM_NODELIST SLURM_TASKS_PER_NODE "
     "SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_SOCKET SLURM_NTASKS_PER_CORE SLURM_DISTRIBUTION "
     "SLURM_DIST_* SLURM_HOSTFILE SLURM_ARBITRARY_NODELIST"},
    {NameRule::stale, "Slurm's step around dtrun; MPI libraries would take ranks for its tasks",
     "SLURM_STEP_* SLURM_STEPID SLURM_SRUN_* SLURM_CPU_BIND* SLURM_LAUNCH_NODE_IPADDR "
     "SLURM_EXPORT_ENV"},
    {NameRule::host_bound, "the log-in, which each host has its own of",
     "HOME USER LOGNAME SHELL MAIL HOST HOSTNAME HOSTTYPE SUDO_*"},
    {NameRule::host_bound, "the shell dtrun was started from", "PWD OLDPWD SHLVL _ BASH_FUNC_*"},
    {NameRule::host_bound, "the terminal, which no rank has",
     "TTY GPG_TTY COLUMNS LINES TERM_PROGRAM* TERM_SESSION_ID VTE_VERSION WINDOWID TMUX* STY "
     "VSCODE_*"},
    {NameRule::host_bound, "the ssh session, and sockets and caches of keys",
     "SSH_* GPG_AGENT_INFO KRB5CCNAME"},
    {NameRule::host_bound, "the desktop session",
     "DISPLAY XAUTHORITY ICEAUTHORITY WAYLAND_DISPLAY SESSION_MANAGER DESKTOP_SESSION "
     "XDG_RUNTIME_DIR XDG_SESSION_* XDG_SEAT* XDG_VTNR DBUS_SESSION_BUS_*"},
    {NameRule::host_bound, "the service manager",
     "INVOCATION_ID JOURNAL_STREAM NOTIFY_SOCKET LISTEN_* MANAGERPID SYSTEMD_EXEC_PID "
     "WATCHDOG_*"},
    {NameRule::host_bound, "directories for temporary files that may exist only here",
     "TMPDIR TMP TEMP TEMPDIR"},
    {NameRule::host_bound, "which accelerators of this machine to use",
     "*_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ZE_AFFINITY_MASK SLURM_JOB_GPUS"},
    {NameRule::host_bound, "files of a batch system, which only its first host may have",
     kSchedulerFiles.substr(1)},
    {NameRule::host_bound, "the node this is, to Slurm or PBS",
     "SLURMD_NODENAME SLURM_TOPOLOGY_ADDR* SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE PBS_NODENUM "
     "PBS_VNODENUM PBS_TASKNUM PBS_MOMPORT"},
};

/// Settings of the collectives, and of what ranks tell of themselves, which are the program's.
constexpr std::string_view kForPrograms =
    "DTRUN_BACKEND DTRUN_BACKEND_DIR DTRUN_COMPRESS DTRUN_SHARED_MEMORY DTRUN_NETWORK_INTERFACE "
    "DTRUN_TCP_CONGESTION DTRUN_MPI_LIBRARY DTRUN_NCCL_LIBRARY DTRUN_CUDART_LIBRARY "
    "DTRUN_CODEC_CUDA_LIBRARY DTRUN_ONECCL_LIBRARY DTRUN_TORCH_COMPRESSION DTRUN_STACKS";

bool matches(std::string_view name, std::string_view pattern) {
    if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
    if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
    return name == pattern;
}

struct PatternOfGroup {
    std::string_view pattern;
    const VariableGroup* group;  ///< null: it is the program's
};

/// The first that matches a name counts.
std::vector<PatternOfGroup> all_patterns() {
    std::vector<PatternOfGroup> patterns;
    for (const std::string_view name : split(kForPrograms, ' '))
        patterns.push_back({name, nullptr});
    for (const VariableGroup& group : kGroups)
        for (const std::string_view pattern : split(group.names, ' '))
            patterns.push_back({pattern, &group});
    return patterns;
}

/// Name and value of "NAME=value"; nothing for a string without a name, which execve() accepts.
std::optional<std::pair<std::string_view, std::string_view>> split_variable(std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) return {};
    return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

/// Whether a variable names the directory in which ranks of a dtrun job around us share memory
/// (worker/mpi/mpi_service.cpp): it goes with that job, and is on that job's hosts only. Another
/// value of such a name is the user's.
bool is_outer_memory(std::string_view name, std::string_view value) {
    return matches(name, "*_backing_directory") && matches(value, "/dev/shm/dtrun-*");
}

using VariableMap = std::map<std::string, std::string>;

std::vector<Options::Variable> to_list(const VariableMap& variables) {
    return {variables.begin(), variables.end()};
}

Result<void> add_env_file(VariableMap& variables, const std::string& path) {
    const auto text = read_file(path);
    if (!text) return fail(text.error(), "--env-file");
    auto lines = parse_env_file(*text, path);
    if (!lines) return std::unexpected(lines.error());
    for (auto& [name, value] : *lines)
        variables.insert_or_assign(std::move(name), std::move(value));
    return {};
}

Result<void> add_export(VariableMap& variables, EnvironmentView caller, const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals != std::string::npos) {
        variables.insert_or_assign(name, text.substr(equals + 1));
        return {};
    }
    const auto value = find_variable(caller, name);
    if (!value)
        return fail(Errc::invalid_input, "-x {}: {} is not set here; set it or write -x {}=VALUE",
                    name, name, name);
    variables.insert_or_assign(name, std::string(*value));
    return {};
}

Result<VariableMap> asked_variables(EnvironmentView caller, const Options& options) {
    VariableMap variables(options.tuning_env.begin(), options.tuning_env.end());
    for (const std::string& path : options.env_files)
        if (const auto added = add_env_file(variables, path); !added)
            return std::unexpected(added.error());
    for (const std::string& text : options.export_vars)
        if (const auto added = add_export(variables, caller, text); !added)
            return std::unexpected(added.error());
    for (const auto& [name, value] : options.assignments) variables.insert_or_assign(name, value);
    return variables;
}

/// Whether a variable of the batch script tells srun which job and which cluster it is in.
bool names_the_job(std::string_view name) {
    constexpr std::string_view kNames[] = {
        "SLURM_CONF",     "SLURM_CONF_SERVER", "SLURM_JOB_ID",
        "SLURM_JOBID",    "SLURM_CLUSTERS",    "SLURM_CLUSTER_NAME",
        "SLURM_HET_SIZE", "SLURM_JWT",         "SLURM_WORKING_CLUSTER"};
    return std::ranges::find(kNames, name) != std::end(kNames) ||
           name.starts_with("SLURM_JOB_ID_HET_GROUP_");
}

/// Whether a log-in would set the variable, or srun itself may need it to run.
bool belongs_to_login(std::string_view name) {
    constexpr std::string_view kNames[] = {"HOME", "USER", "LOGNAME",         "SHELL",
                                           "PATH", "LANG", "LD_LIBRARY_PATH", "XDG_CACHE_HOME",
                                           "TZ"};
    return std::ranges::find(kNames, name) != std::end(kNames);
}

/// Whether SLURM_TRES_BIND has a binding that Slurm itself does not set for --gpus-per-task and
/// --ntasks-per-gpu, as newer ones do.
bool binds_by_name(const VariableMap& variables) {
    const auto found = variables.find("SLURM_TRES_BIND");
    if (found == variables.end()) return false;
    const auto has = [&](const char* name) { return variables.contains(name); };
    const std::string_view text = found->second;
    if (has("SLURM_GPUS_PER_TASK") || has("SLURM_TRES_PER_TASK"))
        return text.find("gpu:per_task:") == std::string_view::npos;
    return !has("SLURM_NTASKS_PER_GPU") || text.find("gpu:single:") == std::string_view::npos;
}

/// Undoes what Slurm was asked of GPUs for each of its own tasks, unless a binding was asked for by name.
void show_all_devices(VariableMap& variables) {
    const auto has = [&variables](const char* name) { return variables.contains(name); };
    if (has("SLURM_GPU_BIND") || binds_by_name(variables)) return;
    if (has("SLURM_GPUS_PER_TASK") || has("SLURM_TRES_PER_TASK") || has("SLURM_NTASKS_PER_GPU"))
        variables.emplace("SLURM_GPU_BIND", "none");
}

/// Changes what ranks inherit where the job needs something else; what the user asks for stays.
void fit(VariableMap& variables, const VariableMap& asked, const Surroundings& surroundings) {
    const auto inherits = [&](const char* name) {
        return variables.contains(name) && !asked.contains(name);
    };
    if (surroundings.names_devices && inherits("CUDA_VISIBLE_DEVICES"))
        variables.erase("CUDA_VISIBLE_DEVICES");
    if (surroundings.cpus_per_task > 0 && inherits("SLURM_CPUS_PER_TASK"))
        variables["SLURM_CPUS_PER_TASK"] = fmt::to_string(surroundings.cpus_per_task);
    if (surroundings.modules.empty() || asked.contains("PYTHONPATH")) return;
    std::string& path = variables["PYTHONPATH"];
    path = surroundings.modules + (path.empty() ? "" : ":" + path);
}

}  // namespace

Result<EnvironmentPlan> plan_environment(EnvironmentView caller, const Options& options,
                                         const Surroundings& surroundings) {
    const auto asked = asked_variables(caller, options);
    if (!asked) return std::unexpected(asked.error());
    VariableMap local = *asked;
    VariableMap remote = *asked;
    for (const std::string& text : options.no_env ? EnvironmentView{} : caller) {
        const auto variable = split_variable(text);
        if (!variable || is_outer_memory(variable->first, variable->second)) continue;
        const VariableGroup* group = find_variable_group(variable->first);
        const bool kept = options.mpirun && group != nullptr && group->rule == NameRule::launcher;
        const bool here = group == nullptr || group->rule == NameRule::host_bound || kept;
        if (here) local.emplace(*variable);
        if (group == nullptr) remote.emplace(*variable);
    }
    for (VariableMap* const part : {&local, &remote}) {
        if (options.sees_all_devices) show_all_devices(*part);
        fit(*part, *asked, surroundings);
    }
    return EnvironmentPlan{to_list(local), to_list(remote), to_list(*asked)};
}

Result<std::vector<Options::Variable>> variables_of(const ProgramPart& part,
                                                    EnvironmentView caller) {
    VariableMap variables;
    for (const std::string& text : part.export_vars)
        if (const auto added = add_export(variables, caller, text); !added)
            return std::unexpected(added.error());
    for (const auto& [name, value] : part.assignments) variables.insert_or_assign(name, value);
    return to_list(variables);
}

std::span<const VariableGroup> variable_groups() {
    return kGroups;
}

const VariableGroup* find_variable_group(std::string_view name) {
    static const std::vector<PatternOfGroup> patterns = all_patterns();  // asked for each variable
    const auto found = std::ranges::find_if(
        patterns, [name](const auto& each) { return matches(name, each.pattern); });
    return found == patterns.end() ? nullptr : found->group;
}

std::string environment_help() {
    std::string text =
        "What a rank finds in its environment, weakest first:\n"
        "  1. the caller's environment, except the names below (--no-env: nothing of it)\n"
        "  2. what Horovod's tuning flags and --config-file stand for\n"
        "  3. --env-file FILE\n"
        "  4. -x VAR, -x VAR=VALUE\n"
        "  5. VAR=VALUE before the program\n"
        "  6. its place in the job: DTRUN_RANK, RANK, HOROVOD_RANK, ...\n"
        "  7. at the end of PYTHONPATH a folder by which `import dtrun` works, and at its\n"
        "     begin one by which `dtrun stacks` sees where Python is (DTRUN_STACKS=0: no)\n";
    constexpr std::pair<NameRule, std::string_view> kTitles[] = {
        {NameRule::host_bound, "Not sent to other hosts, unless given by 3 to 5:"},
        {NameRule::stale, "Not inherited at all, unless given by 3 to 5:"},
        {NameRule::launcher, "The same, but for what --mpi mpirun starts:"},
        {NameRule::own, "Set by dtrun for each rank; refused in 3 to 5:"},
    };
    for (const auto& [rule, title] : kTitles) {
        text += fmt::format("\n{}\n", title);
        for (const VariableGroup& group : kGroups) {
            if (group.rule != rule) continue;
            text += fmt::format("  {}\n", group.reason) + wrap(group.names, 6, kHelpColumns);
        }
    }
    text += "\nNames of DTRUN_ that are the program's, and passed on as others are:\n";
    return text + wrap(kForPrograms, 6, kHelpColumns);
}

bool is_variable_name(std::string_view name) {
    const auto is_letter = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, [&](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
    });
}

Result<void> check_settable(std::string_view name) {
    if (name.empty()) return fail(Errc::invalid_input, "the variable has no name");
    const VariableGroup* group = find_variable_group(name);
    if (group != nullptr && group->rule == NameRule::own)
        return fail(Errc::invalid_input, "{} is dtrun's own ({}) and cannot be set", name,
                    group->reason);
    return {};
}

std::optional<std::string_view> find_variable(EnvironmentView environment, std::string_view name) {
    for (const std::string& text : environment)
        if (const auto variable = split_variable(text); variable && variable->first == name)
            return variable->second;
    return {};
}

bool is_on_path(std::string_view name, EnvironmentView environment) {
    return dtrun::is_on_path(name, find_variable(environment, "PATH").value_or(""));
}

std::string directory_here(EnvironmentView environment) {
    const std::string shells(find_variable(environment, "PWD").value_or(""));
    std::error_code differs;
    if (shells.starts_with('/') && std::filesystem::equivalent(shells, ".", differs)) return shells;
    std::error_code removed;
    return std::filesystem::current_path(removed).string();
}

std::vector<std::string> srun_environment(EnvironmentView caller) {
    std::vector<std::string> kept;
    for (const std::string& variable : caller) {
        const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
        if (names_the_job(name) || belongs_to_login(name)) kept.push_back(variable);
    }
    return kept;
}

}  // namespace dtrun::plan
