#include "launcher/cli/cli.h"
#include "lab/plan/flags.h"
#include "launcher/fronts/fronts.h"

#include "base/fd.h"
#include "base/strings.h"
#include "contracts/table.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/horovod_config.h"
#include "launcher/cli/mpirun_options.h"
#include "launcher/commands/contracts_command.h"
#include "rendezvous/modes.h"

#include <dtrun_version.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <iterator>

namespace dtrun::cli {

namespace {

using std::string_view;
using Words = std::span<const std::string>;

bool is_option(string_view word) {
    return word.size() > 1 && word.starts_with('-');
}

/// "b:4" or "user@b:4": a -H item with its slots.
bool looks_like_host_slots(string_view word) {
    while (word.ends_with(',')) word.remove_suffix(1);
    const std::size_t colon = word.rfind(':');
    if (colon == 0 || colon == string_view::npos || !to_int(word.substr(colon + 1), 0, kSlotsMax))
        return false;
    return std::ranges::all_of(word.substr(0, colon), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               string_view("._-@[]").find(c) != string_view::npos;
    });
}

/// Reads the words of one `dtrun run` from left to right.
class RunReader {
public:
    RunReader(Words words, const Flags& flags, string_view usage)
        : words_(words), flags_(flags), usage_(usage) {}

    /// Stops early at --help and its like.
    Result<Draft> read() {
        OptionReader options(words_, flags_);
        if (const auto done = options.read(draft_); !done) return std::unexpected(done.error());
        if (draft_.kind != CommandLine::Kind::run) return std::move(draft_);
        at_ = options.at();
        if (!options.ended())
            if (const auto done = hosts_apart(); !done) return std::unexpected(done.error());
        if (const auto done = assignments(options.ended()); !done)
            return std::unexpected(done.error());
        if (at_ == words_.size())
            return fail(Errc::invalid_input, "no program to run; {} (dtrun --help tells more)",
                        usage_);
        draft_.options.program.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_),
                                      words_.end());
        return std::move(draft_);
    }

private:
    /// `-H a:1 b:1 prog`: the second host would be taken for the program.
    Result<void> hosts_apart() const {
        if (draft_.options.hosts.empty() || at_ == words_.size()) return {};
        std::string joined(draft_.options.hosts);
        std::size_t at = at_;
        for (; at < words_.size() && looks_like_host_slots(words_[at]); ++at) {
            if (!joined.ends_with(',')) joined += ',';
            joined += words_[at];
        }
        if (at == at_) return {};
        while (joined.ends_with(',')) joined.pop_back();
        return fail(Errc::invalid_input,
                    "'{}' is a host, not a program: -H takes one word without blanks; write -H {}",
                    words_[at_], joined);
    }

    Result<void> assignments(bool options_ended) {
        for (; at_ < words_.size(); ++at_) {
            const string_view word = words_[at_];
            if (is_option(word) && !options_ended)
                return fail(Errc::invalid_input,
                            "{} stands after {}=...; options go before, and -- before a program "
                            "that begins with a dash",
                            word, draft_.options.assignments.back().first);
            const std::size_t equals = word.find('=');
            const string_view name = word.substr(0, equals);
            if (equals == string_view::npos || !plan::is_variable_name(name)) return {};
            if (const auto settable = plan::check_settable(name); !settable)
                return fail(settable.error(), "{}=...", name);
            draft_.options.assignments.emplace_back(name, word.substr(equals + 1));
        }
        return {};
    }

    Words words_;
    const Flags& flags_;
    string_view usage_;
    std::size_t at_ = 0;
    Draft draft_;
};

Result<void> check_conflicts(const Draft& draft) {
    const plan::Options& options = draft.options;
    if (!options.hosts.empty() && !options.hostfile.empty())
        return fail(Errc::invalid_input, "{} and --hostfile exclude each other; give one of them",
                    draft.hosts_flag);
    if (!options.include.empty() && !options.exclude.empty())
        return fail(Errc::invalid_input,
                    "--include and --exclude exclude each other; give one of them");
    if (options.keep_going && options.max_restarts > 0)
        return fail(Errc::invalid_input,
                    "--keep-going and --max-restarts exclude each other; give one of them");
    return {};
}

