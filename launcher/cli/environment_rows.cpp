#include "launcher/cli/environment_rows.h"

#include "base/strings.h"
#include "contracts/table.h"
#include "launcher/cli/horovod_rows.h"
#include "launcher/cli/setters.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;
using enum FlagScope;

Result<void> add_contracts(ParsedRun& parsed, string_view value) {
    const std::string names(value);
    const auto known = contracts::effective_contracts({&names, 1});
    if (!known) return std::unexpected(known.error());
    for (const string_view name : split(value, ','))
        parsed.options.contracts.emplace_back(trim(name));
    return {};
}

Result<void> set_store(ParsedRun& parsed, string_view value) {
    const auto choice = choose<TorchStore>(
        value,
        {{"agent", TorchStore::agent}, {"rank0", TorchStore::rank0}, {"proxy", TorchStore::proxy}});
    if (!choice) return std::unexpected(choice.error());
    parsed.options.torch_store = *choice;
    parsed.options.store_given = *choice;
    return {};
}

Result<void> set_mpi(ParsedRun& parsed, string_view value) {
    parsed.mpi_asked = value != "none" && value != "mpirun";
    if (value.empty()) return set_controller(parsed, "mpi");
    const auto choice =
        choose<std::pair<MpiMode, bool>>(value, {{"auto", {MpiMode::automatic, false}},
                                                 {"pmix", {MpiMode::pmix, false}},
                                                 {"pmi1", {MpiMode::pmi1, false}},
                                                 {"pmi2", {MpiMode::pmi2, false}},
                                                 {"mpirun", {MpiMode::none, true}},
                                                 {"none", {MpiMode::none, false}}});
    return keep(choice, std::tie(parsed.options.mpi, parsed.options.mpirun));
}

template <std::vector<std::string> plan::Options::*Member>
Result<void> add_words(ParsedRun& parsed, string_view value) {
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    std::ranges::copy(*words, std::back_inserter(parsed.options.*Member));
    return {};
}

Result<void> add_export(ParsedRun& parsed, string_view value) {
    const string_view name = value.substr(0, value.find('='));
    if (const auto settable = plan::check_settable(name); !settable) return settable;
    if (!plan::is_variable_name(name))
        return fail(Errc::invalid_input, "'{}' is not a variable's name", name);
    parsed.options.export_vars.emplace_back(value);
    return {};
}

/// "dtrun|torch|...", and what stands for none of them.
std::string contract_names() {
    std::string names = "none";
    for (const contracts::Contract& contract : contracts::all_contracts())
        names += fmt::format("|{}", contract.name);
    return names;
}

}  // namespace

Rows<ParsedRun> environment_flags() {
    static const std::string contracts = contract_names();
    return {
        {{.names = "-x",
          .also = "--env",
          .metavar = "VAR[=VALUE]",
          .group = environment,
          .in = {join, frontends, bench, doctor},
          .adds_up = true,
          .of_program = true,
          .sets_variable = true,
          .common = true,
          .help = "set a variable for every rank; without =VALUE, to its value here; repeatable"},
         add_export},
        {{.names = "--env-file",
          .metavar = "FILE",
          .group = environment,
          .in = {join, frontends, bench, doctor},
          .adds_up = true,
          .help = "set variables from a file of VAR=VALUE lines; -x and VAR=VALUE before the "
                  "program win; repeatable"},
         add_text<&plan::Options::env_files>},
        {{.names = "--no-env",
          .group = environment,
          .in = {join, frontends, bench, doctor},
          .needs_agents = true,
          .help = "forward only the variables that you name, not your whole environment (default: "
                  "all but those that `dtrun help environment` lists)"},
         set_true<&plan::Options::no_env>},
        {{.names = "--contract",
          .metavar = "NAME,...",
          .words = contracts,
          .group = environment,
          .in = {frontends, bench},
          .needs_agents = true,
          .adds_up = true,
          .help = "also set the variables that these kinds of programs expect; `dtrun contracts` "
                  "lists them (default: those marked there, and slurm in a Slurm allocation)"},
         add_contracts},
        {{.names = "--store",
          .metavar = "agent|rank0|proxy",
          .group = environment,
          .in = {frontends},
          .needs_agents = true,
          .help = "who serves torch's store: the agent of rank 0's host, rank 0 itself, or every "
                  "host's agent for its own ranks (default: agent; proxy with --encrypt, and in "
                  "jobs that outlive ranks or hosts)"},
         set_store},
        {{.names = "--mpi",
          .metavar = "[auto|pmix|pmi1|pmi2|mpirun|none]",
          .group = environment,
          .in = {frontends, bench},
          .argparse = "--mpi",
          .help = "how MPI learns its ranks: pmix (Open MPI), pmi1 or pmi2 (MPICH, Intel MPI, "
                  "MVAPICH), auto (whichever a rank asks for), none, or mpirun (the site's own "
                  "mpirun starts the ranks). Without a value, as with horovodrun: auto, and "
                  "Horovod uses MPI (default: auto)"},
         set_mpi},
        {{.names = "--mpi-args",
          .metavar = "ARGS",
          .group = environment,
          .is_arguments = true,
          .adds_up = true,
          .argparse = "--mpi-args",
          .help = "more arguments for the mpirun of --mpi mpirun, which is DTRUN_MPIRUN, else the "
                  "mpirun or mpiexec of PATH (default: none)"},
         add_words<&plan::Options::mpi_args>},
        {{.names = "--wdir -wdir",
          .also = "--wd -wd -dir --chdir -D --cwd",
          .metavar = "DIR",
          .group = environment,
          .in = {join, frontends, bench, doctor},
          .of_program = true,
          .help = "working directory on every host (default: the current one if the host has it, "
                  "else your home)"},
         set_text<&plan::Options::wdir>},
    };
}

}  // namespace dtrun::cli
