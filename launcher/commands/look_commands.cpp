#include "launcher/commands/look_commands.h"

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "base/strings.h"
#include "hostfiles/host.h"
#include "launcher/cli/command.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/ask_job.h"
#include "launcher/commands/history_commands.h"
#include "launcher/control/control_client.h"
#include "launcher/control/control_place.h"
#include "launcher/output/stdin_pump.h"
#include "launcher/output/user_terminal.h"
#include "launcher/plan/exit_code.h"

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;

constexpr std::string_view kStacks = R"(usage: dtrun stacks [JOB] [options]

Shows the stacks of a job's ranks and of the processes that they have started.
Python prints its own on SIGURG (DTRUN_STACKS=0 turns that off), or py-spy does;
for other programs gdb does. py-spy and gdb are used where they are on the
ranks' PATH; otherwise /proc has to do. Of the processes that Python started,
only Python's are shown, unless with --native. Processes with equal stacks are
shown once. JOB is the id of a job (DTRUN_JOB in its ranks), the beginning of
the id, or the pid of its dtrun; leave it out if only one job of yours runs
here.

Exit code: 0; 1 if a host has not answered in time; 200 no such job.
)";

constexpr std::string_view kAttach = R"(usage: dtrun attach [JOB]
       dtrun attach [JOB] RANK

Without RANK: shows everything that a detached job (dtrun -d) has printed so
far, and follows it to its end; without JOB, the last one. Ctrl-C leaves the job
running.

With RANK, a number: shows what that rank of any job prints from now on, and
sends it what you type, if it reads standard input (--stdin) or has a terminal
(--pty). "~." at the beginning of a line leaves a terminal.

JOB is as for `dtrun jobs`; before RANK it may be left out if only one job of
yours runs here.

Exit code: that of the job, or the rank; 0 if the job ends before its rank; 200
no such job or rank.
)";

constexpr std::size_t kPieceBytesMax = 1u << 20;  // of what is sent ahead

cli::Rows<ParsedLook> stacks_rows() {
    return {
        {{.names = "--timeout",
          .metavar = "SECONDS",
          .group = other,
          .help = "time for all hosts; whatever has not come by then is left out (default: 30)"},
         cli::set_seconds<&LookCommand::timeout, 1>},
        {{.names = "--native",
          .group = other,
          .help = "also show native functions of Python programs, by gdb, which takes seconds for "
                  "each"},
         cli::set_true<&LookCommand::native>},
        {{.names = "--signal",
          .metavar = "SIGNAL",
          .group = other,
          .help = "only send this signal to ranks that catch it, such as USR1 where the program "
                  "has called faulthandler.register(signal.SIGUSR1)"},
         [](ParsedLook& parsed, std::string_view value) -> Result<void> {
             const auto signal = cli::parse_signal(value);
             if (!signal) return std::unexpected(signal.error());
             parsed.own.signal = *signal;
             return {};
         }},
    };
}

constexpr cli::HelpSection kSections[] = {{other, "Options"}};

asio::awaitable<int> ask_for_stacks(control::ControlClient& client, ControlRequest ask) {
    bool unread = false;  // as by `| head`
    const std::function<void(const Answer&)> show = [&](const Answer& answer) {
        unread = !control::write_answer(answer);
        if (unread) client.stop();
    };
    const auto code = co_await client.run(std::move(ask), show);
    if (unread) co_return plan::kExitSignalBase + SIGPIPE;
    co_return code ? *code : status_of(code.error());
}

/// A terminal, or less, for a rank of a job that runs.
class Attachment {
public:
    Attachment(asio::io_context& io, control::JobSocket job, Rank rank)
        : client_(io.get_executor(), std::move(job)),
          signals_(io, SIGWINCH, SIGINT, SIGTERM),
          input_(io.get_executor(), {HostId{0}},
                 [this](HostId, std::string_view bytes) { typed(bytes); }),
          tasks_(io.get_executor()) {
        for (const int signal : {SIGHUP, SIGQUIT, SIGCONT}) signals_.add(signal);
        ask_.command = ControlCommand::attach;
        ask_.rank = rank;
        ask_.has_terminal = output::UserTerminal::is_there();
        ask_.size = output::UserTerminal::size();
    }