Result<void> add_config_file(Draft& draft) {
    if (draft.config_file.empty()) return {};
    const auto text = read_file(draft.config_file);
    if (!text) return fail(text.error(), "--config-file");
    auto values = parse_horovod_config(*text, draft.config_file);
    if (!values) return std::unexpected(values.error());
    draft.tuning.merge(*values);  // keeps what flags said
    return {};
}

/// The variables that the user sets win, so the operations on CPUs have to follow them.
void follow_controller(Draft& draft, plan::EnvironmentView environment) {
    const auto controller = draft.tuning.find(kHorovodController);
    if (controller == draft.tuning.end()) return;
    const auto take = [&entry = controller->second](string_view value) {
        if (value == "gloo" || value == "mpi") entry = value;
    };
    for (const string_view word : draft.options.export_vars) {
        const std::size_t equals = word.find('=');
        if (word.substr(0, equals) != kHorovodController) continue;
        take(equals == string_view::npos ? plan::find_variable(environment, word).value_or("")
                                         : word.substr(equals + 1));
    }
    for (const auto& [name, value] : draft.options.assignments)
        if (name == kHorovodController) take(value);
}

/// Whether MPI is wanted that nobody offers.
Result<void> check_mpi(const Draft& draft) {
    const plan::Options& options = draft.options;
    if (options.mpirun) return {};
    const auto controller = draft.tuning.find(kHorovodController);
    const bool for_horovod = controller != draft.tuning.end() && controller->second == "mpi";
    if (for_horovod && options.mpi == MpiMode::none)
        return fail(Errc::invalid_input,
                    "MPI is Horovod's controller (--mpi without a word, or 'controller: mpi' in "
                    "--config-file), but --mpi none offers none; leave one of them out");
    if (!for_horovod && !draft.mpi_asked) return {};
    const auto contracts = contracts::effective_contracts(options.contracts);
    if (!contracts) return std::unexpected(contracts.error());
    if (std::ranges::find(*contracts, "mpi") == contracts->end())
        return fail(Errc::invalid_input,
                    "--contract {} leaves out mpi, without which no rank finds MPI; add "
                    "--contract mpi",
                    fmt::join(options.contracts, ","));
    return {};
}

Result<void> add_start_timeout(plan::Options& options, plan::EnvironmentView environment) {
    constexpr string_view kName = "HOROVOD_START_TIMEOUT";
    const auto text = plan::find_variable(environment, kName);
    if (options.start_timeout || !text || text->empty()) return {};
    const auto time = parse_seconds(*text, kTimeoutMin, kTimeoutMax);
    if (!time) return fail(time.error(), "{} (in the environment)", kName);
    options.start_timeout = *time;
    return {};
}

void add_tuning_env(Draft& draft, plan::EnvironmentView environment, CommandLine& command) {
    HorovodEnvironment horovod = horovod_environment(draft.tuning);
    // A caller may have Horovod's oneCCL for the operations under either controller.
    if (!draft.options.no_env && plan::find_variable(environment, kHorovodCpuOperations))
        std::erase_if(horovod.variables, [](const plan::Options::Variable& variable) {
            return variable.first == kHorovodCpuOperations;
        });
    std::ranges::move(horovod.warnings, std::back_inserter(command.warnings));
    std::vector<plan::Options::Variable>& variables = draft.options.tuning_env;
    std::ranges::move(horovod.variables, std::back_inserter(variables));
    if (draft.tcp) variables.emplace_back("NCCL_IB_DISABLE", "1");
    const std::vector<std::string>& interfaces = draft.options.network_interfaces;
    if (interfaces.empty()) return;
    const std::string all = fmt::format("{}", fmt::join(interfaces, ","));
    variables.emplace_back("NCCL_SOCKET_IFNAME", all);
    variables.emplace_back("GLOO_SOCKET_IFNAME", all);
    variables.emplace_back("HOROVOD_GLOO_IFACE", interfaces.front());
}

std::string version_text() {
    return DTRUN_VERSION "\n";
}

