#include "launcher/frontends/mpirun.h"

#include "base/log.h"
#include "launcher/cli/rsh_words.h"
#include "launcher/cli/setters.h"

#include <fmt/format.h>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::frontends {
namespace {

using std::string_view;

constexpr string_view kMpirunUsage =
    "usage: dtrun mpirun [options] program [args...] [: [options] program...]...";

constexpr string_view kMpirunIntroduction = R"(
Takes the flags of mpirun and mpiexec (Open MPI, MPICH, Intel MPI) and starts
the ranks itself: no MPI launcher is needed on any host. A link to dtrun that is
named mpirun or mpiexec does the same. (To have the site's own mpirun start the
ranks, use dtrun --mpi mpirun.)

Examples:
  dtrun mpirun -n 8 --host s1:4,s2:4 ./prog
      4 ranks on each of 2 hosts
  dtrun mpirun -ppn 2 -hosts s1,s2,s3 -genv I_MPI_DEBUG 5 ./prog
      2 ranks on each of 3 hosts, with a variable
  dtrun mpirun -np 1 ./master : -np 7 ./worker
      two programs in one world of 8 ranks
  dtrun mpirun --mca btl tcp,self --tag-output -np 4 ./prog
      with settings of Open MPI, and the rank before each line

Words that mean something else than to `dtrun run`:
)";

constexpr string_view kMpirunEnd = R"(
All others are those of `dtrun run`: `dtrun help all` has its options and
`dtrun help words` those of mpirun. A ':' always begins the next program.

Variables by which a launcher is told of its hosts and its ssh count too, where
no option says it: OMPI_MCA_orte_default_hostfile, OMPI_MCA_plm_rsh_agent and
_args, PRTE_MCA_prte_default_hostfile, HYDRA_HOST_FILE, I_MPI_HYDRA_HOST_FILE,
OMPI_MCA_rmaps_base_oversubscribe, PRTE_MCA_rmaps_default_mapping_policy.
)";

/// Takes away names that mean something else to mpirun.
void drop_names(cli::Flag& flag) {
    if (flag.first_name() == "-c") flag.names = "-c-of-srun";
    if (flag.first_name() == "--version") flag.names = "--version";
    if (flag.first_name() == "--quiet") flag.names = "--quiet";
    if (flag.first_name() == "-q") flag.names = "-q-of-srun";
    if (flag.first_name() == "--detach") flag.names = "--detach";
}

cli::Rows<cli::ParsedRun> own_words() {
    using enum cli::FlagGroup;
    return {
        {{.names = "-c",
          .metavar = "N",
          .group = native,
          .of_program = true,
          .help = "number of ranks, as -np"},
         cli::set_number<&plan::Options::world_size, 1, kRanksMax>},
        {{.names = "-v", .group = native, .help = "--verbose (the version is -V)"},
         cli::set_to<&plan::Options::verbosity, log::Level::verbose>},
        {{.names = "-q", .group = native, .help = "--quiet"},
         cli::set_to<&plan::Options::verbosity, log::Level::quiet>},
        {{.names = "-d", .group = native, .help = "--debug"},
         cli::set_to<&plan::Options::verbosity, log::Level::debug>},
    };
}

/// What variables of launchers say, the first that is set: Kubernetes operators and sites say it thus.
constexpr string_view kHostfiles[] = {"OMPI_MCA_orte_default_hostfile",
                                      "PRTE_MCA_prte_default_hostfile", "PRTE_MCA_default_hostfile",
                                      "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"};
constexpr string_view kAgents[] = {"OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_rsh_agent",
                                   "PRTE_MCA_plm_ssh_agent", "I_MPI_HYDRA_BOOTSTRAP_EXEC",
                                   "HYDRA_LAUNCHER_EXEC"};
constexpr string_view kArguments[] = {"OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args",
                                      "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
                                      "HYDRA_LAUNCHER_EXTRA_ARGS"};

std::string first_set(std::span<const string_view> names, plan::EnvironmentView environment) {
    for (const string_view name : names)
        if (const auto value = plan::find_variable(environment, name); value && !value->empty())
            return std::string(*value);
    return {};
}

/// As containers and tests of Open MPI's programs have it.
bool variables_oversubscribe(plan::EnvironmentView environment) {
    constexpr string_view kPolicies[] = {"PRTE_MCA_rmaps_default_mapping_policy",
                                         "PRTE_MCA_rmaps_base_mapping_policy",
                                         "OMPI_MCA_rmaps_base_mapping_policy"};
    const auto flag = plan::find_variable(environment, "OMPI_MCA_rmaps_base_oversubscribe");
    const std::string policy = first_set(kPolicies, environment);
    return (flag && cli::says_yes(*flag)) || ::strcasestr(policy.c_str(), ":oversubscribe");
}

/// Inside a rank they are those of the job around us. The programs see all GPUs, as those of other mpiruns do.
void follow_variables(cli::ParsedRun& parsed, plan::EnvironmentView environment) {
    parsed.options.sees_all_devices = !parsed.options.mpirun;
    if (parsed.options.mpirun || plan::find_variable(environment, "DTRUN_RANK")) return;
    plan::Options& options = parsed.options;
    if (variables_oversubscribe(environment)) options.oversubscribe = true;
    if (options.hosts.empty() && options.hostfile.empty() && options.rankfile.empty() &&
        options.transport != plan::Transport::local)
        options.hostfile = first_set(kHostfiles, environment);
    if (parsed.rsh.agent.empty()) parsed.rsh.agent = first_set(kAgents, environment);
    if (parsed.rsh.arguments.empty()) parsed.rsh.arguments = first_set(kArguments, environment);
}

}  // namespace

const cli::FlagTable<cli::ParsedRun>& mpirun_flags() {
    static const cli::FlagTable<cli::ParsedRun> table = [] {
        cli::Rows<cli::ParsedRun> rows = cli::run_flags().rows();
        for (cli::Row<cli::ParsedRun>& row : rows) drop_names(row.flag);
        return cli::FlagTable<cli::ParsedRun>("dtrun mpirun", {rows, own_words()});
    }();
    return table;
}

Result<cli::RunCommand> parse_mpirun(cli::Words words, plan::EnvironmentView environment) {
    return cli::parse_dialect(
        words, environment,
        {mpirun_flags(), cli::NextProgram::always, kMpirunUsage, &follow_variables, true});
}

std::string mpirun_help() {
    return fmt::format("{}\n{}{}{}", kMpirunUsage, kMpirunIntroduction,
                       cli::flag_rows(mpirun_flags().flags(), cli::FlagGroup::native), kMpirunEnd);
}

}  // namespace dtrun::frontends
