#include "launcher/commands/config_command.h"

#include "launcher/cli/command.h"
#include "launcher/cli/defaults.h"
#include "launcher/cli/help.h"
#include "launcher/cli/run.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/ask_job.h"

#include <fmt/format.h>
#include <unistd.h>

namespace dtrun::commands {
namespace {

constexpr std::string_view kConfig = R"(usage: dtrun config [show] [options]

Shows which options are set before you type any, and where. They are written in
/etc/dtrun/config.yaml and ~/.config/dtrun/config.yaml, under their long names:

  grace: 10
  tag: rank
  x: [NCCL_DEBUG=INFO, OMP_NUM_THREADS=8]
  profiles:
    debug:
      verbose: true
      timeout: 600

and in DTRUN_OPTIONS, as they would be typed. The command line wins over
DTRUN_OPTIONS, that over a profile (--profile or DTRUN_PROFILE), that over your
file, and that over /etc; -x and other repeatable options add up. They apply to
`dtrun run`, and to join, torchrun, deepspeed and mpirun as far as these have
the option.

DTRUN_CONFIG names another file, in place of both; if it is empty, none is read.
Your own file is not read, and a warning says so, if it belongs to somebody else
or others can write to it, unless DTRUN_CONFIG names it.

Exit code: 0; 200 an option is wrong: the message names its line.
)";

std::string config_text(const std::vector<cli::Default>& defaults,
                        plan::EnvironmentView environment) {
    std::string text;
    for (const std::string& file : cli::default_files(environment))
        text +=
            fmt::format("{}{}\n", file, ::access(file.c_str(), F_OK) == 0 ? "" : " (not there)");
    text += fmt::format("DTRUN_OPTIONS{}\n\n",
                        plan::find_variable(environment, "DTRUN_OPTIONS") ? "" : " (not set)");
    if (defaults.empty()) return text + "nothing is set\n";
    for (const cli::Default& one : defaults)
        text += fmt::format("{:<30} {}{}\n", one.word, one.source,
                            one.beaten_by.empty() ? "" : fmt::format(" ({} wins)", one.beaten_by));
    return text;
}

}  // namespace

const cli::FlagTable<ParsedConfig>& config_flags() {
    static const cli::FlagTable<ParsedConfig> table(
        "dtrun config",
        {{{{.names = "--profile",
            .metavar = "NAME",
            .group = cli::FlagGroup::other,
            .help = "show the options of this profile, too (default: DTRUN_PROFILE, else none)"},
           [](ParsedConfig& parsed, std::string_view value) -> Result<void> {
               parsed.own.profile = value;
               return {};
           }}},
         cli::about_rows<ParsedConfig>()});
    return table;
}

int run_config(cli::Words words, plan::EnvironmentView environment) {
    constexpr std::string_view kUsage = "usage: dtrun config [show] [options]";
    const auto parsed = read_operands(words, config_flags(), 0, 1, kUsage);
    if (const auto status = cli::settled(parsed, config_help)) return *status;
    const std::vector<std::string>& operands = parsed->own.operands;
    if (!operands.empty() && operands.front() != "show")
        return cli::complain({Errc::invalid_input, std::string(kUsage)});
    const auto defaults =
        cli::read_defaults(cli::run_flags().flags(), environment, parsed->own.profile);
    if (!defaults) return cli::complain(defaults.error());
    // Values are checked as they are when a job starts.
    std::vector<std::string> typed;
    if (!parsed->own.profile.empty()) typed.push_back("--profile=" + parsed->own.profile);
    const auto checked =
        cli::with_defaults(typed, cli::run_flags(), cli::run_flags().flags(), environment);
    if (!checked) return cli::complain(checked.error());
    return cli::print(config_text(*defaults, environment));
}

std::string config_help() {
    static constexpr cli::HelpSection kSections[] = {{cli::FlagGroup::other, "Options"}};
    return std::string(kConfig) + cli::sections(config_flags().flags(), kSections);
}

}  // namespace dtrun::commands