std::string check_build_text() {
    return "dtrun v" DTRUN_VERSION
           ":\n"
           "\n"
           "Starts ranks on:\n"
           "    [X] this machine\n"
           "    [X] other hosts, over ssh\n"
           "\n"
           "Gives each rank the environment of:\n"
           "    [X] dtrun\n"
           "    [X] Horovod\n"
           "    [X] torchrun\n"
           "    [X] DeepSpeed\n"
           "\n"
           "Starts MPI programs by:\n"
           "    [X] PMIx, with the libpmix of each host\n"
           "    [X] PMI-1 and PMI-2\n"
           "    [X] the site's own mpirun\n"
           "\n"
           "Frameworks are the program's own: none is compiled in, and none is needed.\n";
}

/// As in `a : -np 1 b`, by which mpirun starts another program on the next ranks.
bool is_next_program(const std::string& word, const std::string& next) {
    constexpr string_view kRanks[] = {"-np", "--np", "-n", "-c"};
    return word == ":" && std::ranges::find(kRanks, next) != std::end(kRanks);
}

Result<CommandLine> parse_run(Words words, plan::EnvironmentView environment) {
    auto draft = RunReader(words, run_flags(), usage_line()).read();
    if (!draft) return std::unexpected(draft.error());
    if (draft->kind != CommandLine::Kind::run) return text_command(draft->kind, run_help);
    if (const auto done = check_mpirun_options(draft->options); !done)
        return std::unexpected(done.error());
    auto command = finish_run(std::move(*draft), environment);
    if (!command || command->options.mpirun) return command;
    const std::vector<std::string>& program = command->options.program;
    if (std::ranges::adjacent_find(program, is_next_program) != program.end())
        command->warnings.push_back(
            fmt::format("':' and what follows it are arguments of {}: dtrun starts one program on "
                        "all ranks; for several, start a script that chooses by $RANK",
                        program.front()));
    return command;
}

Result<CommandLine> parse_join(Words words, plan::EnvironmentView environment) {
    std::string address;
    if (!words.empty() && !is_option(words[0])) {
        address = words[0];
        words = words.subspan(1);
    }
    constexpr string_view kUsage =
        "usage: dtrun join [HOST[:PORT]] --job NAME [options] [--] [VAR=VALUE...] program "
        "[args...]";
    auto draft = RunReader(words, join_flags(), kUsage).read();
    if (!draft) return std::unexpected(draft.error());
    if (draft->kind != CommandLine::Kind::run) return text_command(draft->kind, join_help);
    if (const auto done = add_start_timeout(draft->options, environment); !done)
        return std::unexpected(done.error());
    plan::JoinOptions& join = draft->join;
    if (join.ranks_max && join.ranks_max < join.ranks_min.value_or(1))
        return fail(Errc::invalid_input, "--max-np {} is less than --min-np {}", *join.ranks_max,
                    join.ranks_min.value_or(1));
    if (join.ranks_max && !join.ranks_min)
        return fail(Errc::invalid_input, "--max-np needs --min-np");
    join.daemon = draft->daemon;
    join.daemon.address = address;
    CommandLine command;
    command.options = std::move(draft->options);
    command.options.encrypt = join.daemon.encrypt;
    command.options.join = std::move(join);
    return command;
}

Result<CommandLine> parse_serve(Words words, plan::EnvironmentView) {
    Draft draft;
    OptionReader options(words, serve_flags());
    if (const auto done = options.read(draft); !done) return std::unexpected(done.error());
    if (draft.kind != CommandLine::Kind::run) return text_command(draft.kind, serve_help);
    if (options.at() < words.size())
        return fail(Errc::invalid_input, "'{}': dtrun serve takes options only",
                    words[options.at()]);
    CommandLine command;
    command.kind = CommandLine::Kind::serve;
    command.serve = std::move(draft.serve);
    command.serve.daemon = std::move(draft.daemon);
    return command;
}