    asio::awaitable<int> run() {
        tasks_.spawn(watch_signals());
        const std::function<void(const Answer&)> take = [this](const Answer& answer) {
            this->take(answer);
        };
        const auto code = co_await client_.run(ask_, take);
        terminal_.restore();
        input_.stop();
        tasks_.stop();
        co_await tasks_.join();
        if (escape_.escaped()) std::fputs("\ndtrun: left; the job goes on\n", stderr);
        if (code) co_return *code;
        if (ended_by_ != 0) co_return plan::kExitSignalBase + ended_by_;
        co_return escape_.escaped() ? 0 : status_of(code.error());
    }

private:
    void take(const Answer& answer) {
        if (!control::write_answer(answer)) return client_.stop();
        has_raw_ = has_raw_ || answer.raw_terminal;
        if (answer.raw_terminal) terminal_.make_raw();
        if (answer.takes_more) input_.credit(HostId{0}, kPieceBytesMax);
        if (!std::exchange(begun_, true)) input_.start();
    }

    void typed(std::string_view bytes) {
        const std::string passed = terminal_.is_raw() ? escape_.pass(bytes) : std::string(bytes);
        if (escape_.escaped()) return client_.stop();
        if (!passed.empty()) client_.say(Input{passed});
        if (passed.empty()) input_.credit(HostId{0}, bytes.size());
    }

    asio::awaitable<void> watch_signals() {
        for (;;) {
            const auto [error, signal] = co_await signals_.async_wait(use_tuple);
            if (error) co_return;
            if (signal == SIGWINCH) {
                client_.say(Resize{output::UserTerminal::size()});
                continue;
            }
            if (signal == SIGCONT) {
                if (has_raw_) terminal_.make_raw();
                input_.resume();
                continue;
            }
            ended_by_ = signal;
            client_.stop();
        }
    }

    ControlRequest ask_;
    control::ControlClient client_;
    output::UserTerminal terminal_;
    output::EscapeWatch escape_;
    asio::signal_set signals_;
    output::StdinPump input_;
    TaskGroup tasks_;
    bool begun_ = false;
    bool has_raw_ = false;  ///< the rank has a terminal
    int ended_by_ = 0;
};

}  // namespace

const cli::FlagTable<ParsedLook>& stacks_flags() {
    static const cli::FlagTable<ParsedLook> table("dtrun stacks",
                                                  {stacks_rows(), cli::about_rows<ParsedLook>()});
    return table;
}

const cli::FlagTable<ParsedLook>& attach_flags() {
    static const cli::FlagTable<ParsedLook> table("dtrun attach", {cli::about_rows<ParsedLook>()});
    return table;
}

Result<ParsedLook> parse_stacks(cli::Words words) {
    return read_operands(words, stacks_flags(), 0, 1, "usage: dtrun stacks [JOB] [options]");
}

Result<ParsedLook> parse_attach(cli::Words words) {
    constexpr std::string_view kUsage = "usage: dtrun attach [JOB [RANK]]";
    auto parsed = read_operands(words, attach_flags(), 0, 2, kUsage);
    if (!parsed || parsed->asked != cli::Ask::nothing) return parsed;
    const std::vector<std::string>& operands = parsed->own.operands;
    // Such as that of a variable that is not set: not "the last job".
    if (operands.size() == 1 && operands.front().empty())
        return fail(Errc::invalid_input, "{}", kUsage);
    if (operands.size() < 2) return parsed;
    const auto rank = cli::whole_number(operands.back(), 0, kRanksMax - 1);
    if (!rank) return fail(rank.error(), "RANK");
    return parsed;
}

std::string stacks_help() {
    return std::string(kStacks) + cli::sections(stacks_flags().flags(), kSections);
}

std::string attach_help() {
    return std::string(kAttach);
}

int run_stacks(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_stacks(words);
    if (const auto status = cli::settled(parsed, stacks_help)) return *status;
    const LookCommand& own = parsed->own;
    auto job = find_job(own.operands.empty() ? "" : own.operands.front(), environment);
    if (!job) return cli::complain(job.error());
    ControlRequest ask;
    ask.limit_ms = static_cast<std::uint32_t>(own.timeout.count());
    ask.signal = own.signal;
    ask.native = own.native;
    asio::io_context io(1);
    control::ControlClient client(io.get_executor(), std::move(*job));
    return run_to_end(io, ask_for_stacks(client, ask));
}

int run_attach(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_attach(words);
    if (const auto status = cli::settled(parsed, attach_help)) return *status;
    const std::vector<std::string>& operands = parsed->own.operands;
    const bool has_rank =
        operands.size() > 1 || (operands.size() == 1 && to_int(operands[0], 0, kRanksMax - 1));
    if (!has_rank) return attach_to_job(operands.empty() ? "" : operands.front(), environment);
    auto job = find_job(operands.size() > 1 ? operands.front() : "", environment);
    if (!job) return cli::complain(job.error());
    const int rank = cli::whole_number(operands.back(), 0, kRanksMax - 1).value();
    asio::io_context io(1);
    Attachment attachment(io, std::move(*job), static_cast<Rank>(rank));
    return run_to_end(io, attachment.run());
}

}  // namespace dtrun::commands
