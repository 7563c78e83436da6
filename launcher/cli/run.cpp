#include "launcher/cli/run.h"

#include "base/fd.h"
#include "base/look_alike.h"
#include "base/process/command_output.h"
#include "base/strings.h"
#include "contracts/table.h"
#include "launcher/cli/binding_rows.h"
#include "launcher/cli/defaults.h"
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
Result<void> check_hosts_apart(const ParsedRun& parsed, Words words) {
    if (parsed.options.hosts.empty() || words.empty() || !looks_like_host_slots(words[0]))
        return {};
    std::string joined(parsed.options.hosts);
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

constexpr string_view kWindowsScript =
    "a script with lines of Windows? Convert it: sed -i 's/\\r$//' FILE";

/// What nobody means as the name of a program.
Result<void> check_program_word(string_view word) {
    if (word.empty()) return fail(Errc::invalid_input, "the program's name is empty");
    if (word.ends_with('\r') && ::access(std::string(word).c_str(), F_OK) != 0)
        return fail(Errc::invalid_input, "the program's name ends with a carriage return: {}",
                    kWindowsScript);
    if (trim(word).empty())
        return fail(
            Errc::invalid_input,
            "the program's name is a blank: delete those behind the '\\' at the end of a line");
    // A file may have such a name; but nobody means it who has copied a command from a page.
    if (const auto found = find_look_alike(word);
        found && (found->plain == ' ' || found->plain == '=' || found->plain == '\0') &&
        ::access(std::string(word).c_str(), F_OK) != 0)
        return fail(Errc::invalid_input, "'{}' is taken for the program: {}", word,
                    look_alike_hint(word));
    for (const string_view quote : {"\u201c", "\u201d", "\u2018", "\u2019"})
        if (word.starts_with(quote))
            return fail(Errc::invalid_input,
                        "'{}' begins with a quote that a web page or a word processor has made: "
                        "write \" or '",
                        word);
    if (word == "cd")
        return fail(Errc::invalid_input,
                    "cd is a word of the shell: write --wdir DIR before the program");
    constexpr string_view kOfShells[] = {"export", "source", ".",    "ulimit", "umask", "set",
                                         "unset",  "alias",  "exec", "eval",   "module"};
    if (std::ranges::find(kOfShells, word) == std::end(kOfShells)) return {};
    // Debian's sh has no `source`; `module` is a function that only log-in shells have.
    const string_view shell = word == "source"   ? "bash -c"
                              : word == "module" ? "bash -lc"
                                                 : "sh -c";
    return fail(Errc::invalid_input, "{} is a word of the shell: write {} '{} ...; exec PROGRAM'",
                word, shell, word);
}

/// Whether a word looks like one more host beside `hosts`: it has slots, or the same letters before a number.
bool looks_like_host(string_view word, string_view hosts) {
    const auto stem = [](string_view name) {
        return name.substr(0, name.find_first_of("0123456789:"));
    };
    const string_view of_word = stem(word);
    return !of_word.empty() && of_word != word &&
           (word.find(':') != string_view::npos || of_word == stem(hosts));
}

/// Refuses `--hosts s1 s2 -np 2 prog`, of which the second host would be taken for the program.
Result<void> check_options_behind(const ParsedRun& parsed, Words words,
                                  plan::EnvironmentView environment) {
    const std::string& hosts = parsed.options.hosts;
    const bool ends_with_host = !hosts.empty() && hosts.find(',') == std::string::npos &&
                                !parsed.given.empty() && parsed.given.back().value == hosts;
    if (!ends_with_host || words.size() < 2 || (words[1] != "-np" && words[1] != "-n")) return {};
    if (!looks_like_host(words[0], hosts) || words[0].find('/') != std::string::npos ||
        plan::is_on_path(words[0], environment))
        return {};
    return fail(Errc::invalid_input,
                "'{}' is taken for the program, and {} for its argument: -H takes one word without "
                "blanks; write -H {},{}",
                words[0], words[1], hosts, words[0]);
}

/// VAR=VALUE words. \return how many there are
Result<std::size_t> read_assignments(ParsedRun& parsed, const Rest& rest) {
    std::size_t count = 0;
    for (const string_view word : rest.words) {
        if (is_option(word) && !rest.ended)
            return fail(Errc::invalid_input,
                        "{} stands after {}=...; options go before, and -- before a program that "
                        "begins with a dash",
                        word, parsed.options.assignments.back().first);
        const std::size_t equals = word.find('=');
        const string_view name = word.substr(0, equals);
        if (equals == string_view::npos || !plan::is_variable_name(name)) break;
        if (const auto settable = plan::check_settable(name); !settable)
            return fail(settable.error(), "{}=...", name);
        parsed.options.assignments.emplace_back(name, word.substr(equals + 1));
        ++count;
    }
    return count;
}

Result<void> add_config_file(ParsedRun& parsed) {
    if (parsed.config_file.empty()) return {};
    const auto text = read_file(parsed.config_file);
    if (!text) return fail(text.error(), "--config-file");
    auto values = parse_horovod_config(*text, parsed.config_file);
    if (!values) return std::unexpected(values.error());
    parsed.tuning.merge(*values);  // keeps what flags said
    return {};
}

/// The variables that the user sets win, so the operations on CPUs have to follow them.
void follow_controller(ParsedRun& parsed, plan::EnvironmentView environment) {
    const auto controller = parsed.tuning.find(kHorovodController);
    if (controller == parsed.tuning.end()) return;
    const auto take = [&entry = controller->second](string_view value) {
        if (value == "gloo" || value == "mpi") entry = value;
    };
    for (const string_view word : parsed.options.export_vars) {
        const std::size_t equals = word.find('=');
        if (word.substr(0, equals) != kHorovodController) continue;
        take(equals == string_view::npos ? plan::find_variable(environment, word).value_or("")
                                         : word.substr(equals + 1));
    }
    for (const auto& [name, value] : parsed.options.assignments)
        if (name == kHorovodController) take(value);
}

/// Fails if MPI is wanted that nobody offers.
Result<void> check_mpi(const ParsedRun& parsed) {
    const plan::Options& options = parsed.options;
    if (options.mpirun) return {};
    const auto controller = parsed.tuning.find(kHorovodController);
    const bool for_horovod = controller != parsed.tuning.end() && controller->second == "mpi";
    if (for_horovod && options.mpi == MpiMode::none)
        return fail(Errc::invalid_input,
                    "MPI is Horovod's controller (--mpi without a word, or 'controller: mpi' in "
                    "--config-file), but --mpi none offers none; leave one of them out");
    if (!for_horovod && !parsed.mpi_asked) return {};
    const auto contracts = contracts::effective_contracts(options.contracts);
    if (!contracts) return std::unexpected(contracts.error());
    if (std::ranges::find(*contracts, "mpi") == contracts->end())
        return fail(Errc::invalid_input,
                    "--contract {} leaves out mpi, without which no rank finds MPI; add "
                    "--contract mpi",
                    fmt::join(options.contracts, ","));
    return {};
}

void add_tuning_env(ParsedRun& parsed, plan::EnvironmentView environment, RunCommand& command) {
    HorovodEnvironment horovod = horovod_environment(parsed.tuning);
    // A caller may have Horovod's oneCCL for the operations under either controller.
    if (!parsed.options.no_env && plan::find_variable(environment, kHorovodCpuOperations))
        std::erase_if(horovod.variables, [](const plan::Options::Variable& variable) {
            return variable.first == kHorovodCpuOperations;
        });
    std::ranges::move(horovod.warnings, std::back_inserter(command.warnings));
    std::vector<plan::Options::Variable>& variables = parsed.options.tuning_env;
    std::ranges::move(horovod.variables, std::back_inserter(variables));
    if (parsed.tcp) variables.emplace_back("NCCL_IB_DISABLE", "1");
    const std::vector<std::string>& interfaces = parsed.options.network_interfaces;
    if (interfaces.empty()) return;
    const std::string all = fmt::format("{}", fmt::join(interfaces, ","));
    variables.emplace_back("NCCL_SOCKET_IFNAME", all);
    variables.emplace_back("GLOO_SOCKET_IFNAME", all);
    variables.emplace_back("HOROVOD_GLOO_IFACE", interfaces.front());
}

/// Fails for flags that contradict --mpi: with `mpirun` those that only dtrun's own agents can
/// honour, else those that are mpirun's.
Result<void> check_mpirun(const ParsedRun& parsed) {
    const plan::Options& options = parsed.options;
    if (!options.mpirun) {
        if (options.mpi_args.empty()) return {};
        return fail(
            Errc::invalid_input,
            "--mpi-args is for mpirun, which dtrun runs with --mpi mpirun only; leave it out, "
            "or give settings as variables, such as -x OMPI_MCA_btl=tcp,self");
    }
    const std::span<const Flag> flags = run_flags().flags();
    std::vector<std::string> refused;
    for (std::size_t row = 0; row < flags.size(); ++row)
        if (flags[row].needs_agents &&
            std::ranges::find(parsed.given, row, &GivenFlag::row) != parsed.given.end())
            refused.emplace_back(flags[row].first_name());
    if (!refused.empty())
        return fail(Errc::invalid_input,
                    "--mpi mpirun: no agent of dtrun is on the hosts, which {} would need; leave "
                    "{} out, or let dtrun start the ranks (--mpi auto)",
                    join_names(refused, refused.size()), refused.size() == 1 ? "it" : "them");
    const bool is_mapped = options.map_by != MapBy::slot || options.binding.by != MapWithin::slot;
    if (!options.binding_args.empty() && is_mapped)
        return fail(Errc::invalid_input,
                    "--binding-args takes the place of --map-by; write the mapping there too");
    return {};
}

/// Where the next program begins: at the ':' before it; words.size() if there is none.
std::size_t end_of_program(Words words, NextProgram next) {
    constexpr string_view kOfProgram[] = {"-np", "--np",    "-n",     "-c",
                                          "-H",  "--hosts", "--host", "-host"};
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] != ":") continue;
        const bool has_options =
            i + 1 < words.size() &&
            std::ranges::any_of(kOfProgram, [&](string_view name) { return words[i + 1] == name; });
        if (next == NextProgram::always || has_options) return i;
    }
    return words.size();
}

