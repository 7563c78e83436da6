#include "launcher/commands/see_commands.h"

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/cli/command.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/ask_job.h"
#include "launcher/commands/daemon_flags.h"
#include "launcher/commands/history_commands.h"
#include "launcher/commands/store_command.h"
#include "launcher/commands/top_run.h"
#include "launcher/control/control_client.h"
#include "launcher/plan/exit_code.h"
#include "launcher/watch/job_table.h"
#include "launcher/watch/json_line.h"

#include <unistd.h>
#include <boost/json/array.hpp>
#include <csignal>
#include <cstdio>
#include <utility>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;
using std::chrono::milliseconds;

constexpr std::string_view kJobs = R"(usage: dtrun jobs [HOST[:PORT]] [options]
       dtrun jobs --all [JOB] [--json]

Lists your jobs whose dtrun runs on this machine; with HOST, those of the daemon
(`dtrun serve`) there, as `dtrun status` shows them. Where other commands take a
JOB, give what this list has under JOB, or its beginning, the name given by
--name, or the pid under DTRUN.

With --all, lists jobs that have ended, too, the newest first, from all machines
with this home directory, as long as they are kept (30 days); with JOB, shows
everything that is known about that one, with the report of its end.

Exit code: 0, even if there are none; 200 no such job.
)";

constexpr std::string_view kTop = R"(usage: dtrun top [JOB] [options]

Shows a running job: a sentence on what is wrong with it, its hosts, and for
each rank its state, processor time (100 is one processor), memory, the step
that it reports (Worker.progress), and how many steps it is behind the first;
ranks that have failed or are late come first. On a terminal this is refreshed
until 'q', Ctrl-C or the end of the job, whose outcome is shown; otherwise it is
shown once. JOB is as for `dtrun jobs`; leave it out if only one job of yours
runs here.

Exit code: 0; 200 no such job.
)";

constexpr std::string_view kEndHelp = R"(usage: dtrun end JOB [options]

Ends a job of yours, as SIGTERM to its dtrun does: its ranks get SIGTERM, and
SIGKILL after its --grace. Returns when nothing of the job is left. JOB is as
for `dtrun jobs`.

Exit code: 0; 200 no such job.
)";

cli::Rows<ParsedSee> json_rows() {
    return {
        {{.names = "--json",
          .group = other,
          .help = "print everything that is known, as JSON; docs/EVENTS.md describes the fields"},
         cli::set_true<&SeeCommand::json>}};
}

cli::Rows<ParsedSee> all_rows() {
    return {{{.names = "--all -a",
              .group = other,
              .help = "include jobs that have ended; with JOB, show one of them with its report"},
             cli::set_true<&SeeCommand::all>}};
}

cli::Rows<ParsedSee> top_rows() {
    return {
        {{.names = "--interval",
          .metavar = "SECONDS",
          .group = other,
          .help = "time between two looks (default: 2)"},
         cli::set_seconds<&SeeCommand::interval, 200>},
        {{.names = "--once", .group = other, .help = "show it once, even on a terminal"},
         cli::set_true<&SeeCommand::once>},
        {{.names = "--sort",
          .metavar = "trouble|rank|cpu|memory|step",
          .group = other,
          .help = "which ranks come first: those that have failed or are late, by number, the "
                  "busiest, the largest, or those with the fewest steps (default: trouble)"},
         [](ParsedSee& parsed, std::string_view value) -> Result<void> {
             using enum watch::TopOrder;
             const auto order = cli::choose<watch::TopOrder>(value, {{"trouble", trouble},
                                                                     {"rank", rank},
                                                                     {"cpu", processors},
                                                                     {"memory", memory},
                                                                     {"step", step}});
             if (!order) return std::unexpected(order.error());
             parsed.own.order = *order;
             return {};
         }},
    };
}

constexpr cli::HelpSection kSeeSections[] = {{other, "Options"}};

asio::awaitable<void> look_at(control::JobSocket job, boost::json::object& view,
                              std::vector<std::string>& troubles) {
    control::ControlClient client(co_await asio::this_coro::executor, std::move(job));
    auto seen = co_await view_of(client, milliseconds(0));
    if (seen)
        view = std::move(*seen);
    else if (seen.error().code != Errc::closed)
        troubles.push_back(seen.error().message);
}

/// All at once: one that is stopped does not hold the others up for longer than itself.
asio::awaitable<int> show_jobs(std::vector<control::JobSocket> jobs, bool as_json) {
    std::vector<boost::json::object> views(jobs.size());
    std::vector<std::string> troubles;
    TaskGroup looks(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < jobs.size(); ++i)
        looks.spawn(look_at(std::move(jobs[i]), views[i], troubles));
    co_await looks.join();
    std::erase_if(views, [](const boost::json::object& view) { return view.empty(); });
    std::string text = watch::jobs_table(views);
    if (as_json) {
        boost::json::object all;
        all["schema"] = 1;
        all["jobs"] = boost::json::array(views.begin(), views.end());
        text = watch::json_line(all) + "\n";
    }
    for (const std::string& trouble : troubles)
        std::fprintf(stderr, "dtrun: %s\n", trouble.c_str());
    co_return cli::print(text);
}

