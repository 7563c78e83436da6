#include "launcher/cli/flags.h"

#include "base/strings.h"
#include "contracts/table.h"
#include "launcher/cli/setters.h"
#include "launcher/output/line_prefix.h"
#include "rendezvous/modes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <tuple>

namespace dtrun::cli {

namespace {

using std::string_view;

constexpr string_view kElastic =
    "a job that one dtrun launches has a fixed size; elastic jobs are those of dtrun serve, see "
    "dtrun join --help";
constexpr string_view kNoJsrun =
    "dtrun starts the ranks itself; leave it out, or have them started by an mpirun with --mpi "
    "mpirun";

template <std::vector<std::string> plan::Options::*Member>
Result<void> add_text(Draft& draft, string_view value) {
    (draft.options.*Member).emplace_back(value);
    return {};
}

template <CommandLine::Kind Kind>
Result<void> ask(Draft& draft, string_view) {
    draft.kind = Kind;
    return {};
}

Result<void> set_tcp(Draft& draft, string_view) {
    draft.tcp = true;
    return {};
}

template <log::Level Level>
Result<void> set_verbosity(Draft& draft, string_view) {
    draft.options.verbosity = Level;
    return {};
}

Result<void> set_world_size(Draft& draft, string_view value) {
    const auto number = whole_number(value, 1, kRanksMax);
    if (!number) return std::unexpected(number.error());
    draft.options.world_size = *number;
    return {};
}

Result<void> set_tree_threshold(Draft& draft, string_view value) {
    const auto number = whole_number(value, 2, kRanksMax);
    if (!number) return std::unexpected(number.error());
    draft.options.tree_threshold = *number;
    return {};
}

template <auto Member, int MinMs>
Result<void> set_seconds(Draft& draft, string_view value) {
    const auto time = parse_seconds(value, std::chrono::milliseconds(MinMs), kTimeoutMax);
    if (!time) return std::unexpected(time.error());
    draft.options.*Member = *time;
    return {};
}

/// A word of a list, "one of a, b and c" in the message.
template <class T>
Result<T> choose(string_view value, std::initializer_list<std::pair<string_view, T>> choices) {
    std::vector<std::string> names;
    for (const auto& [name, choice] : choices) {
        if (value == name) return choice;
        names.emplace_back(name);
    }
    return fail(Errc::invalid_input, "'{}' is not one of {}", value, join_names(names));
}

Result<void> set_map_by(Draft& draft, string_view value) {
    const auto choice = choose<MapBy>(value, {{"slot", MapBy::slot}, {"node", MapBy::node}});
    if (!choice) return std::unexpected(choice.error());
    draft.options.map_by = *choice;
    return {};
}

Result<void> set_transport(Draft& draft, string_view value) {
    const auto choice =
        choose<plan::TransportChoice>(value, {{"ssh", plan::TransportChoice::ssh},
                                              {"slurm", plan::TransportChoice::slurm},
                                              {"local", plan::TransportChoice::local}});
    if (!choice) return std::unexpected(choice.error());
    draft.options.transport = *choice;
    return {};
}

Result<void> add_contracts(Draft& draft, string_view value) {
    const std::string names(value);
    const auto known = contracts::effective_contracts({&names, 1});
    if (!known) return std::unexpected(known.error());
    for (const string_view name : split(value, ','))
        draft.options.contracts.emplace_back(trim(name));
    return {};
}

Result<void> set_store(Draft& draft, string_view value) {
    const auto choice = choose<TorchStore>(
        value,
        {{"agent", TorchStore::agent}, {"rank0", TorchStore::rank0}, {"proxy", TorchStore::proxy}});
    if (!choice) return std::unexpected(choice.error());
    draft.options.torch_store = *choice;
    draft.options.store_given = *choice;
    return {};
}

/// Horovod's controller is a setting that the configuration file has too.
Result<void> set_controller(Draft& draft, string_view name) {
    const auto [entry, added] =
        draft.tuning.try_emplace(std::string(kHorovodController), std::string(name));
    if (!added && entry->second != name)
        return fail(Errc::invalid_input,
                    "--gloo and --mpi without a word are two controllers of Horovod; give one of "
                    "them");
    return {};
}

Result<void> set_gloo(Draft& draft, string_view) {
    return set_controller(draft, "gloo");
}

Result<void> set_mpi(Draft& draft, string_view value) {
    draft.mpi_asked = value != "none" && value != "mpirun";
    if (value.empty()) return set_controller(draft, "mpi");
    const auto choice =
        choose<std::pair<MpiMode, bool>>(value, {{"auto", {MpiMode::automatic, false}},
                                                 {"pmix", {MpiMode::pmix, false}},
                                                 {"pmi1", {MpiMode::pmi1, false}},
                                                 {"pmi2", {MpiMode::pmi2, false}},
                                                 {"mpirun", {MpiMode::none, true}},
                                                 {"none", {MpiMode::none, false}}});
    if (!choice) return std::unexpected(choice.error());
    std::tie(draft.options.mpi, draft.options.mpirun) = *choice;
    return {};
}

template <std::vector<std::string> plan::Options::*Member>
Result<void> add_words(Draft& draft, string_view value) {
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    std::ranges::copy(*words, std::back_inserter(draft.options.*Member));
    return {};
}

Result<void> set_plan(Draft& draft, string_view value) {
    const auto choice = choose<plan::PlanFormat>(value, {{"", plan::PlanFormat::text},
                                                         {"text", plan::PlanFormat::text},
                                                         {"json", plan::PlanFormat::json}});
    if (!choice) return fail(Errc::invalid_input, "'{}' is neither text nor json", value);
    draft.options.plan = *choice;
    return {};
}

Result<void> set_tag(Draft& draft, string_view value) {
    const auto choice = choose<output::Tag>(value, {{"none", output::Tag::none},
                                                    {"rank", output::Tag::rank},
                                                    {"host", output::Tag::host},
                                                    {"rank-host", output::Tag::rank_host},
                                                    {"horovod", output::Tag::horovod}});
    if (!choice) return std::unexpected(choice.error());
    draft.options.tag = *choice;
    return {};
}

template <plan::RankSet plan::Options::*Member>
Result<void> add_ranks(Draft& draft, string_view value) {
    const auto ranks = plan::RankSet::parse(value);
    if (!ranks) return std::unexpected(ranks.error());
    (draft.options.*Member).add(*ranks);
    return {};
}

Result<void> set_stdin(Draft& draft, string_view value) {
    using enum plan::StdinTarget::Kind;
    if (value == "none" || value == "all") {
        draft.options.stdin_target = {value == "all" ? all : none, 0};
        return {};
    }
    const auto number = to_int(value, 0, kRanksMax - 1);
    if (!number || value.starts_with('-'))
        return fail(Errc::invalid_input, "'{}' is neither none, all nor a rank from 0 to {}", value,
                    kRanksMax - 1);
    draft.options.stdin_target = {plan::StdinTarget::Kind::rank, static_cast<int>(*number)};
    return {};
}

Result<void> set_ssh_command(Draft& draft, string_view value) {
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    if (words->empty()) return fail(Errc::invalid_input, "the command is blank");
    draft.options.ssh_command = value;
    return {};
}

Result<void> add_interfaces(Draft& draft, string_view value) {
    std::vector<std::string>& names = draft.options.network_interfaces;
    for (const string_view item : split(value, ',')) {
        const std::string name(trim(item));
        if (name.empty())
            return fail(Errc::invalid_input, "a name is missing in '{}'; write eth0,eth1", value);
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return {};
}

Result<void> add_export(Draft& draft, string_view value) {
    const auto settable = plan::check_settable(value.substr(0, value.find('=')));
    if (!settable) return settable;
    draft.options.export_vars.emplace_back(value);
    return {};
}

Result<void> set_config_file(Draft& draft, string_view value) {
    draft.config_file = value;
    return {};
}

using enum FlagGroup;

std::vector<Flag> host_flags() {
    return {
        {"-np -n --np --num-proc", "N", hosts,
         "number of ranks (default: what the batch system says, else every slot of the hosts; 1 "
         "without hosts)",
         set_world_size, ""},
        {"-H --hosts", "HOSTS", hosts,
         "hosts and slots: s1:4,s2:4; also s1 (1 slot), user@s1:4, [::1]:4, n[01-16]:8 (default: "
         "the batch system's, else this machine)",
         set_text<&plan::Options::hosts>, ""},
        {"--hostfile -hostfile", "FILE", hosts,
         "file with a host in each line, as `s1 slots=4`, `s1:4` or `s1`, or YAML; - is standard "
         "input",
         set_text<&plan::Options::hostfile>, ""},
        {"--include", "FILTER", hosts, "use only these hosts and slots: s1@s2:0,2 (default: all)",
         set_text<&plan::Options::include>, ""},
        {"--exclude", "FILTER", hosts, "use all but these (default: none left out)",
         set_text<&plan::Options::exclude>, ""},
        {"--map-by", "slot|node", hosts,
         "fill a host before the next, or one rank on each in turn (default: slot)", set_map_by,
         ""},
        {"--oversubscribe", "", hosts, "allow more ranks than slots (default: an error)",
         set_true<&plan::Options::oversubscribe>, ""},
        {"--plan", "[=text|json]", hosts,
         "print which rank goes where with what, values of variables only with --verbose, and "
         "start nothing (default: start; --plan alone: text)",
         set_plan, ""},
    };
}

std::vector<Flag> environment_flags() {
    return {
        {"-x", "VAR[=VALUE]", environment,
         "set a variable for every rank, by default to its value here; repeatable", add_export, ""},
        {"--env-file", "FILE", environment,
         "set variables from lines VAR=VALUE; -x and VAR=VALUE before the program win; repeatable",
         add_text<&plan::Options::env_files>, ""},
        {"--no-env", "", environment,
         "forward nothing of your environment but what you name (default: all but what `dtrun help "
         "environment` lists)",
         set_true<&plan::Options::no_env>, ""},
        {"--contract", "NAME,...", environment,
         "also set the variables of these kinds of programs; `dtrun contracts` lists them "
         "(default: those marked there, and slurm in a Slurm allocation)",
         add_contracts, ""},
        {"--store", "agent|rank0|proxy", environment,
         "who serves torch's store: the agent of rank 0's host, rank 0 itself, or every host's "
         "agent for its own ranks (default: agent; proxy with --encrypt)",
         set_store, ""},
        {"--mpi", "[auto|pmix|pmi1|pmi2|mpirun|none]", environment,
         "how MPI finds its ranks: pmix (Open MPI), pmi1 or pmi2 (MPICH, Intel MPI, MVAPICH), "
         "auto: as each rank asks; none; or mpirun: the site's own starts them. Alone as of "
         "horovodrun: auto, and MPI is Horovod's controller (default: auto)",
         set_mpi, ""},
        {"--mpi-args", "ARGS", environment,
         "more arguments for that mpirun, which is DTRUN_MPIRUN, else the mpirun or mpiexec of "
         "PATH (default: none)",
         add_words<&plan::Options::mpi_args>, "", true},
        {"--binding-args", "ARGS", environment,
         "for it, of binding and mapping (default: with Open MPI --bind-to none --map-by slot)",
         add_words<&plan::Options::binding_args>, "", true},
        {"--wdir -wdir", "DIR", environment,
         "working directory on every host (default: the current one if the host has it, else your "
         "home)",
         set_text<&plan::Options::wdir>, ""},
    };
}

std::vector<Flag> reaching_flags() {
    return {
        {"--transport", "ssh|slurm|local", reaching,
         "how to get onto the hosts: one ssh each, one srun for all, or only this machine "
         "(default: srun for the hosts of a Slurm allocation, else ssh)",
         set_transport, ""},
        {"--ssh-port -p", "PORT", reaching, "port, 1 to 65535 (default: ~/.ssh/config, else 22)",
         set_ssh_port, ""},
        {"--ssh-identity-file -i", "FILE", reaching,
         "private key; one under a passphrase only through ssh-agent (default: ssh-agent, "
         "~/.ssh/config, your usual keys)",
         set_text<&plan::Options::ssh_identity_file>, ""},
        {"--ssh-command", "COMMAND", reaching,
         "log in with this program: 'ssh -J gate' (default: dtrun's built-in ssh)", set_ssh_command,
         ""},
        {"--accept-new-host-keys", "", reaching,
         "trust hosts that known_hosts lacks, and add them; never a changed or revoked key "
         "(default: an error)",
         set_true<&plan::Options::accept_new_host_keys>, ""},
        {"--network-interfaces --network-interface", "NAMES", reaching,
         "use only these, such as eth0,eth1; also sets NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME and "
         "HOROVOD_GLOO_IFACE; repeatable (default: whichever works)",
         add_interfaces, ""},
        {"--connect-timeout", "SECONDS", reaching,
         "for each host: look up, connect, log in, start the agent; fractions allowed (default: "
         "10)",
         set_seconds<&plan::Options::connect_timeout, 1>, ""},
        {"--encrypt", "", reaching,
         "encrypt what dtrun sends between hosts, torch's store too; not what programs send by "
         "themselves (default: authenticated, but in the clear)",
         set_true<&plan::Options::encrypt>, ""},
        {"--tree-threshold", "HOSTS", reaching,
         "with more hosts than this, some relay for others (default: 256)", set_tree_threshold, ""},
        {"--start-timeout", "SECONDS", reaching,
         "until every rank runs (default: HOROVOD_START_TIMEOUT, else no limit but "
         "--connect-timeout)",
         set_seconds<&plan::Options::start_timeout, 1>, ""},
    };
}

std::vector<Flag> output_flags() {
    return {
        {"--tag", "FORM", output,
         "before each line: none, rank, host, rank-host or horovod, which is [3]<stdout>: "
         "(default: horovod; none with one rank)",
         set_tag, ""},
        {"--timestamps --prefix-output-with-timestamp -prefix-timestamp", "", output,
         "the time before each line, taken on its host (default: none)",
         set_true<&plan::Options::timestamps>, ""},
        {"--output-dir --output-filename", "DIR", output,
         "also write DIR/rank.N/stdout and stderr (default: no files)",
         set_text<&plan::Options::output_dir>, ""},
        {"--only-ranks", "RANKS", output, "show only these, such as 0,3-5 (default: all)",
         add_ranks<&plan::Options::only_ranks>, ""},
        {"--quiet-ranks", "RANKS", output, "do not show these (default: none)",
         add_ranks<&plan::Options::quiet_ranks>, ""},
        {"--stdin", "none|all|RANK", output, "who reads standard input (default: 0)", set_stdin,
         ""},
        {"--quiet", "", output, "of dtrun's own messages only errors (default: warnings too)",
         set_verbosity<log::Level::quiet>, ""},
        {"--verbose", "", output, "what dtrun does", set_verbosity<log::Level::verbose>, ""},
        {"--debug", "", output, "every event", set_verbosity<log::Level::debug>, ""},
    };
}

std::vector<Flag> ending_flags() {
    return {
        {"--grace", "SECONDS", ending,
         "between SIGTERM and SIGKILL when the job ends; fractions allowed (default: 5)",
         set_seconds<&plan::Options::grace, 0>, ""},
        {"--heartbeat-timeout", "SECONDS", ending,
         "a host that is silent for so long is lost; at least 1, fractions allowed (default: 3)",
         set_seconds<&plan::Options::heartbeat_timeout, 1'000>, ""},
        {"--max-restarts", "N", ending,
         "when a rank fails, end all and start them again, so often (default: 0)", set_max_restarts,
         ""},
        {"--init-timeout", "SECONDS", ending,
         "how long ranks may wait for others in the stores of their frameworks (default: as long "
         "as the frameworks do)",
         set_seconds<&plan::Options::init_timeout, 1>, ""},
        {"--keep-going", "", ending, "a rank that fails does not end the others (default: it does)",
         set_true<&plan::Options::keep_going>, ""},
    };
}

std::vector<Flag> other_flags() {
    return {
        {"--help -h", "", other, "this text", ask<CommandLine::Kind::help>, ""},
        {"--version -v", "", other, "the version", ask<CommandLine::Kind::version>, ""},
        {"--check-build -cb", "", other, "what this build can do",
         ask<CommandLine::Kind::check_build>, ""},
    };
}

std::vector<Flag> refused_flags() {
    return {
        {"--min-np --min-num-proc", "N", horovod, "", nullptr, kElastic},
        {"--max-np --max-num-proc", "N", horovod, "", nullptr, kElastic},
        {"--host-discovery-script", "FILE", horovod, "", nullptr, kElastic},
        {"--slots-per-host", "N", horovod, "", nullptr, kElastic},
        {"--elastic-timeout", "SECONDS", horovod, "", nullptr, kElastic},
        {"--reset-limit", "N", horovod, "", nullptr, kElastic},
        {"--blacklist-cooldown-range", "MIN", horovod, "", nullptr, kElastic},
        {"--jsrun", "", horovod, "", nullptr, kNoJsrun},
    };
}

/// The flag that gives a setting the value the user writes, or with `fixed` that one.
Flag tuning_flag(const HorovodSetting& setting, string_view names, string_view fixed) {
    using enum HorovodSetting::Form;
    const string_view metavar = !fixed.empty()             ? ""
                                : setting.form == text     ? "FILE"
                                : setting.form == level    ? "LEVEL"
                                : setting.form == decimal  ? "X"
                                : setting.form == fraction ? "X"
                                                           : "N";
    const auto apply = [&setting, fixed](Draft& draft, string_view value) -> Result<void> {
        auto text = horovod_value(setting, fixed.empty() ? value : fixed);
        if (!text) return std::unexpected(text.error());
        draft.tuning.insert_or_assign(std::string(setting.variable), std::move(*text));
        return {};
    };
    return {names, metavar, horovod, setting.help, apply, ""};
}

void add_tuning_flags(std::vector<Flag>& flags) {
    for (const HorovodSetting& setting : horovod_settings()) {
        if (setting.form != HorovodSetting::Form::yes_no) {
            flags.push_back(tuning_flag(setting, setting.flags, ""));
            continue;
        }
        flags.push_back(tuning_flag(setting, setting.flags, "true"));
        flags.push_back(tuning_flag(setting, setting.flags_no, "false"));
        flags.back().help = "";
    }
}

std::vector<Flag> horovod_flags() {
    std::vector<Flag> flags = {
        {"--config-file", "FILE", horovod,
         "horovodrun's YAML of these settings; flags win wherever they stand", set_config_file, ""},
        {"--gloo", "", horovod, "Gloo is Horovod's controller; it is the default", set_gloo, ""},
        {"--tcp", "", horovod, "NCCL without InfiniBand: sets NCCL_IB_DISABLE=1", set_tcp, ""},
        {"--disable-cache", "", horovod, "accepted: nothing is cached", nothing, ""},
    };
    add_tuning_flags(flags);
    return flags;
}

std::vector<Flag> make_run_flags() {
    std::vector<Flag> flags;
    for (auto part : {host_flags, environment_flags, reaching_flags, output_flags, ending_flags,
                      other_flags, horovod_flags, refused_flags})
        std::ranges::move(part(), std::back_inserter(flags));
    return flags;
}

}  // namespace

const Flags& run_flags() {
    static const Flags flags = make_run_flags();
    return flags;
}

void add_of_run(Flags& flags, const std::vector<string_view>& names) {
    for (const Flag& flag : run_flags())
        if (std::ranges::find(names, flag.first_name()) != names.end()) flags.push_back(flag);
}

void add_common(Flags& flags, std::initializer_list<string_view> others) {
    static constexpr string_view kCommon[] = {"--map-by",
                                              "--oversubscribe",
                                              "--plan",
                                              "-x",
                                              "--env-file",
                                              "--no-env",
                                              "--contract",
                                              "--store",
                                              "--mpi",
                                              "--wdir",
                                              "--transport",
                                              "--ssh-command",
                                              "--accept-new-host-keys",
                                              "--network-interfaces",
                                              "--connect-timeout",
                                              "--encrypt",
                                              "--tree-threshold",
                                              "--start-timeout",
                                              "--tag",
                                              "--timestamps",
                                              "--only-ranks",
                                              "--quiet-ranks",
                                              "--stdin",
                                              "--verbose",
                                              "--debug",
                                              "--grace",
                                              "--heartbeat-timeout",
                                              "--init-timeout",
                                              "--keep-going",
                                              "--help",
                                              "--version"};
    std::vector<string_view> names(std::begin(kCommon), std::end(kCommon));
    names.insert(names.end(), others);
    add_of_run(flags, names);
}

Flag::Value Flag::value() const {
    if (metavar.empty()) return Value::none;
    if (metavar.starts_with("[=")) return Value::optional;
    return metavar.starts_with('[') ? Value::choice : Value::required;
}

Result<int> whole_number(string_view value, int min, int max) {
    const auto number = to_int(value, min, max);
    if (!number)
        return fail(Errc::invalid_input, "'{}' is not a whole number from {} to {}", value, min,
                    max);
    return static_cast<int>(*number);
}

Result<std::chrono::milliseconds> parse_seconds(string_view text, std::chrono::milliseconds min,
                                                std::chrono::milliseconds max) {
    using Seconds = std::chrono::duration<double>;
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    const bool in_range = number >= Seconds(min).count() && number <= Seconds(max).count();
    if (error != std::errc{} || stopped != end || !in_range || text.starts_with('-'))
        return fail(Errc::invalid_input, "'{}' is not a number of seconds from {} to {}", text,
                    Seconds(min).count(), Seconds(max).count());
    return std::chrono::milliseconds(std::llround(number * 1000));
}

}  // namespace dtrun::cli