struct StoreVerb {
    string_view name;
    StoreCommand::Verb verb;
    string_view operands;
    std::size_t min, max;
};
constexpr StoreVerb kStoreVerbs[] = {
    {"get", StoreCommand::Verb::get, "KEY", 1, 1},
    {"set", StoreCommand::Verb::set, "KEY VALUE|-", 2, 2},
    {"add", StoreCommand::Verb::add, "KEY NUMBER", 2, 2},
    {"wait", StoreCommand::Verb::wait, "KEY...", 1, 10'000},
    {"watch", StoreCommand::Verb::watch, "KEY", 1, 1},
    {"ls", StoreCommand::Verb::list, "[PREFIX]", 0, 1},
    {"rm", StoreCommand::Verb::erase, "KEY", 1, 1},
};

/// Options and operands in any order, but for operands that begin with a dash: these stand behind
/// "--".
Result<CommandLine> parse_store_words(Words words, const Flags& flags, std::string (*help)(),
                                      const StoreVerb& verb) {
    Draft draft;
    while (!words.empty()) {
        OptionReader options(words, flags);
        if (const auto done = options.read(draft); !done) return std::unexpected(done.error());
        if (draft.kind != CommandLine::Kind::run) return text_command(draft.kind, help);
        words = words.subspan(options.at());
        while (!words.empty() && (options.ended() || !is_option(words[0]))) {
            draft.store.operands.push_back(words[0]);
            words = words.subspan(1);
        }
    }
    const std::size_t count = draft.store.operands.size();
    if (count < verb.min || count > verb.max)
        return fail(Errc::invalid_input, "usage: dtrun {}{} [options] {}",
                    verb.verb == StoreCommand::Verb::status ? "" : "store ", verb.name,
                    verb.operands);
    CommandLine command;
    command.kind = CommandLine::Kind::store;
    command.store = std::move(draft.store);
    command.store.verb = verb.verb;
    command.store.daemon = std::move(draft.daemon);
    return command;
}

Result<CommandLine> parse_store(Words words, plan::EnvironmentView) {
    if (words.empty() || words[0] == "--help" || words[0] == "-h") {
        if (words.empty())
            return fail(Errc::invalid_input,
                        "dtrun store what? get, set, add, wait, watch, ls or rm");
        return text_command(CommandLine::Kind::help, store_help);
    }
    const auto verb = std::ranges::find(kStoreVerbs, words[0], &StoreVerb::name);
    if (verb == std::end(kStoreVerbs))
        return fail(Errc::invalid_input,
                    "'{}' is none of get, set, add, wait, watch, ls and rm; see dtrun store --help",
                    words[0]);
    return parse_store_words(words.subspan(1), store_flags(), store_help, *verb);
}

Result<CommandLine> parse_status(Words words, plan::EnvironmentView) {
    constexpr StoreVerb kStatus{"status", StoreCommand::Verb::status, "[HOST[:PORT]]", 0, 1};
    auto command = parse_store_words(words, status_flags(), status_help, kStatus);
    if (command && !command->store.operands.empty())
        command->store.daemon.address = std::exchange(command->store.operands, {}).front();
    return command;
}

Result<CommandLine> parse_hosts_command(Words words, plan::EnvironmentView) {
    Draft draft;
    OptionReader options(words, hosts_flags());
    if (const auto done = options.read(draft); !done) return std::unexpected(done.error());
    if (draft.kind != CommandLine::Kind::run) return text_command(draft.kind, hosts_help);
    if (options.at() < words.size())
        return fail(Errc::invalid_input, "'{}' is no option; usage: dtrun hosts [options]",
                    words[options.at()]);
    CommandLine command;
    command.kind = CommandLine::Kind::hosts;
    command.hosts = std::move(draft.hosts);
    const auto given = [](const std::string& text) { return text.empty() ? 0 : 1; };
    const HostsCommand& asked = command.hosts;
    if (given(asked.hosts) + given(asked.hostfile) + given(asked.nodelist) > 1)
        return fail(Errc::invalid_input,
                    "-H, --hostfile and --nodelist exclude each other; give one of them");
    if (given(asked.include) + given(asked.exclude) > 1)
        return fail(Errc::invalid_input,
                    "--include and --exclude exclude each other; give one of them");
    return command;
}

Result<CommandLine> parse_contracts(Words words, plan::EnvironmentView) {
    const bool help = !words.empty() && (words[0] == "--help" || words[0] == "-h");
    if (words.size() > 1) return fail(Errc::invalid_input, "usage: dtrun contracts [NAME]");
    auto text = commands::contracts_text(words.empty() || help ? "" : words[0]);
    if (!text) return std::unexpected(text.error());
    CommandLine command;
    command.kind = CommandLine::Kind::help;
    command.text = std::move(*text);
    return command;
}

std::string contracts_help() {
    return commands::contracts_text("").value_or("");
}

struct SubCommand {
    string_view name;
    Result<CommandLine> (*parse)(Words words, plan::EnvironmentView environment);
    std::string (*help)();
};

Result<CommandLine> parse_help(Words words, plan::EnvironmentView environment);

constexpr SubCommand kSubCommands[] = {
    {"run", parse_run, run_help},
    {"join", parse_join, join_help},
    {"serve", parse_serve, serve_help},
    {"store", parse_store, store_help},
    {"status", parse_status, status_help},
    {"hosts", parse_hosts_command, hosts_help},
    {"bench", lab::parse_bench, lab::bench_help},
    {"torchrun", fronts::parse_torchrun, fronts::torchrun_help},
    {"deepspeed", fronts::parse_deepspeed, fronts::deepspeed_help},
    {"contracts", parse_contracts, contracts_help},
    {"help", parse_help, run_help},
    {"environment", nullptr, plan::environment_help},
    {"man", nullptr, man_page},
};

Result<CommandLine> parse_help(Words words, plan::EnvironmentView) {
    if (words.empty()) return text_command(CommandLine::Kind::help, run_help);
    const auto found = std::ranges::find(kSubCommands, words[0], &SubCommand::name);
    if (found != std::end(kSubCommands)) return text_command(CommandLine::Kind::help, found->help);
    std::vector<std::string> names;
    for (const SubCommand& command : kSubCommands) names.emplace_back(command.name);
    return fail(Errc::invalid_input, "no help on '{}'; there is help on {}", words[0],
                join_names(names, names.size()));
}

}  // namespace

