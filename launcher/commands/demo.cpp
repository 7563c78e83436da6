#include "launcher/commands/demo.h"

#include "base/strings.h"
#include "launcher/cli/defaults.h"
#include "launcher/cli/help.h"
#include "launcher/plan/allocation_here.h"

#include <algorithm>
#include <iterator>

namespace dtrun::commands {
namespace {

using std::string_view;
using enum cli::FlagGroup;

constexpr string_view kDemoUsage = "usage: dtrun demo [options]";
constexpr string_view kDemoIntroduction = R"(
Runs a first job with a built-in program, which needs no file of yours and
nothing on the hosts, not even Python: each rank says which it is and where it
runs, all meet, and they time writing and reading a key of the job's store. If
this works, so will your own program; if not, the message says why.

Examples:
  dtrun demo
      4 ranks on this machine; in a batch job, a rank for every slot of it
  dtrun demo -H s1:2,s2:2
      2 ranks on each of two hosts, over ssh
)";
constexpr string_view kDemoExit = R"(
Exit code: 0; else as for `dtrun run`.
)";

constexpr int kRanksHere = 4;
/// Of `dtrun run`, by first names.
constexpr string_view kDemoFlags[] = {"-np",
                                      "-H",
                                      "--hostfile",
                                      "--include",
                                      "--exclude",
                                      "--plan",
                                      "--transport",
                                      "--ssh-port",
                                      "--ssh-identity-file",
                                      "--ssh-command",
                                      "--accept-new-host-keys",
                                      "--network-interfaces",
                                      "--connect-timeout",
                                      "--wait-for-hosts",
                                      "--encrypt",
                                      "--tag",
                                      "--quiet",
                                      "--verbose",
                                      "--debug",
                                      "--help",
                                      "--version"};

constexpr cli::HelpSection kDemoSections[] = {{hosts, "Ranks and hosts"},
                                              {reaching, "Reaching the hosts"},
                                              {output, "Output"},
                                              {other, "About dtrun"}};

cli::Rows<cli::ParsedRun> demo_rows() {
    auto rows = cli::run_flags().rows();
    std::erase_if(rows, [](const cli::Row<cli::ParsedRun>& row) {
        return std::ranges::find(kDemoFlags, row.flag.first_name()) == std::end(kDemoFlags);
    });
    for (auto& row : rows) row.flag.argparse = row.flag.also = {};
    return rows;
}

/// What somebody types who has seen it work, for the same ranks.
/// \param is_here  they were on this machine, of no batch system
/// \param ranks    how many, where nobody has said it
std::string farewell(cli::Words words, bool is_here, std::optional<int> ranks,
                     plan::EnvironmentView environment) {
    const std::string program = cli::python_command(environment) + " train.py";
    std::string typed;
    for (const std::string& word : words) typed += " " + shell_quote(word);
    if (typed.empty() && ranks) typed = fmt::format(" -np {}", *ranks);
    std::string text =
        fmt::format("\nThat was it. With a program of your own:\n  dtrun{} {}\n", typed, program);
    if (is_here)
        text +=
            "and on two hosts that you can log in to by ssh:\n  dtrun demo -H HOST1:2,HOST2:2\n";
    return text + "`dtrun --help` tells more; `dtrun doctor` examines hosts that do not work.\n";
}

}  // namespace

const cli::FlagTable<cli::ParsedRun>& demo_flags() {
    static const cli::FlagTable<cli::ParsedRun> table("dtrun demo", {demo_rows()});
    return table;
}

Result<cli::RunCommand> parse_demo(cli::Words words, plan::EnvironmentView environment) {
    cli::ParsedRun parsed;
    const auto all = cli::with_defaults(words, demo_flags(), cli::run_flags().flags(), environment);
    if (!all) return std::unexpected(all.error());
    const auto rest = cli::read_options(demo_flags(), *all, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked != cli::Ask::nothing) return cli::RunCommand{.asked = parsed.asked};
    if (!rest->words.empty())
        return fail(Errc::invalid_input,
                    "'{}': dtrun demo has a program of its own; for yours leave the word demo out",
                    rest->words.front());
    plan::Options& options = parsed.options;
    // The agent itself: that is what a process executes before it has become a rank.
    options.program = {"/proc/self/exe", "--demo-rank"};
    const bool is_here =
        options.hosts.empty() && options.hostfile.empty() && !plan::has_allocation(environment);
    std::optional<int> chosen;
    if (is_here && !options.world_size) chosen = options.world_size = kRanksHere;
    std::string last_words = farewell(words, is_here, chosen, environment);
    auto command = cli::finish_run(std::move(parsed), environment);
    if (command) command->farewell = std::move(last_words);
    return command;
}

std::string demo_help() {
    return std::string(kDemoUsage) + "\n" + std::string(kDemoIntroduction) +
           cli::sections(demo_flags().flags(), kDemoSections) + std::string(kDemoExit);
}

}  // namespace dtrun::commands
