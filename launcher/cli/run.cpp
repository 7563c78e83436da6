#include "launcher/cli/run.h"

#include "base/fd.h"
#include "base/strings.h"
#include "contracts/table.h"
#include "launcher/cli/elastic_rows.h"
#include "launcher/cli/horovod_config.h"
#include "launcher/cli/look_rows.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <iterator>

namespace dtrun::cli {

namespace {

using std::string_view;

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

/// Refuses `-H a:1 b:1 prog`, of which the second host would be taken for the program.
Result<void> check_hosts_apart(const RunDraft& draft, Words words) {
    if (draft.options.hosts.empty() || words.empty() || !looks_like_host_slots(words[0])) return {};
    std::string joined(draft.options.hosts);
    for (const std::string& word : words) {
        if (!looks_like_host_slots(word)) break;
        if (!joined.ends_with(',')) joined += ',';
        joined += word;
    }
    while (joined.ends_with(',')) joined.pop_back();
    return fail(Errc::invalid_input,
                "'{}' is a host, not a program: -H takes one word without blanks; write -H {}",
                words[0], joined);
}

/// VAR=VALUE words. \return how many there are
Result<std::size_t> read_assignments(RunDraft& draft, const Rest& rest) {
    std::size_t count = 0;
    for (const string_view word : rest.words) {
        if (is_option(word) && !rest.ended)
            return fail(Errc::invalid_input,
                        "{} stands after {}=...; options go before, and -- before a program that "
                        "begins with a dash",
                        word, draft.options.assignments.back().first);
        const std::size_t equals = word.find('=');
        const string_view name = word.substr(0, equals);
        if (equals == string_view::npos || !plan::is_variable_name(name)) break;
        if (const auto settable = plan::check_settable(name); !settable)
            return fail(settable.error(), "{}=...", name);
        draft.options.assignments.emplace_back(name, word.substr(equals + 1));
        ++count;
    }
    return count;
}

Result<void> add_config_file(RunDraft& draft) {
    if (draft.config_file.empty()) return {};
    const auto text = read_file(draft.config_file);
    if (!text) return fail(text.error(), "--config-file");
    auto values = parse_horovod_config(*text, draft.config_file);
    if (!values) return std::unexpected(values.error());
    draft.tuning.merge(*values);  // keeps what flags said
    return {};
}

/// The variables that the user sets win, so the operations on CPUs have to follow them.
void follow_controller(RunDraft& draft, plan::EnvironmentView environment) {
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

/// Fails if MPI is wanted that nobody offers.
Result<void> check_mpi(const RunDraft& draft) {
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

void add_tuning_env(RunDraft& draft, plan::EnvironmentView environment, RunCommand& command) {
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

/// Fails for flags that contradict --mpi: with `mpirun` those that only dtrun's own agents can
/// honour, else those that are mpirun's.
Result<void> check_mpirun(const RunDraft& draft) {
    const plan::Options& options = draft.options;
    if (!options.mpirun) {
        if (options.mpi_args.empty() && options.binding_args.empty()) return {};
        return fail(Errc::invalid_input,
                    "{} is for mpirun, which dtrun runs with --mpi mpirun only; leave it out, or "
                    "give settings as variables, such as -x OMPI_MCA_btl=tcp,self",
                    options.mpi_args.empty() ? "--binding-args" : "--mpi-args");
    }
    const std::span<const Flag> flags = run_flags().flags();
    std::vector<std::string> refused;
    for (std::size_t row = 0; row < flags.size(); ++row)
        if (flags[row].needs_agents &&
            std::ranges::find(draft.given, row, &GivenFlag::row) != draft.given.end())
            refused.emplace_back(flags[row].first_name());
    if (!refused.empty())
        return fail(Errc::invalid_input,
                    "--mpi mpirun: no agent of dtrun is on the hosts, which {} would need; leave "
                    "{} out, or let dtrun start the ranks (--mpi auto)",
                    join_names(refused, refused.size()), refused.size() == 1 ? "it" : "them");
    if (!options.binding_args.empty() && options.map_by != MapBy::slot)
        return fail(Errc::invalid_input,
                    "--binding-args takes the place of --map-by node; write the mapping there too");
    return {};
}

/// As in `a : -np 1 b`, by which mpirun starts another program on the next ranks.
bool is_next_program(const std::string& word, const std::string& next) {
    constexpr string_view kRanks[] = {"-np", "--np", "-n", "-c"};
    return word == ":" && std::ranges::find(kRanks, next) != std::end(kRanks);
}

}  // namespace

Result<void> add_start_timeout(plan::Options& options, plan::EnvironmentView environment) {
    constexpr string_view kName = "HOROVOD_START_TIMEOUT";
    const auto text = plan::find_variable(environment, kName);
    if (options.start_timeout || !text || text->empty()) return {};
    const auto time = parse_seconds(*text, kTimeoutMin, kTimeoutMax);
    if (!time) return fail(time.error(), "{} (in the environment)", kName);
    options.start_timeout = *time;
    return {};
}

Result<void> read_program(RunDraft& draft, const Rest& rest, string_view usage) {
    if (!rest.ended)
        if (const auto done = check_hosts_apart(draft, rest.words); !done) return done;
    const auto count = read_assignments(draft, rest);
    if (!count) return std::unexpected(count.error());
    const Words program = rest.words.subspan(*count);
    if (program.empty())
        return fail(Errc::invalid_input, "no program to run; {} (dtrun --help tells more)", usage);
    draft.options.program.assign(program.begin(), program.end());
    return {};
}

void set_master(plan::Options& options, const std::string& address, std::optional<int> port) {
    if (!address.empty()) options.assignments.emplace_back("MASTER_ADDR", address);
    if (port) options.assignments.emplace_back("MASTER_PORT", fmt::format("{}", *port));
    if (!address.empty() || port) options.torch_store = TorchStore::rank0;
}

Result<RunCommand> finish_run(RunDraft draft, plan::EnvironmentView environment) {
    if (draft.options.keep_going && draft.options.max_restarts > 0)
        return fail(Errc::invalid_input,
                    "--keep-going and --max-restarts exclude each other; give one of them");
    if (const auto done = add_config_file(draft); !done) return std::unexpected(done.error());
    follow_controller(draft, environment);
    if (const auto done = check_mpi(draft); !done) return std::unexpected(done.error());
    if (const auto done = check_looks(draft.options); !done) return std::unexpected(done.error());
    if (const auto done = add_start_timeout(draft.options, environment); !done)
        return std::unexpected(done.error());
    RunCommand command;
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

Result<RunCommand> parse_run(Words words, plan::EnvironmentView environment) {
    RunDraft draft;
    const auto rest = read_options(run_flags(), words, draft);
    if (!rest) return std::unexpected(rest.error());
    if (draft.asked != Ask::nothing) return RunCommand{.asked = draft.asked};
    if (const auto done = read_program(draft, *rest, usage_line()); !done)
        return std::unexpected(done.error());
    if (const auto done = check_mpirun(draft); !done) return std::unexpected(done.error());
    if (const auto done = add_elastic(draft, environment); !done)
        return std::unexpected(done.error());
    auto command = finish_run(std::move(draft), environment);
    if (!command || command->options.mpirun) return command;
    const std::vector<std::string>& program = command->options.program;
    if (std::ranges::adjacent_find(program, is_next_program) != program.end())
        command->warnings.push_back(
            fmt::format("':' and what follows it are arguments of {}: dtrun starts one program on "
                        "all ranks; for several, start a script that chooses by $RANK",
                        program.front()));
    return command;
}

}  // namespace dtrun::cli