/// The program behind a ':', with its own options.
Result<plan::ProgramPart> read_part(Words words, const RunDialect& dialect) {
    ParsedRun parsed;
    const auto rest = read_options(dialect.flags, words, parsed);
    if (!rest) return std::unexpected(rest.error());
    for (const GivenFlag& given : parsed.given)
        if (!dialect.flags.flags()[given.row].of_program)
            return fail(
                Errc::invalid_input,
                "{} stands behind a ':', where only -np, -H, -x and --wdir may stand; it is of "
                "the whole job, so write it before the first program",
                given.name);
    if (const auto done = read_program(parsed, *rest, dialect.usage); !done)
        return std::unexpected(done.error());
    plan::Options& options = parsed.options;
    return plan::ProgramPart{std::move(options.program),     options.world_size,
                             std::move(options.hosts),       std::move(options.wdir),
                             std::move(options.export_vars), std::move(options.assignments)};
}

/// Fails for what a job of several programs cannot have.
Result<void> check_parts(const ParsedRun& parsed) {
    const plan::Options& options = parsed.options;
    const auto& parts = options.parts;
    for (const plan::ProgramPart& part : parts)
        if (!part.ranks)
            return fail(Errc::invalid_input,
                        "{}: of several programs each needs its number of ranks: -np N before it",
                        part.argv.front());
    const auto has_hosts = [](const plan::ProgramPart& part) { return !part.hosts.empty(); };
    if (std::any_of(parts.begin() + 1, parts.end(), has_hosts) &&
        (!std::ranges::all_of(parts, has_hosts) || !options.hostfile.empty()))
        return fail(
            Errc::invalid_input,
            "-H behind a ':': give -H to every program, or one -H or --hostfile for all before "
            "the first");
    const bool filtered = !options.include.empty() || !options.exclude.empty() ||
                          options.shape.any() || !options.rankfile.empty();
    if (has_hosts(parts.back()) && filtered)
        return fail(Errc::invalid_input,
                    "each program has hosts of its own here, to which --include, --exclude, -N and "
                    "--rankfile cannot apply; leave them out");
    if (parsed.elastic.ranks_min || !parsed.elastic.discovery_script.empty())
        return fail(
            Errc::invalid_input,
            "--min-np: an elastic job has one program; start a script that chooses by $RANK");
    if (!options.mpirun) return {};
    return fail(Errc::invalid_input,
                "--mpi mpirun: dtrun starts several programs by itself; leave it out");
}

