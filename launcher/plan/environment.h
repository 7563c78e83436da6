#pragma once

#include "base/result.h"
#include "launcher/plan/options.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::plan {

/// An environment as execve() takes it: "NAME=value", any bytes.
using EnvironmentView = std::span<const std::string>;

/// What the ranks get from the caller, each name once, sorted by name. Their own variables (rank,
/// sizes, addresses) come on top, and so does what each host's log-in says (HOME, USER, ...).
struct EnvironmentPlan {
    std::vector<Options::Variable> local;   ///< ranks on this machine
    std::vector<Options::Variable> remote;  ///< ranks on other hosts
    std::vector<Options::Variable> added;   ///< the part of both that the user asked for on the
                                            ///< command line: what --plan shows
};

/// What of a placed job changes the environment of its ranks.
struct Surroundings {
    /// Slots are devices that the user has chosen: an inherited list of devices would name others.
    bool names_devices = false;
    int cpus_per_task = 0;  ///< SLURM_CPUS_PER_TASK where ranks inherit it; 0: as it is
    std::string modules{};  ///< a directory that comes first in PYTHONPATH; empty: none
};

/// Weakest to strongest: the caller's environment by variable_groups() (nothing with --no-env),
/// tuning flags, --env-file, -x, K=V before the program. Reads the files named by --env-file.
/// \return invalid_input (a mistake in a file, a name in it that is dtrun's own, -x VAR that is
///         unset here), not_found or denied (a file)
Result<EnvironmentPlan> plan_environment(EnvironmentView caller, const Options& options,
                                         const Surroundings& surroundings = {});

/// What one of several programs has besides: its -x, and K=V before it. Errc: as plan_environment()
Result<std::vector<Options::Variable>> variables_of(const ProgramPart& part,
                                                    EnvironmentView caller);

/// How names are treated that are not simply forwarded to every host.
enum class NameRule {
    host_bound,  ///< stays on this machine, unless given by -x, --env-file or K=V
    stale,       ///< another launcher's: not even inherited here, unless given
    launcher,    ///< the same, except by mpirun, which places ranks by it
    own,         ///< dtrun's own for each rank: not inherited, and refused if given
};

/// Names that are treated alike, and why.
struct VariableGroup {
    NameRule rule{};
    std::string_view reason;
    std::string_view names;  ///< between blanks; a '*' at the begin or the end matches any text
};

std::span<const VariableGroup> variable_groups();

/// The group of a name, nullptr if it is simply forwarded.
const VariableGroup* find_variable_group(std::string_view name);

/// variable_groups() for a person, in at most 80 columns: `dtrun help environment`.
std::string environment_help();

/// A letter or '_', then letters, digits, '_', '.' and '-'.
bool is_variable_name(std::string_view name);

/// invalid_input, with what to do instead, if the user may not set this variable: no name, or one
/// that is dtrun's own.
Result<void> check_settable(std::string_view name);

/// Value of a variable; the first wins if there are several, as for getenv().
std::optional<std::string_view> find_variable(EnvironmentView environment, std::string_view name);

/// Whether PATH has such a program that may be executed.
bool is_on_path(std::string_view name, EnvironmentView environment);

/// The directory in which we run, as the caller's shell calls it if that is still so: hosts that mount it by a
/// link have that name. Empty: it has been removed.
std::string directory_here(EnvironmentView environment);

/// The environment of `srun`, and so of the agents: a log-in's variables, and those that name the
/// job and the cluster. The batch script's own step options (SLURM_NTASKS, …) are left out.
std::vector<std::string> srun_environment(EnvironmentView caller);

}  // namespace dtrun::plan
