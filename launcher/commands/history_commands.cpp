#include "launcher/commands/history_commands.h"

#include "base/strings.h"
#include "hostfiles/host.h"
#include "launcher/cli/command.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/ask_job.h"
#include "launcher/commands/show_log.h"
#include "launcher/output/path_pattern.h"
#include "launcher/plan/exit_code.h"

#include <fmt/format.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;

constexpr std::string_view kLogs = R"(usage: dtrun logs [JOB [RANK]] [options]

Prints the output of a job that was started with -d or --log, whether it still
runs or has ended: of all ranks, with a tag before each line, or of one rank, as
it printed it. JOB is the name of a job, its id or the beginning of its id; by
default the last job whose output is kept. What ranks wrote to standard error
goes to standard error, as does what dtrun said.

Exit code: 0; 200 no such job, or its output was not kept.
)";

constexpr std::string_view kLogsUsage = "usage: dtrun logs [JOB [RANK]] [options]";

cli::Rows<ParsedLogs> logs_rows() {
    return {
        {{.names = "--follow -f",
          .group = other,
          .help = "keep printing until the job ends (default: only what there is now)"},
         cli::set_true<&LogsCommand::follow>},
        {{.names = "--tail -n",
          .metavar = "N",
          .group = other,
          .help = "only the last N lines (default: everything that is kept)"},
         [](ParsedLogs& parsed, std::string_view value) -> Result<void> {
             const auto lines = cli::whole_number(value, 0, 1'000'000'000);
             if (!lines) return std::unexpected(lines.error());
             parsed.own.tail = static_cast<std::uint64_t>(*lines);
             return {};
         }},
        {{.names = "--timestamps -t",
          .group = other,
          .help = "show the time, rank and host of each line, as in the file (default: "
                  "[3]<stdout>:, and nothing for a single rank)"},
         cli::set_true<&LogsCommand::timestamps>},
    };
}

/// The newest that has kept its output.
Result<history::Known> last_with_output(plan::EnvironmentView environment) {
    const history::ProcessMark here = history::mark_of_this_process();
    const std::string folder = history_here(environment);
    for (history::JobEntry& entry : history::read_history(folder))
        if (!entry.start.log.empty()) {
            const history::Life life = history::settle(entry, here);
            return history::Known{std::move(entry), life};
        }
    return fail(Errc::invalid_input,
                "no job of yours has kept its output: start it with dtrun -d, or with --log FILE{}",
                history::why_none_is_kept(folder));
}

Result<history::Known> find_with_output(std::string_view word, plan::EnvironmentView environment) {
    if (word.empty()) return last_with_output(environment);
    auto found = find_record(word, environment);
    if (!found || !found->entry.start.log.empty()) return found;
    const std::string job = found->entry.start.job.substr(0, output::kJobDigits);
    return fail(Errc::invalid_input,
                "the output of job {} is not kept: it was started without -d and --log; `dtrun "
                "attach {} RANK` shows that of a rank from now on",
                job, job);
}

}  // namespace

std::string history_here(plan::EnvironmentView environment) {
    return history::history_folder(plan::find_variable(environment, "XDG_STATE_HOME").value_or(""),
                                   plan::find_variable(environment, "HOME").value_or(""));
}

Result<history::Known> find_record(std::string_view word, plan::EnvironmentView environment) {
    const std::string folder = history_here(environment);
    if (folder.empty())
        return fail(Errc::invalid_input,
                    "neither HOME nor XDG_STATE_HOME is set, below which records of jobs are");
    // One that runs goes before an older one of the same name, and may be meant by its pid.
    const std::vector<control::JobSocket> running = jobs_here(environment);
    const auto runs = word.empty() || running.empty()
                          ? Result<control::JobSocket>(fail(Errc::not_found, ""))
                          : control::choose_job(running, word);
    auto entry = history::find_entry(folder, runs ? std::string_view(runs->job) : word);
    if (!entry && runs)
        return fail(Errc::invalid_input, "job {} runs, but has no record in {}", runs->job, folder);
    if (!entry) return std::unexpected(entry.error());
    const history::Life life = history::settle(*entry, history::mark_of_this_process());
    return history::Known{std::move(*entry), life};
}

