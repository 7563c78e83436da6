#include "base/environment.h"
#include "base/freed_memory.h"
#include "base/process/ending_signals.h"
#include "base/standard_streams.h"
#include "base/strings.h"
#include "base/system_floor.h"
#include "lab/plan/flags.h"
#include "lab/run/command.h"
#include "launcher/cli/command.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/documentation.h"
#include "launcher/cli/foreign_rows.h"
#include "launcher/cli/man.h"
#include "launcher/cli/misspelt.h"
#include "launcher/cli/other_names.h"
#include "launcher/cli/run.h"
#include "launcher/commands/ask_job.h"
#include "launcher/commands/config_command.h"
#include "launcher/commands/contracts_command.h"
#include "launcher/commands/demo.h"
#include "launcher/commands/doctor_command.h"
#include "launcher/commands/history_commands.h"
#include "launcher/commands/hold_command.h"
#include "launcher/commands/hosts_command.h"
#include "launcher/commands/info_command.h"
#include "launcher/commands/install_links.h"
#include "launcher/commands/join.h"
#include "launcher/commands/look_commands.h"
#include "launcher/commands/run_job.h"
#include "launcher/commands/see_commands.h"
#include "launcher/commands/serve.h"
#include "launcher/commands/store_command.h"
#include "launcher/frontends/deepspeed.h"
#include "launcher/frontends/mpirun.h"
#include "launcher/frontends/torchrun.h"
#include "launcher/plan/exit_code.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace dtrun;

// Names of commands whose words amount to a job.
constexpr char kRun[] = "run", kDemo[] = "demo", kJoin[] = "join", kTorchrun[] = "torchrun",
               kDeepspeed[] = "deepspeed", kMpirun[] = "mpirun";

/// Such a command.
template <const char* Name, auto Parse, auto Help>
int job(cli::Words words, plan::EnvironmentView environment) {
    return commands::run_job({Name, words}, Parse(words, environment), Help, environment);
}

/// The options of a command, of its table.
template <auto Table>
std::span<const cli::Flag> flags_of() {
    return Table().flags();
}

// These know the table of all commands.
int run(cli::Words words, plan::EnvironmentView environment);
std::string run_help();
std::string main_man_page();
int completion(cli::Words words, plan::EnvironmentView environment);
std::string completion_help();
int help(cli::Words words, plan::EnvironmentView environment);
int version(cli::Words words, plan::EnvironmentView environment);