/// Reads the program, or several that stand behind each other: `a : -np 1 b`.
Result<void> read_programs(ParsedRun& parsed, const Rest& rest, const RunDialect& dialect) {
    const std::size_t end = end_of_program(rest.words, dialect.next_program);
    if (const auto done = read_program(parsed, {rest.words.first(end), rest.ended}, dialect.usage);
        !done)
        return done;
    if (end == rest.words.size()) return {};
    plan::Options& options = parsed.options;
    options.parts.push_back({.argv = options.program,
                             .ranks = options.world_size,
                             .hosts = options.hosts,
                             .assignments = std::exchange(options.assignments, {})});
    for (Words left = rest.words.subspan(end); !left.empty();) {
        left = left.subspan(1);  // the ':'
        const std::size_t length = end_of_program(left, dialect.next_program);
        auto part = read_part(left.first(length), dialect);
        if (!part) return std::unexpected(part.error());
        options.parts.push_back(std::move(*part));
        left = left.subspan(length);
    }
    if (const auto done = check_parts(parsed); !done) return done;
    long long ranks = 0;
    for (const plan::ProgramPart& part : options.parts) ranks += *part.ranks;
    if (ranks > kRanksMax)
        return fail(Errc::invalid_input, "{} ranks; a job has 1 to {}", ranks, kRanksMax);
    options.world_size = static_cast<int>(ranks);
    return {};
}

