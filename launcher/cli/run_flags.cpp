// The flags of `dtrun run`. Other commands take some of them: see Flag::in.

#include "base/strings.h"
#include "contracts/table.h"
#include "launcher/cli/binding_rows.h"
#include "launcher/cli/elastic_rows.h"
#include "launcher/cli/foreign_rows.h"
#include "launcher/cli/history_rows.h"
#include "launcher/cli/horovod_rows.h"
#include "launcher/cli/look_rows.h"
#include "launcher/cli/output_rows.h"
#include "launcher/cli/run.h"
#include "launcher/cli/setters.h"
#include "launcher/cli/show_rows.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <iterator>
#include <tuple>

namespace dtrun::cli {

namespace {

using std::string_view;

Result<void> set_tcp(ParsedRun& parsed, string_view) {
    parsed.tcp = true;
    return {};
}

Result<void> set_keep_warm(ParsedRun& parsed, string_view value) {
    return keep(parse_time_span(value, kTimeoutMax), parsed.options.warm.keep);
}

Result<void> set_no_warm(ParsedRun& parsed, string_view) {
    parsed.options.warm.off = true;
    return {};
}

Result<void> set_transport(ParsedRun& parsed, string_view value) {
    return keep(plan::find_transport(value, &plan::TransportRow::word), parsed.options.transport);
}

/// "one ssh each, one srun for all, or only this machine"
std::string ways_onto_hosts() {
    std::string ways;
    for (const plan::TransportRow& row : plan::kTransports) {
        if (row.help.empty()) continue;
        const bool is_last = &row == std::end(plan::kTransports) - 1;
        ways += fmt::format("{}{}", ways.empty() ? "" : is_last ? ", or " : ", ", row.help);
    }
    return ways;
}

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

/// Horovod's controller is a setting that the configuration file has too.
Result<void> set_controller(ParsedRun& parsed, string_view name) {
    const auto [entry, added] =
        parsed.tuning.try_emplace(std::string(kHorovodController), std::string(name));
    if (!added && entry->second != name)
        return fail(Errc::invalid_input,
                    "--gloo and --mpi without a word are two controllers of Horovod; give one of "
                    "them");
    return {};
}

Result<void> set_gloo(ParsedRun& parsed, string_view) {
    return set_controller(parsed, "gloo");
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

Result<void> set_tree_login(ParsedRun& parsed, string_view value) {
    const auto choice =
        choose<plan::TreeLogin>(value, {{"auto", plan::TreeLogin::automatic},
                                        {"off", plan::TreeLogin::off},
                                        {"forward-agent", plan::TreeLogin::forward_agent}});
    return keep(choice, parsed.options.tree_login);
}

Result<void> set_plan(ParsedRun& parsed, string_view value) {
    const auto choice = choose<plan::PlanFormat>(value, {{"", plan::PlanFormat::text},
                                                         {"text", plan::PlanFormat::text},
                                                         {"json", plan::PlanFormat::json}});
    if (!choice) return fail(Errc::invalid_input, "'{}' is neither text nor json", value);
    parsed.options.plan = *choice;
    return {};
}

Result<void> set_ssh_command(ParsedRun& parsed, string_view value) {
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    if (words->empty()) return fail(Errc::invalid_input, "the command is blank");
    parsed.options.ssh_command = value;
    return {};
}

Result<void> add_interfaces(ParsedRun& parsed, string_view value) {
    std::vector<std::string>& names = parsed.options.network_interfaces;
    for (const string_view item : split(value, ',')) {
        const std::string name(trim(item));
        if (name.empty())
            return fail(Errc::invalid_input, "a name is missing in '{}'; write eth0,eth1", value);
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
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

Result<void> set_config_file(ParsedRun& parsed, string_view value) {
    parsed.config_file = value;
    return {};
}

using enum FlagGroup;
using enum FlagScope;

Rows<ParsedRun> host_flags() {
    return {
        {{.names = "-np -n --np --num-proc",
          .also = "--ntasks",
          .metavar = "N",
          .group = hosts,
          .in = {join},
          .of_program = true,
          .common = true,
          .argparse = "--num-proc",
          .help = "number of ranks (default: what the batch system says, else every slot; 1 "
                  "without hosts)"},
         set_number<&plan::Options::world_size, 1, kRanksMax>},
        {{.names = "-H --hosts",
          .also = "--host -host",
          .metavar = "HOSTS",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .of_program = true,
          .common = true,
          .argparse = "--hosts",
          .help = "hosts and slots: s1:4,s2:4; also s1 (1 slot), user@s1:4, [::1]:4, n[01-16]:8 "
                  "(default: the batch system's, else this machine)"},
         set_text<&plan::Options::hosts>},
        {{.names = "--hostfile -hostfile",
          .also = "--machinefile -machinefile -machine-file -f --default-hostfile",
          .metavar = "FILE",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .common = true,
          .argparse = "--hostfile -hostfile",
          .excludes = "-H",
          .help = "file with a host in each line, as `s1 slots=4`, `s1:4` or `s1`, or YAML; - is "
                  "standard input"},
         set_text<&plan::Options::hostfile>},
        {{.names = "--include",
          .metavar = "FILTER",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .help =
              "use only these hosts and slots, with '@' between hosts: s1@s2:0,2 (default: all)"},
         set_text<&plan::Options::include>},
        {{.names = "--exclude",
          .metavar = "FILTER",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .excludes = "--include",
          .help = "use all but these (default: none left out)"},
         set_text<&plan::Options::exclude>},
        {{.names = "-N --ranks-per-host",
          .also =
              "-ppn --ppn -perhost -npernode --npernode --ntasks-per-node --tasks-per-node -grr",
          .metavar = "N",
          .group = hosts,
          .common = true,
          .twice = "srun's -N, a number of nodes, is what -H, --hostfile or the allocation say",
          .help = "so many ranks on each host, not one for each slot"},
         set_ranks_per_host},
        {{.names = "--rankfile",
          .also = "-rankfile -rf",
          .metavar = "FILE",
          .group = hosts,
          .excludes = "-N --map-by --include --exclude",
          .help = "file that says where each rank runs, in lines `rank 0=s1` (default: by slots)"},
         set_text<&plan::Options::rankfile>},
        {{.names = "--oversubscribe",
          .also = "-oversubscribe --overcommit -O",
          .group = hosts,
          .in = {frontends, bench},
          .help = "allow more ranks than slots (default: an error)"},
         set_true<&plan::Options::oversubscribe>},
        {{.names = "--plan",
          .also = "--do-not-launch --test-only --dry-run",
          .metavar = "[=text|json]",
          .group = hosts,
          .in = {frontends},
          .common = true,
          .help = "print which rank goes where with what, values of variables only with --verbose, "
                  "and start nothing (default: start; --plan alone: text)"},
         set_plan},
    };
}

/// "dtrun|torch|...", and what stands for none of them.
std::string contract_names() {
    std::string names = "none";
    for (const contracts::Contract& contract : contracts::all_contracts())
        names += fmt::format("|{}", contract.name);
    return names;
}

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
          .help = "set a variable for every rank; without =VALUE, with its value here; repeatable"},
         add_export},
        {{.names = "--env-file",
          .metavar = "FILE",
          .group = environment,
          .in = {join, frontends, bench, doctor},
          .adds_up = true,
          .help = "set variables from lines VAR=VALUE; -x and VAR=VALUE before the program win; "
                  "repeatable"},
         add_text<&plan::Options::env_files>},
        {{.names = "--no-env",
          .group = environment,
          .in = {join, frontends, bench, doctor},
          .needs_agents = true,
          .help = "forward nothing of your environment but what you name (default: all but what "
                  "`dtrun help environment` lists)"},
         set_true<&plan::Options::no_env>},
        {{.names = "--contract",
          .metavar = "NAME,...",
          .words = contracts,
          .group = environment,
          .in = {frontends, bench},
          .needs_agents = true,
          .adds_up = true,
          .help = "also set the variables of these kinds of programs; `dtrun contracts` lists them "
                  "(default: those marked there, and slurm in a Slurm allocation)"},
         add_contracts},
        {{.names = "--store",
          .metavar = "agent|rank0|proxy",
          .group = environment,
          .in = {frontends},
          .needs_agents = true,
          .help = "who serves torch's store: the agent of rank 0's host, rank 0 itself, or every "
                  "host's agent for its own ranks (default: agent; proxy with --encrypt)"},
         set_store},
        {{.names = "--mpi",
          .metavar = "[auto|pmix|pmi1|pmi2|mpirun|none]",
          .group = environment,
          .in = {frontends, bench},
          .argparse = "--mpi",
          .help = "how MPI finds its ranks: pmix (Open MPI), pmi1 or pmi2 (MPICH, Intel MPI, "
                  "MVAPICH), auto: as each rank asks; none; or mpirun: the site's own starts them. "
                  "Without a word, as of horovodrun: auto, and Horovod uses MPI (default: auto)"},
         set_mpi},
        {{.names = "--mpi-args",
          .metavar = "ARGS",
          .group = environment,
          .is_arguments = true,
          .adds_up = true,
          .argparse = "--mpi-args",
          .help = "more arguments for that mpirun, which is DTRUN_MPIRUN, else the mpirun or "
                  "mpiexec of PATH (default: none)"},
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

Rows<ParsedRun> reaching_flags() {
    static const std::string transports =
        fmt::format("{}", fmt::join(plan::transport_words(&plan::TransportRow::word), "|"));
    static const std::string transport_help = fmt::format(
        "how to get onto the hosts: {} (default: srun for the hosts of a Slurm "
        "allocation, else ssh)",
        ways_onto_hosts());
    return {
        {{.names = "--transport",
          .metavar = transports,
          .group = reaching,
          .in = {frontends, bench, doctor},
          .help = transport_help},
         set_transport},
        {{.names = "--ssh-port -p",
          .metavar = "PORT",
          .group = reaching,
          .in = {torchrun, bench, doctor},
          .common = true,
          .argparse = "--ssh-port",
          .help = "port, 1 to 65535 (default: ~/.ssh/config, else 22)"},
         set_number<&plan::Options::ssh_port, 1, kPortMax>},
        {{.names = "--ssh-identity-file -i",
          .metavar = "FILE",
          .group = reaching,
          .in = {torchrun, bench, doctor},
          .common = true,
          .argparse = "--ssh-identity-file",
          .help = "private key, without a passphrase (default: what ssh-agent, ~/.ssh/config and "
                  "~/.ssh have)"},
         set_text<&plan::Options::ssh_identity_file>},
        {{.names = "--ssh-command",
          .also = "-bootstrap-exec -launcher-exec",
          .metavar = "COMMAND",
          .group = reaching,
          .in = {frontends, bench, doctor},
          .help = "log in with this program: 'ssh -J gate' (default: dtrun's built-in ssh)"},
         set_ssh_command},
        {{.names = "--accept-new-host-keys",
          .group = reaching,
          .in = {frontends, bench, doctor},
          .common = true,
          .help = "trust hosts that known_hosts lacks, and add them; never a changed or revoked "
                  "key (default: an error)"},
         set_true<&plan::Options::accept_new_host_keys>},
        {{.names = "--keep-warm",
          .metavar = "TIME",
          .group = reaching,
          .in = {frontends},
          .needs_agents = true,
          .help = "stay logged in for later jobs of yours, until none has run for so long, such as "
                  "90, 10m or 2h: `dtrun hold` (default: log out)"},
         set_keep_warm},
        {{.names = "--no-warm",
          .group = reaching,
          .in = {frontends},
          .needs_agents = true,
          .excludes = "--keep-warm",
          .help =
              "log in anew, also where `dtrun hold` or --keep-warm keeps a log-in (default: use "
              "it)"},
         set_no_warm},
        {{.names = "--network-interfaces --network-interface",
          .also = "-iface",
          .metavar = "NAMES",
          .group = reaching,
          .in = {frontends, bench, doctor},
          .adds_up = true,
          .argparse = "--network-interfaces --network-interface",
          .help =
              "use only these, such as eth0,eth1; also sets NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME "
              "and HOROVOD_GLOO_IFACE; repeatable (default: whichever works)"},
         add_interfaces},
        {{.names = "--connect-timeout",
          .metavar = "SECONDS",
          .group = reaching,
          .in = {join, frontends, bench, doctor},
          .help = "for each host: look up, connect, log in, start the agent; fractions allowed "
                  "(default: 10)"},
         set_seconds<&plan::Options::connect_timeout, 1>},
        {{.names = "--wait-for-hosts",
          .metavar = "SECONDS",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "try hosts that are not there yet, as machines that boot, again and again for so "
                  "long from the start on; not those that refuse your key (default: 0)"},
         set_seconds<&plan::Options::wait_for_hosts, 0>},
        {{.names = "--health-check",
          .metavar = "COMMAND",
          .group = reaching,
          .in = {join, frontends},
          .needs_agents = true,
          .help =
              "run on each host before it takes part, for 60 s at most: only hosts where it ends "
              "with 0 do (default: none)"},
         set_text<&plan::Options::health_check>},
        {{.names = "--encrypt",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help =
              "encrypt what dtrun sends between hosts, torch's store and dtrun's own collectives "
              "too; not what programs send by NCCL, Gloo, MPI or themselves (default: "
              "authenticated, but in the clear)"},
         set_true<&plan::Options::encrypt>},
        {{.names = "--tree-threshold",
          .metavar = "HOSTS",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "with more hosts than this, some relay for others (default: 256)"},
         set_number<&plan::Options::tree_threshold, 2, kRanksMax>},
        {{.names = "--tree-login",
          .metavar = "auto|off|forward-agent",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "hosts that relay for others log in to these as well, by ssh and with keys that "
                  "they have, or with those of your ssh-agent, which root of these hosts can use "
                  "then until all hosts are there; only while this machine is busy with --fanout "
                  "log-ins, and what they cannot reach it logs in to itself (default: auto)"},
         set_tree_login},
        {{.names = "--fanout",
          .metavar = "HOSTS",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "log in to so many hosts at once from here (default: 128)"},
         set_number<&plan::Options::fanout, 1, 4'096>},
        {{.names = "--start-timeout",
          .metavar = "SECONDS",
          .group = reaching,
          .in = {join, frontends, bench},
          .needs_agents = true,
          .argparse = "--start-timeout",
          .help = "until every rank runs (default: HOROVOD_START_TIMEOUT, else no limit but "
                  "--connect-timeout)"},
         set_seconds<&plan::Options::start_timeout, 1>},
    };
}

Result<void> set_on_failure(ParsedRun& parsed, string_view value) {
    const auto choice =
        choose<string_view>(value, {{"end", value}, {"elastic", value}, {"continue", value}});
    return keep(choice, parsed.on_rank_failure);
}

Result<void> set_on_hang(ParsedRun& parsed, string_view value) {
    return keep(choose<bool>(value, {{"report", false}, {"kill", true}}), parsed.options.kill_hung);
}

Rows<ParsedRun> ending_flags() {
    return {
        {{.names = "--timeout",
          .also = "-timeout",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .common = true,
          .help = "end the job after so many seconds (default: none)"},
         set_seconds<&plan::Options::time_limit, 1>},
        {{.names = "--grace",
          .metavar = "SECONDS",
          .group = ending,
          .in = {join, frontends, bench},
          .needs_agents = true,
          .help = "between SIGTERM and SIGKILL when the job ends; fractions allowed (default: 5)"},
         set_seconds<&plan::Options::grace, 0>},
        {{.names = "--heartbeat-timeout",
          .metavar = "SECONDS",
          .group = ending,
          .in = {join, frontends, bench},
          .needs_agents = true,
          .help = "a host that is silent for so long is lost; at least 1, fractions allowed "
                  "(default: 3)"},
         set_seconds<&plan::Options::heartbeat_timeout, 1'000>},
        {{.names = "--max-restarts",
          .metavar = "N",
          .group = ending,
          .in = {join, deepspeed},
          .needs_agents = true,
          .common = true,
          .help = "when a rank fails, end all and start them again, up to N times (default: 0)"},
         set_number<&plan::Options::max_restarts, 0, kRestartsMax>},
        {{.names = "--restart-delay",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "wait so long before ranks start again (default: 0; up to 5 where they fail at "
                  "once again and again)"},
         set_seconds<&plan::Options::restart_delay, 0>},
        {{.names = "--min-uptime",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "a rank that fails sooner after its start ends the job, whatever --max-restarts "
                  "says (default: 0)"},
         set_seconds<&plan::Options::min_uptime, 0>},
        {{.names = "--init-timeout",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "how long ranks may wait for others in the stores of their frameworks (default: "
                  "as long as the frameworks do)"},
         set_seconds<&plan::Options::init_timeout, 1>},
        {{.names = "--on-hang",
          .metavar = "report|kill",
          .group = ending,
          .in = {join, frontends},
          .needs_agents = true,
          .help =
              "what becomes of a rank that is in a section of its program (dtrun_section()) for "
              "longer than that may take: it is named, or killed, so that it counts as failed "
              "(default: report)"},
         set_on_hang},
        {{.names = "--keep-going",
          .also = "--enable-recovery -enable-recovery -disable-auto-cleanup --continuous",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "a rank that fails does not end the others (default: it does)"},
         set_true<&plan::Options::keep_going>},
        {{.names = "--on-rank-failure",
          .metavar = "end|elastic|continue",
          .group = ending,
          .in = {torchrun},
          .needs_agents = true,
          .help =
              "what a failed rank or a lost host means for the others: they are ended; they go "
              "on as --min-np says; or they are left alone, as the program recovers by itself, "
              "and the job succeeds if --min-np ranks do (default: end, with --min-np elastic)"},
         set_on_failure},
    };
}

Rows<ParsedRun> other_flags() {
    return {
        {{.names = "--help -h",
          .group = other,
          .in = {join, frontends, bench, doctor},
          .common = true,
          .argparse = "--help",
          .help = "this text"},
         ask<Ask::help>},
        {{.names = "--version -v",
          .also = "-V",
          .group = other,
          .in = {join, frontends, bench, doctor},
          .common = true,
          .argparse = "--version",
          .help = "the version"},
         ask<Ask::version>},
        {{.names = "--profile",
          .metavar = "NAME",
          .group = other,
          .in = {join, frontends},
          .help = "take the options of this profile of ~/.config/dtrun/config.yaml; `dtrun config` "
                  "shows what is set where (default: DTRUN_PROFILE, else none)"},
         nothing},
        {{.names = "--check-build -cb",
          .group = other,
          .argparse = "--check-build",
          .help =
              "the frameworks, controllers and operations that are here, as horovodrun tells them"},
         ask<Ask::check_build>},
    };
}

Rows<ParsedRun> horovod_flags() {
    Rows<ParsedRun> flags = {
        {{.names = "--config-file",
          .metavar = "FILE",
          .group = horovod,
          .help = "horovodrun's YAML of these settings; flags win wherever they stand"},
         set_config_file},
        {{.names = "--gloo",
          .group = horovod,
          .help = "Gloo is Horovod's controller; it is the default"},
         set_gloo},
        {{.names = "--tcp",
          .group = horovod,
          .help = "NCCL without InfiniBand: sets NCCL_IB_DISABLE=1"},
         set_tcp},
        {{.names = "--disable-cache", .group = horovod, .help = "accepted: nothing is cached"},
         nothing},
    };
    std::ranges::move(horovod_tuning_flags(), std::back_inserter(flags));
    return flags;
}

}  // namespace

const FlagTable<ParsedRun>& run_flags() {
    static const FlagTable<ParsedRun> table(
        "dtrun",
        {host_flags(), binding_flags(), environment_flags(), reaching_flags(), output_flags(),
         ending_flags(), elastic_flags(), look_flags(), show_flags(), history_flags(),
         other_flags(), horovod_flags(), other_horovod_flags(), foreign_flags()});
    return table;
}

}  // namespace dtrun::cli