/// Every command of dtrun; the first is what it does without the name of one. A row is all that a
/// command needs to be called, listed and explained.
constexpr cli::Command kCommands[] = {
    {.name = "run", .summary = "", .run = run, .help = run_help, .flags = flags_of<cli::run_flags>},
    {.name = "demo",
     .summary = "run a first job with a built-in program",
     .run = job<kDemo, commands::parse_demo, commands::demo_help>,
     .help = commands::demo_help,
     .flags = flags_of<commands::demo_flags>},
    {.name = "bench",
     .summary = "measure how fast ranks communicate, by each library",
     .run = lab::run_bench_command,
     .help = lab::bench_help,
     .flags = flags_of<lab::bench_flags>},
    {.name = "hosts",
     .summary = "print a host list in any launcher's format",
     .run = commands::run_hosts_command,
     .help = commands::hosts_help,
     .flags = flags_of<commands::hosts_flags>},
    {.name = "hold",
     .summary = "stay logged in to hosts so that jobs start at once",
     .run = commands::run_hold,
     .help = commands::hold_help,
     .flags = flags_of<commands::hold_flags>},
    {.name = "release",
     .summary = "log out of held hosts",
     .run = commands::run_release,
     .help = commands::release_help,
     .flags = flags_of<commands::release_flags>},
    {.name = "doctor",
     .summary = "find out what is wrong with hosts before a job does",
     .run = commands::run_doctor,
     .help = commands::doctor_help,
     .flags = flags_of<commands::doctor_flags>},
    {.name = "info",
     .summary = "describe this machine and dtrun for a bug report",
     .run = commands::run_info,
     .help = commands::info_help,
     .flags = flags_of<commands::info_flags>},
    {.name = "serve",
     .summary = "run a rendezvous daemon for ranks started elsewhere",
     .run = commands::run_serve,
     .help = commands::serve_help,
     .flags = flags_of<commands::serve_flags>},
    {.name = "join",
     .summary = "start ranks on this machine for a daemon's job",
     .run = job<kJoin, commands::parse_join, commands::join_help>,
     .help = commands::join_help,
     .flags = commands::join_options},
    {.name = "status",
     .summary = "show what a daemon is doing",
     .run = commands::run_status,
     .help = commands::status_help,
     .flags = flags_of<commands::status_flags>},
    {.name = "store",
     .summary = "read and write a job's key-value store; take locks",
     .run = commands::run_store,
     .help = commands::store_help,
     .flags = flags_of<commands::store_flags>},
    {.name = "jobs",
     .summary = "list your jobs, running or ended",
     .run = commands::run_jobs,
     .help = commands::jobs_help,
     .flags = flags_of<commands::jobs_flags>},
    {.name = "top",
     .summary = "watch a running job: progress, processors, memory",
     .run = commands::run_top,
     .help = commands::top_help,
     .flags = flags_of<commands::top_flags>},
    {.name = "end",
     .summary = "end a running job",
     .run = commands::run_end,
     .help = commands::end_help,
     .flags = flags_of<commands::end_flags>},
    {.name = "stacks",
     .summary = "show where in its code each rank is",
     .run = commands::run_stacks,
     .help = commands::stacks_help,
     .flags = flags_of<commands::stacks_flags>},
    {.name = "attach",
     .summary = "follow a detached job, or type into one rank",
     .run = commands::run_attach,
     .help = commands::attach_help,
     .flags = flags_of<commands::attach_flags>},
    {.name = "logs",
     .summary = "print a detached job's output, also after its end",
     .run = commands::run_logs,
     .help = commands::logs_help,
     .flags = flags_of<commands::logs_flags>},
    {.name = "torchrun",
     .summary = "run what torchrun would, with its flags",
     .run = job<kTorchrun, frontends::parse_torchrun, frontends::torchrun_help>,
     .help = frontends::torchrun_help,
     .flags = flags_of<frontends::torchrun_flags>},
    {.name = "deepspeed",
     .summary = "run what deepspeed would, with its flags",
     .run = job<kDeepspeed, frontends::parse_deepspeed, frontends::deepspeed_help>,
     .help = frontends::deepspeed_help,
     .flags = flags_of<frontends::deepspeed_flags>},
    {.name = "mpirun",
     .summary = "run what mpirun or mpiexec would, with its flags",
     .run = job<kMpirun, frontends::parse_mpirun, frontends::mpirun_help>,
     .help = frontends::mpirun_help,
     .flags = flags_of<frontends::mpirun_flags>},
    {.name = "mpiexec",
     .summary = "",
     .run = job<kMpirun, frontends::parse_mpirun, frontends::mpirun_help>,
     .help = frontends::mpirun_help,
     .flags = flags_of<frontends::mpirun_flags>},
    {.name = "contracts",
     .summary = "list the sets of variables that ranks can be given",
     .run = commands::run_contracts,
     .help = commands::contracts_help},
    {.name = "config",
     .summary = "show the options that configuration files set",
     .run = commands::run_config,
     .help = commands::config_help,
     .flags = flags_of<commands::config_flags>},
    {.name = "completion",
     .summary = "print a completion script for bash, zsh or fish",
     .run = completion,
     .help = completion_help},
    {.name = "install-links",
     .summary = "make links to dtrun named after other launchers",
     .run = commands::run_links,
     .help = commands::links_help,
     .flags = flags_of<commands::links_flags>},
    {.name = "help", .summary = "", .run = help, .help = run_help},
    {.name = "version", .summary = "", .run = version, .help = cli::version_text},
    {.name = "all",
     .summary = "every option of dtrun run",
     .run = nullptr,
     .help = cli::all_flags_help},
    {.name = "horovod",
     .summary = "Horovod's settings, as flags",
     .run = nullptr,
     .help = cli::horovod_help},
    {.name = "words",
     .summary = "flags of mpirun, srun and others, and what they do",
     .run = nullptr,
     .help = cli::words_help},
    {.name = "environment",
     .summary = "variables that ranks get",
     .run = nullptr,
     .help = plan::environment_help},
    {.name = "exit-codes",
     .summary = "what dtrun's exit codes mean",
     .run = nullptr,
     .help = cli::exit_codes_help},
    {.name = "docs",
     .summary = "where the documentation is",
     .run = nullptr,
     .help = cli::docs_help},
    {.name = "man", .summary = "", .run = nullptr, .help = main_man_page},
};

/// \param note  is told before the job starts
int run_with(cli::Words words, plan::EnvironmentView environment, std::optional<std::string> note) {
    auto parsed = cli::parse_run(words, environment);
    if (!parsed)
        if (auto meant = cli::front_end_meant(kCommands, words))
            parsed = std::unexpected(std::move(*meant));
    if (parsed && note) parsed->warnings.push_back(std::move(*note));
    return commands::run_job({kRun, words}, std::move(parsed), run_help, environment);
}

int run(cli::Words words, plan::EnvironmentView environment) {
    return run_with(words, environment, std::nullopt);
}

std::string run_help() {
    return cli::run_help(kCommands);
}

std::string main_man_page() {
    return cli::man_page(kCommands, kCommands[0]);
}

int version(cli::Words, plan::EnvironmentView) {
    return cli::print(cli::version_text());
}

/// Writes the page of each command into a folder, which is there.
int write_man_pages(const std::string& folder) {
    for (const cli::Command& command : kCommands) {
        if (!cli::has_man_page(kCommands, command)) continue;
        const std::string path = fmt::format("{}/{}", folder, cli::man_file(kCommands, command));
        std::ofstream file(path);
        if (!(file << cli::man_page(kCommands, command)).flush())
            return cli::complain({Errc::internal, path + " cannot be written"});
    }
    return 0;
}