/// Fails for a word about restarts in a job that has none.
Result<void> check_restarts(const plan::Options& options) {
    const std::chrono::milliseconds none{0};
    if (options.elastic && options.min_uptime > none)
        return fail(Errc::invalid_input,
                    "--min-uptime is for jobs with --max-restarts; an elastic job has "
                    "--rank-failure-limit");
    if (options.elastic || options.max_restarts > 0) return {};
    if (options.min_uptime == none && options.restart_delay == none) return {};
    return fail(Errc::invalid_input, "{} says when ranks start again; add --max-restarts N",
                options.min_uptime > none ? "--min-uptime" : "--restart-delay");
}

/// mpirun goes on without a variable that it is to pass on and that is not set; so scripts for all machines have
/// `-x LD_LIBRARY_PATH`.
void leave_out_unset(std::vector<std::string>& exported, plan::EnvironmentView environment,
                     std::vector<std::string>& notes) {
    std::erase_if(exported, [&](const std::string& word) {
        const bool is_unset =
            word.find('=') == std::string::npos && !plan::find_variable(environment, word);
        if (!is_unset) return false;
        std::string note = fmt::format("{} is not set here, so it is not passed on", word);
        if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
        return true;
    });
}

/// "--mpi foo prog", where the word behind a flag that needs none is taken for the program.
void note_on_choice(ParsedRun& parsed, std::span<const Flag> flags,
                    plan::EnvironmentView environment) {
    if (parsed.given.empty() || !parsed.options.assignments.empty()) return;
    const GivenFlag& last = parsed.given.back();
    const std::string& program = parsed.options.program.front();
    const bool may_be_value = flags[last.row].value() == Flag::Value::choice &&
                              last.value.empty() && program.find('/') == std::string::npos;
    if (may_be_value && !plan::is_on_path(program, environment))
        parsed.options.notes.push_back(
            fmt::format("'{}' is taken for the program: {} alone is right, and its words are {}",
                        program, last.name, flags[last.row].metavar));
}