/// What is known of jobs that have ended, and of those that have not.
int show_all(bool as_json, plan::EnvironmentView environment) {
    const history::ProcessMark here = history::mark_of_this_process();
    std::vector<history::Known> jobs;
    const std::string folder = history_here(environment);
    for (history::JobEntry& entry : history::read_history(folder)) {
        const history::Life life = history::settle(entry, here);
        jobs.push_back({std::move(entry), life});
    }
    if (as_json) {
        boost::json::object all;
        all["schema"] = 1;
        boost::json::array records;
        for (const history::Known& job : jobs) records.push_back(to_json(job.entry, job.life));
        all["records"] = std::move(records);
        return cli::print(watch::json_line(all) + "\n");
    }
    if (jobs.empty())
        return cli::print(fmt::format("no job of yours has left a record{}\n",
                                      history::why_none_is_kept(folder)));
    return cli::print(history::history_table(jobs, terminal_columns(STDOUT_FILENO)));
}

int show_record(std::string_view word, bool as_json, plan::EnvironmentView environment) {
    const auto job = find_record(word, environment);
    if (!job) return cli::complain(job.error());
    return cli::print(as_json ? watch::json_line(to_json(job->entry, job->life)) + "\n"
                              : history::history_details(*job));
}

asio::awaitable<int> end_job(control::JobSocket job, bool now) {
    const std::string id = job.job;
    control::ControlClient client(co_await asio::this_coro::executor, std::move(job));
    ControlRequest ask;
    ask.command = ControlCommand::end;
    ask.signal = now ? SIGKILL : SIGTERM;
    const std::function<void(const Answer&)> take = [](const Answer& answer) {
        if (!control::write_answer(answer)) return;
    };
    const auto code = co_await client.run(ask, take);
    if (code) co_return *code;
    if (code.error().code != Errc::closed) co_return status_of(code.error());
    co_return cli::print(fmt::format("job {} has ended\n", id));
}

}  // namespace

const cli::FlagTable<ParsedSee>& jobs_flags() {
    static const cli::FlagTable<ParsedSee> table(
        "dtrun jobs",
        {all_rows(), json_rows(), secret_rows<ParsedSee>(), cli::about_rows<ParsedSee>()});
    return table;
}

const cli::FlagTable<ParsedSee>& top_flags() {
    static const cli::FlagTable<ParsedSee> table(
        "dtrun top", {top_rows(), json_rows(), cli::about_rows<ParsedSee>()});
    return table;
}

const cli::FlagTable<ParsedSee>& end_flags() {
    static const cli::FlagTable<ParsedSee> table(
        "dtrun end", {{{{.names = "--now", .group = other, .help = "SIGKILL at once"},
                        cli::set_true<&SeeCommand::now>}},
                      cli::about_rows<ParsedSee>()});
    return table;
}

Result<ParsedSee> parse_jobs(cli::Words words) {
    auto parsed =
        read_operands(words, jobs_flags(), 0, 1, "usage: dtrun jobs [HOST[:PORT]] [options]");
    if (parsed && !parsed->own.all && !parsed->own.operands.empty())
        parsed->own.daemon.address = parsed->own.operands[0];
    return parsed;
}

Result<ParsedSee> parse_top(cli::Words words) {
    return read_operands(words, top_flags(), 0, 1, "usage: dtrun top [JOB] [options]");
}

Result<ParsedSee> parse_end(cli::Words words) {
    constexpr std::string_view kUsage = "usage: dtrun end JOB; `dtrun jobs` lists them";
    auto parsed = read_operands(words, end_flags(), 1, 1, kUsage);
    // Such as that of a variable that is not set: not "the only job".
    if (parsed && parsed->asked == cli::Ask::nothing && parsed->own.operands.front().empty())
        return fail(Errc::invalid_input, "{}", kUsage);
    return parsed;
}

std::string jobs_help() {
    static constexpr cli::HelpSection kOwn[] = {{other, "Options"}, {daemon, "With HOST"}};
    return std::string(kJobs) + cli::sections(jobs_flags().flags(), kOwn);
}

std::string top_help() {
    return std::string(kTop) + cli::sections(top_flags().flags(), kSeeSections);
}

std::string end_help() {
    return std::string(kEndHelp) + cli::sections(end_flags().flags(), kSeeSections);
}

int run_jobs(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_jobs(words);
    if (const auto status = cli::settled(parsed, jobs_help)) return *status;
    if (parsed->own.all && parsed->own.operands.empty())
        return show_all(parsed->own.json, environment);
    if (parsed->own.all)
        return show_record(parsed->own.operands.front(), parsed->own.json, environment);
    if (!parsed->own.operands.empty()) {
        const std::string& word = parsed->own.operands.front();
        if (find_job(word, environment))
            return cli::complain({Errc::invalid_input,
                                  fmt::format("{0} is a job here, which dtrun top {0} shows; dtrun "
                                              "jobs HOST asks a daemon there",
                                              word)});
        return show_daemon(parsed->own.daemon, parsed->own.json, environment);
    }
    asio::io_context io(1);
    return run_to_end(io, show_jobs(jobs_here(environment), parsed->own.json));
}

int run_top(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_top(words);
    if (const auto status = cli::settled(parsed, top_help)) return *status;
    const SeeCommand& own = parsed->own;
    auto job = find_job(own.operands.empty() ? "" : own.operands.front(), environment);
    if (!job) return cli::complain(job.error());
    asio::io_context io(1);
    return show_top(io, std::move(*job), {own.json, own.once, own.order, own.interval});
}

int run_end(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_end(words);
    if (const auto status = cli::settled(parsed, end_help)) return *status;
    auto job = find_job(parsed->own.operands.front(), environment);
    if (!job) return cli::complain(job.error());
    asio::io_context io(1);
    return run_to_end(io, end_job(std::move(*job), parsed->own.now));
}

}  // namespace dtrun::commands