/// `dtrun help man [COMMAND]`, or FOLDER/ for the pages of all.
int help_man(cli::Words words) {
    if (words.empty()) return cli::print(main_man_page());
    if (words.front().ends_with('/')) return write_man_pages(words.front());
    const cli::Command* const command = cli::find_command(kCommands, words);
    if (command == nullptr || !cli::has_man_page(kCommands, *command))
        return cli::complain({Errc::invalid_input,
                              fmt::format("no manual page of '{}'; write a command, or FOLDER/ for "
                                          "the pages of all",
                                          words.front())});
    return cli::print(cli::man_page(kCommands, *command));
}

int help(cli::Words words, plan::EnvironmentView) {
    if (!words.empty() && words.front() == "man") return help_man(words.subspan(1));
    if (!words.empty() && cli::is_option(words.front())) words = {};  // such as dtrun help --help
    const auto text = cli::help_on(kCommands, words);
    return text ? cli::print(*text) : cli::complain(text.error());
}

/// Jobs that run here, by their names or ids.
void add_jobs(cli::Completion& found, std::string_view begin, plan::EnvironmentView environment) {
    for (const control::JobSocket& job : commands::jobs_here(environment))
        if (const std::string& word = job.name.empty() ? job.job : job.name;
            word.starts_with(begin))
            found.words.emplace_back(word, fmt::format("pid {}", job.head));
}

/// The last jobs, whether they run or have ended.
void add_records(cli::Completion& found, std::string_view begin,
                 plan::EnvironmentView environment) {
    constexpr std::size_t kOffered = 50;
    constexpr auto first = &std::pair<std::string, std::string>::first;
    const std::string folder = commands::history_here(environment);
    for (const history::JobEntry& each : history::read_history(folder, kOffered))
        if (const std::string& word = each.start.name.empty() ? each.start.job : each.start.name;
            word.starts_with(begin) &&
            std::ranges::find(found.words, word, first) == found.words.end())
            found.words.emplace_back(word, each.start.program);
}

/// `dtrun completion SHELL`; and SHELL-words LINE, by which its script asks.
int completion(cli::Words words, plan::EnvironmentView environment) {
    constexpr std::string_view kAsks = "-words";
    if (words.size() == 1 && cli::is_option(words[0])) return cli::print(completion_help());
    if (words.size() == 1) {
        const auto script = cli::completion_script(words[0]);
        return script ? cli::print(*script) : cli::complain(script.error());
    }
    if (words.size() != 2 || !words[0].ends_with(kAsks))
        return cli::complain({Errc::invalid_input, "usage: dtrun completion bash|zsh|fish"});
    auto typed = shell_words(words[1]);  // not while a quote is open
    if (!typed || typed->empty()) return 0;
    if (words[1].ends_with(' ')) typed->emplace_back();
    if (typed->size() < 2) return 0;
    cli::Completion found = cli::complete(kCommands, cli::Words(*typed).subspan(1));
    if (found.kind == cli::Completion::Kind::jobs) add_jobs(found, typed->back(), environment);
    if (found.kind == cli::Completion::Kind::records)
        add_records(found, typed->back(), environment);
    return cli::print(cli::completion_lines(found, words[0].starts_with("bash")));
}

std::string completion_help() {
    return R"(usage: dtrun completion bash|zsh|fish

Prints a script with which the shell completes commands, options, their values,
and the ids of running jobs:

  source <(dtrun completion bash)         in ~/.bashrc
  source <(dtrun completion zsh)          in ~/.zshrc, after compinit
  dtrun completion fish | source          in ~/.config/fish/config.fish
)";
}

/// Called by a link that has the name of another launcher, dtrun is that launcher.
std::vector<std::string> words_of(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    const std::string name = std::filesystem::path(argv[0]).filename().string();
    if (const cli::OtherName* const other = cli::find_other_name(name); other != nullptr)
        words.insert(words.begin(), std::string(other->command));
    return words;
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_streams();
    keep_freed_memory();
    ::signal(SIGPIPE, SIG_IGN);
    hear_signals();
    exit_at_ending_signals();
    std::vector<std::string> environment = own_environment();
    if (argc < 1) return cli::complain({Errc::invalid_input, "no argv[0]"});
    if (const auto lacking = lacking_in_system()) {
        cli::complain({Errc::internal, *lacking});
        return plan::kExitInternal;
    }
    std::vector<std::string> typed = words_of(argc, argv);
    if (commands::asks_again(typed)) {
        auto again = commands::words_again(typed, environment);
        if (!again) return cli::complain(again.error());
        typed = std::move(*again);
    }
    const cli::Words words(typed);
    const bool asks_version = words.size() == 2 && words[1] == "--version";
    const cli::Command* const command = cli::find_command(kCommands, words);
    if (command != nullptr && asks_version) return cli::print(cli::version_text());
    if (command != nullptr) return command->run(words.subspan(1), environment);
    if (const auto misspelt = cli::misspelt_command(kCommands, words, environment)) {
        const int usage = cli::complain(*misspelt);
        return misspelt->code == Errc::not_found ? plan::kExitProgramMissing : usage;
    }
    return run_with(words, environment, cli::note_on_program(words, environment));
}