/// Whoever names hosts twice may expect them to add up, as with Open MPI's mpirun.
void warn_of_hosts(ParsedRun& parsed, std::span<const Flag> flags) {
    std::vector<const GivenFlag*> all;
    for (const GivenFlag& given : parsed.given)
        if (flags[given.row].first_name() == "-H") all.push_back(&given);
    if (all.empty()) return;
    const GivenFlag& last = *all.back();
    std::string dropped;
    for (const GivenFlag* given : all)
        if (given->value != last.value)
            dropped +=
                fmt::format("{}{} {}", dropped.empty() ? "" : ", ", given->name, given->value);
    if (!dropped.empty())
        parsed.warnings.push_back(
            fmt::format("{} {} counts, and not {} before it", last.name, last.value, dropped));
}

/// A command in quotes, which would be looked for as one program; horovodrun gives it to a shell.
Result<void> check_shell_line(const plan::Options& options, plan::EnvironmentView environment) {
    const std::string& word = options.program.front();
    const std::string first = word.substr(0, word.find_first_of(" ;|&<>"));
    const bool begins_with_program = first.find('/') == std::string::npos
                                         ? plan::is_on_path(first, environment)
                                         : ::access(first.c_str(), X_OK) == 0;
    const bool is_line = options.program.size() == 1 && first.size() < word.size() &&
                         (word.find('/') == std::string::npos || begins_with_program);
    if (!is_line || ::access(word.c_str(), F_OK) == 0) return {};
    if (word.find_first_of(";|&<>$*\"'\\") == std::string::npos)
        return fail(Errc::invalid_input, "{} is one word for dtrun: write it without the quotes",
                    shell_quote(word));
    return fail(Errc::invalid_input, "{} is a line for a shell, not a program: write sh -c {}",
                shell_quote(word), shell_quote(word));
}