const cli::FlagTable<ParsedLogs>& logs_flags() {
    static const cli::FlagTable<ParsedLogs> table("dtrun logs",
                                                  {logs_rows(), cli::about_rows<ParsedLogs>()});
    return table;
}

Result<ParsedLogs> parse_logs(cli::Words words) {
    auto parsed = read_operands(words, logs_flags(), 0, 2, kLogsUsage);
    if (!parsed || parsed->own.operands.size() < 2) return parsed;
    const auto rank = cli::whole_number(parsed->own.operands[1], 0, kRanksMax - 1);
    if (!rank) return fail(rank.error(), "RANK");
    return parsed;
}

std::string logs_help() {
    static constexpr cli::HelpSection kSections[] = {{other, "Options"}};
    return std::string(kLogs) + cli::sections(logs_flags().flags(), kSections);
}

int run_logs(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_logs(words);
    if (const auto status = cli::settled(parsed, logs_help)) return *status;
    const LogsCommand& own = parsed->own;
    auto job = find_with_output(own.operands.empty() ? "" : own.operands[0], environment);
    if (!job) return cli::complain(job.error());
    LogView view{.follow = own.follow, .timestamps = own.timestamps, .tail = own.tail};
    if (own.operands.size() > 1)
        view.rank = cli::whole_number(own.operands[1], 0, kRanksMax - 1).value();
    return show_log(*job, view).status;
}

int attach_to_job(std::string_view word, plan::EnvironmentView environment) {
    auto job = find_with_output(word, environment);
    if (!job) return cli::complain(job.error());
    const history::JobStart& start = job->entry.start;
    const std::string id =
        start.name.empty() ? start.job.substr(0, output::kJobDigits) : start.name;
    if (!job->entry.end && job->life == history::Life::runs)
        std::fprintf(stderr, "dtrun: job %s; Ctrl-C leaves it running, dtrun end %s ends it\n",
                     id.c_str(), id.c_str());
    const ShownLog shown = show_log(*job, {.follow = true});
    if (shown.status != 0) return shown.status;
    if (shown.end) return shown.end->code;
    std::fprintf(stderr, "dtrun: job %s has ended without saying how\n", id.c_str());
    return plan::kExitInternal;
}

bool asks_again(cli::Words words) {
    if (!words.empty() && words[0] == "run") words = words.subspan(1);
    return !words.empty() && (words[0] == "--again" || words[0].starts_with("--again="));
}

Result<std::vector<std::string>> words_again(cli::Words words,
                                             std::vector<std::string>& environment) {
    if (words[0] == "run") words = words.subspan(1);
    std::string job;
    if (const std::size_t equals = words[0].find('='); equals != std::string::npos)
        job = words[0].substr(equals + 1);
    if (words.size() > 2 || (words.size() == 2 && (!job.empty() || cli::is_option(words[1]))))
        return fail(Errc::invalid_input,
                    "usage: dtrun --again [JOB]; options and program are those of that job");
    if (words.size() == 2) job = words[1];
    const auto found = find_record(job, environment);
    if (!found) return std::unexpected(found.error());
    const history::JobStart& start = found->entry.start;
    if (start.typed.words.empty())
        return fail(
            Errc::invalid_input,
            "the command line of job {} is not kept: it was too long, no UTF-8, or had a secret",
            start.job);
    const auto variable = [&](std::string_view name) -> std::optional<std::string> {
        const auto value = plan::find_variable(environment, name);
        return value ? std::optional<std::string>(*value) : std::nullopt;
    };
    auto again = history::with_secrets(start.typed, variable);
    if (!again) return again;
    if (::chdir(start.directory.c_str()) != 0)
        return fail(Errc::invalid_input, "{}, where job {} was started: {}", start.directory,
                    start.job, std::strerror(errno));
    std::erase_if(environment, [](const std::string& each) { return each.starts_with("PWD="); });
    environment.push_back("PWD=" + start.directory);
    std::fprintf(stderr, "dtrun: again, in %s: %s\n",
                 escaped(start.directory, std::string::npos).c_str(),
                 escaped(history::shell_text(start.typed), std::string::npos).c_str());
    return again;
}

}  // namespace dtrun::commands