CommandLine text_command(CommandLine::Kind kind, std::string (*help)()) {
    CommandLine command;
    command.kind = kind;
    command.text = kind == CommandLine::Kind::help      ? help()
                   : kind == CommandLine::Kind::version ? version_text()
                                                        : check_build_text();
    return command;
}

void set_master(plan::Options& options, const std::string& address, std::optional<int> port) {
    if (!address.empty()) options.assignments.emplace_back("MASTER_ADDR", address);
    if (port) options.assignments.emplace_back("MASTER_PORT", fmt::format("{}", *port));
    if (!address.empty() || port) options.torch_store = TorchStore::rank0;
}

Result<CommandLine> finish_run(Draft draft, plan::EnvironmentView environment) {
    if (const auto done = check_conflicts(draft); !done) return std::unexpected(done.error());
    if (const auto done = add_config_file(draft); !done) return std::unexpected(done.error());
    follow_controller(draft, environment);
    if (const auto done = check_mpi(draft); !done) return std::unexpected(done.error());
    if (const auto done = add_start_timeout(draft.options, environment); !done)
        return std::unexpected(done.error());
    CommandLine command;
    add_tuning_env(draft, environment, command);
    command.options = std::move(draft.options);
    return command;
}

std::string python_command(plan::EnvironmentView environment) {
    const string_view path = plan::find_variable(environment, "PATH").value_or("");
    for (const char* const name : {"python3", "python"})
        for (const string_view folder : split(path, ':'))
            if (!folder.empty() && ::access((std::string(folder) + "/" + name).c_str(), X_OK) == 0)
                return name;
    return "python3";
}

Result<CommandLine> parse_command_line(const std::vector<std::string>& args,
                                       plan::EnvironmentView environment) {
    const Words words(args);
    for (const SubCommand& candidate : kSubCommands)
        if (!words.empty() && words[0] == candidate.name && candidate.parse != nullptr)
            return candidate.parse(words.subspan(1), environment);
    return parse_run(words, environment);
}

}  // namespace dtrun::cli