/// What a program gets that nobody means, who has copied a command or a script.
void note_arguments(Words program, std::vector<std::string>& notes) {
    for (const std::string& word : program) {
        const string_view name = string_view(word).substr(0, word.find('='));
        if (behind_long_dash(word))
            notes.push_back(
                fmt::format("'{}', which the program gets, begins with a long dash of "
                            "a web page or a word processor",
                            word));
        else if (word.ends_with('\r') && &word != &program.front())
            notes.push_back(
                fmt::format("'{}', which the program gets, ends with a carriage return: {}",
                            trim(word), kWindowsScript));
        else if (is_option(word) && find_look_alike(name))
            notes.push_back(
                fmt::format("'{}', which the program gets: {}", word, look_alike_hint(name)));
    }
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

Result<void> read_program(ParsedRun& parsed, const Rest& rest, string_view usage) {
    if (!rest.ended)
        if (const auto done = check_hosts_apart(parsed, rest.words); !done) return done;
    const auto count = read_assignments(parsed, rest);
    if (!count) return std::unexpected(count.error());
    const Words program = rest.words.subspan(*count);
    const auto takes_word = [](const GivenFlag& given) {
        return !given.value.empty() && !to_int(given.value, 0, INT64_MAX);
    };
    if (program.empty() && rest.words.empty() && !parsed.given.empty() &&
        takes_word(parsed.given.back()))
        return fail(Errc::invalid_input, "no program to run behind {} {}; {}",
                    parsed.given.back().name, parsed.given.back().value, usage);
    if (program.empty())
        return fail(Errc::invalid_input, "no program to run; {} (dtrun --help tells more)", usage);
    if (const auto done = check_program_word(program.front()); !done) return done;
    parsed.options.program.assign(program.begin(), program.end());
    return {};
}

void set_master(plan::Options& options, const std::string& address, std::optional<int> port) {
    if (!address.empty()) options.assignments.emplace_back("MASTER_ADDR", address);
    if (port) options.assignments.emplace_back("MASTER_PORT", fmt::format("{}", *port));
    if (!address.empty() || port) options.torch_store = TorchStore::rank0;
}

Result<RunCommand> finish_run(ParsedRun parsed, plan::EnvironmentView environment) {
    if (parsed.options.keep_going && parsed.options.max_restarts > 0)
        return fail(Errc::invalid_input,
                    "--keep-going and --max-restarts exclude each other; give one of them");
    if (const auto done = check_restarts(parsed.options); !done)
        return std::unexpected(done.error());
    if (const auto done = add_config_file(parsed); !done) return std::unexpected(done.error());
    follow_controller(parsed, environment);
    if (const auto done = check_mpi(parsed); !done) return std::unexpected(done.error());
    if (const auto done = check_looks(parsed.options); !done) return std::unexpected(done.error());
    if (const auto done = add_start_timeout(parsed.options, environment); !done)
        return std::unexpected(done.error());
    if (!parsed.options.mpirun) {
        if (const auto done = read_binding_args(parsed.options); !done)
            return std::unexpected(done.error());
        if (const auto done = follow_rsh_words(parsed.rsh, parsed.options); !done)
            return std::unexpected(done.error());
    }
    RunCommand command{.warnings = std::move(parsed.warnings)};
    if (parsed.options.parts.empty()) note_arguments(parsed.options.program, command.warnings);
    for (const plan::ProgramPart& part : parsed.options.parts)
        note_arguments(part.argv, command.warnings);
    add_tuning_env(parsed, environment, command);
    command.options = std::move(parsed.options);
    return command;
}

std::string python_command(plan::EnvironmentView environment) {
    const bool has_only_python =
        !plan::is_on_path("python3", environment) && plan::is_on_path("python", environment);
    return has_only_python ? "python" : "python3";
}

Result<RunCommand> parse_dialect(Words words, plan::EnvironmentView environment,
                                 const RunDialect& dialect) {
    ParsedRun parsed;
    const auto all = with_defaults(words, dialect.flags, run_flags().flags(), environment);
    if (!all) return std::unexpected(all.error());
    const auto rest = read_options(dialect.flags, *all, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked != Ask::nothing) return RunCommand{.asked = parsed.asked};
    warn_of_hosts(parsed, dialect.flags.flags());
    if (!rest->ended)
        if (const auto done = check_options_behind(parsed, rest->words, environment); !done)
            return std::unexpected(done.error());
    if (dialect.follow_variables != nullptr) dialect.follow_variables(parsed, environment);
    if (const auto done = read_programs(parsed, *rest, dialect); !done)
        return std::unexpected(done.error());
    if (dialect.takes_unset) {
        plan::Options& options = parsed.options;
        leave_out_unset(options.export_vars, environment, options.notes);
        for (plan::ProgramPart& part : options.parts)
            leave_out_unset(part.export_vars, environment, options.notes);
    }
    if (const auto done = check_shell_line(parsed.options, environment); !done)
        return std::unexpected(done.error());
    note_on_choice(parsed, dialect.flags.flags(), environment);
    if (const auto done = check_mpirun(parsed); !done) return std::unexpected(done.error());
    if (const auto done = add_elastic(parsed, environment); !done)
        return std::unexpected(done.error());
    return finish_run(std::move(parsed), environment);
}

Result<RunCommand> parse_run(Words words, plan::EnvironmentView environment) {
    return parse_dialect(words, environment,
                         {run_flags(), NextProgram::with_options, usage_line()});
}

}  // namespace dtrun::cli
