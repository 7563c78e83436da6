#include "worker/ranks/stack_taker.h"

#include "base/fd.h"
#include "base/strings.h"
#include "worker/ranks/helper_run.h"
#include "worker/ranks/process_tree.h"
#include "worker/ranks/python_dump.h"
#include "worker/ranks/rank_process.h"
#include "worker/ranks/stack_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

namespace dtrun::ranks {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kToolLimit{10'000};         // for one process
constexpr std::size_t kOutputBytesMax = 1u << 20;  // of one tool
constexpr std::size_t kProcessesMax = 256;
constexpr std::size_t kAnswerBytesMax = 4u << 20;  // of all stacks of a host

std::string proc_text(pid_t pid, std::string_view file) {
    return read_file(fmt::format("/proc/{}/{}", pid, file), 1u << 20).value_or("");
}

std::string program_of(pid_t pid) {
    std::error_code none;
    const auto file = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), none);
    return none ? std::string(trim(proc_text(pid, "comm"))) : file.filename().string();
}

/// An interpreter, or a program that has one inside.
bool is_python(pid_t pid) {
    return program_of(pid).starts_with("python") || listens(pid);
}

/// A program that does nothing but wait for the one that it has started.
bool is_wrapper(pid_t pid) {
    constexpr std::array<std::string_view, 22> kWrappers{
        "ash",  "bash",    "busybox", "conda",  "csh",  "dash", "env", "fish",
        "ksh",  "mamba",   "ncu",     "nice",   "nsys", "perf", "sh",  "singularity",
        "time", "timeout", "uv",      "strace", "tcsh", "zsh"};
    const std::string program = program_of(pid);
    return std::ranges::find(kWrappers, program) != kWrappers.end();
}

bool is_stopped(pid_t pid) {
    return status_value(proc_text(pid, "status"), "State").starts_with('T');
}

std::string directory_of(pid_t pid) {
    std::error_code none;
    return std::filesystem::read_symlink(fmt::format("/proc/{}/cwd", pid), none).native();
}

/// What can be asked of this host: paths, empty where the tool is not there.
struct Tools {
    std::string gdb, py_spy;
    std::vector<std::string> env;
};

/// Tools get little of the ranks' environment: what makes a rank find its Python misleads that of gdb.
Tools find_tools(const contracts::Environment& env) {
    const auto value = [&env](std::string_view name) {
        const auto found = env.find(name);
        return found == env.end() ? std::string() : found->second;
    };
    const std::string path = value("PATH");
    Tools tools;
    tools.gdb = find_program("gdb", "/", path).value_or("");
    tools.py_spy = find_program("py-spy", "/", path).value_or("");
    tools.env = {"PATH=" + path, "HOME=" + value("HOME"), "LC_ALL=C", "TERM=dumb"};
    return tools;
}

RankCommand gdb_command(const Tools& tools, pid_t pid) {
    RankCommand command{.path = tools.gdb, .argv = {}, .env = tools.env, .directory = "/"};
    command.argv = {"gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off"};
    for (const char* const before : {"set auto-load off", "set width 0"})
        command.argv.insert(command.argv.end(), {"-iex", before});
    command.argv.insert(command.argv.end(), {"-p", std::to_string(pid)});
    for (const char* const then : {"set print frame-arguments none", "set print address off"})
        command.argv.insert(command.argv.end(), {"-ex", then});
    const std::string show = fmt::format("thread apply all bt {}", kFramesMax);
    command.argv.insert(command.argv.end(), {"-ex", show});
    return command;
}

RankCommand py_spy_command(const Tools& tools, pid_t pid) {
    RankCommand command{.path = tools.py_spy, .argv = {}, .env = tools.env, .directory = "/"};
    command.argv = {"py-spy", "dump", "--pid", std::to_string(pid)};
    return command;
}

std::size_t size_of(const ProcessStacks& process) {
    std::size_t bytes = 256 + process.note.size() + process.program.size();
    for (const ThreadStack& thread : process.threads) {
        bytes += thread.name.size() + 8;
        for (const std::string& frame : thread.frames) bytes += frame.size() + 8;
    }
    return bytes;
}

struct Target {
    Rank rank{};
    pid_t pid = 0;
    bool is_child = false;
    bool is_python = false;
    std::string note{};  ///< why a tool has told nothing
    bool told = false;
    bool lacks_main = false;  ///< the main thread is not among those that were told
};

/// The process in which a rank's program is: that itself, or below a shell or another wrapper the first Python.
std::size_t own_of(const std::vector<Target>& family) {
    if (!is_wrapper(family.front().pid)) return 0;
    const auto python = std::ranges::find_if(family, &Target::is_python);
    return python == family.end() ? 0 : static_cast<std::size_t>(python - family.begin());
}

/// The ranks first, as time may be short. Where a rank is Python, whatever else it has started is left out, unless
/// native functions are wanted.
std::vector<Target> targets_of(const std::vector<RunningRank>& ranks, const StackRequest& request) {
    std::vector<pid_t> roots;
    for (const RunningRank& rank : ranks) roots.push_back(rank.pid);
    const auto below = descendants_of_each(roots);
    std::vector<Target> targets, others;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        std::vector<Target> family{{ranks[i].rank, ranks[i].pid, true, is_python(ranks[i].pid)}};
        for (const pid_t child : below[i]) {
            if (family.size() + others.size() > kProcessesMax) break;
            family.push_back({ranks[i].rank, child, true, is_python(child)});
        }
        const std::size_t own = own_of(family);
        for (std::size_t at = 0; at < family.size(); ++at) {
            family[at].is_child = at != own;
            const bool is_other = family[own].is_python && !family[at].is_python && !request.native;
            if (at != own && (is_other || request.brief)) continue;
            (at == own ? targets : others).push_back(std::move(family[at]));
        }
    }
    targets.insert(targets.end(), others.begin(), others.end());
    if (targets.size() > kProcessesMax) targets.resize(kProcessesMax);
    return targets;
}

/// What has been told of a host's processes.
class Taken {
public:
    explicit Taken(const StackRequest& request) : is_brief_(request.brief) {}

    void add(const Target& target, ProcessStacks process) {
        process.rank = target.rank;
        process.pid = target.pid;
        process.is_child = target.is_child;
        process.program = program_of(target.pid);
        if (std::string why = why_stopped(target.pid); !why.empty()) process.note = std::move(why);
        if (is_brief_ && process.threads.size() > 1) process.threads.resize(1);
        bytes_ += size_of(process);
        if (bytes_ <= kAnswerBytesMax) processes_.push_back(std::move(process));
    }
    std::vector<ProcessStacks> take() { return std::move(processes_); }

private:
    bool is_brief_;
    std::vector<ProcessStacks> processes_;
    std::size_t bytes_ = 0;
};

/// One tool, and what is made of its text.
struct Tool {
    std::string_view name;
    RankCommand (*command)(const Tools&, pid_t);
    std::vector<ThreadStack> (*parse)(std::string_view);
};
constexpr Tool kPySpy{"py-spy", py_spy_command, parse_py_spy};
constexpr Tool kGdb{"gdb", gdb_command, parse_gdb};

std::string why_nothing(std::string_view tool, const Result<HelperEnd>& end) {
    if (!end) return end.error().message;
    if (!end->status) return fmt::format("{} was not through in time", tool);
    return fmt::format("{}{}", tool, last_words(end->err));
}

asio::awaitable<void> ask(Supervisor& processes, const Tools& tools, const Tool& tool,
                          Deadline until, Target& target, Taken& taken) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    if (left <= milliseconds(0)) co_return;
    const bool was_stopped = is_stopped(target.pid);
    RankCommand command = tool.command(tools, target.pid);
    const milliseconds limit = std::min(left, kToolLimit);
    const auto end = co_await run_helper(processes, std::move(command), limit, kOutputBytesMax);
    // A tool that was killed, and has gone, may have left the process stopped.
    if (end && !end->status && !was_stopped && is_stopped(target.pid)) ::kill(target.pid, SIGCONT);
    ProcessStacks process;
    process.tool = tool.name;
    if (end) process.threads = fold_threads(tool.parse(end->out));
    target.told = target.told || !process.threads.empty();
    if (process.threads.empty())
        target.note = why_nothing(tool.name, end);
    else
        taken.add(target, std::move(process));
}

/// Who can tell it himself: fast, and without any tool.
asio::awaitable<void> ask_pythons(std::vector<Target>& targets, Deadline until, Taken& taken) {
    std::vector<pid_t> pids;
    std::vector<Target*> asked;
    for (Target& target : targets) {
        if (!target.is_python) continue;
        pids.push_back(target.pid);
        asked.push_back(&target);
    }
    const std::vector<PythonDump> dumps = co_await ask_python(std::move(pids), until);
    for (std::size_t i = 0; i < dumps.size(); ++i) {
        ProcessStacks process;
        process.tool = "faulthandler";
        process.threads =
            fold_threads(parse_faulthandler(dumps[i].text, directory_of(asked[i]->pid)));
        asked[i]->told = !process.threads.empty();
        asked[i]->lacks_main = asked[i]->told && process.threads.front().name != kMainThread;
        if (asked[i]->lacks_main)
            process.note = "it has more than 100 threads, and Python tells the youngest alone";
        asked[i]->note = dumps[i].why;
        if (asked[i]->told) taken.add(*asked[i], std::move(process));
    }
}

}  // namespace

asio::awaitable<std::vector<ProcessStacks>> take_stacks(Supervisor& processes,
                                                        std::vector<RunningRank> ranks,
                                                        contracts::Environment env,
                                                        StackRequest request) {
    const Tools tools = find_tools(env);
    const Deadline until = after(milliseconds(request.limit_ms));
    std::vector<Target> targets = targets_of(ranks, request);
    Taken taken(request);
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    // What the author of a Python program looks for comes first, and fast.
    co_await ask_pythons(targets, until, taken);
    // Others have their turn between two processes, as /proc takes a while on a busy host.
    for (Target& target : targets) {
        if (tools.py_spy.empty()) break;
        co_await asio::post(executor, asio::use_awaitable);
        if (target.is_python && (!target.told || target.lacks_main))
            co_await ask(processes, tools, kPySpy, until, target, taken);
    }
    for (Target& target : targets)
        if (!tools.gdb.empty() && (request.native || !target.is_python))
            co_await ask(processes, tools, kGdb, until, target, taken);
    for (const Target& target : targets) {
        const bool is_wanted =
            target.is_python || !request.brief || !why_stopped(target.pid).empty();
        if (target.told || !is_wanted) continue;
        co_await asio::post(executor, asio::use_awaitable);
        ProcessStacks process = stacks_by_proc(target.pid);
        process.note = target.note;
        if (!process.threads.empty()) taken.add(target, std::move(process));
    }
    co_return taken.take();
}

std::uint32_t signal_catchers(const std::vector<RunningRank>& ranks, int signal) {
    if (signal < 1 || signal >= NSIG) return 0;
    std::uint32_t count = 0;
    for (const RunningRank& rank : ranks) {
        const std::string status = proc_text(rank.pid, "status");
        const std::string mask(status_value(status, "SigCgt"));
        const bool is_caught = (std::strtoull(mask.c_str(), nullptr, 16) >> (signal - 1) & 1) != 0;
        if (is_caught && ::kill(rank.pid, signal) == 0) ++count;
    }
    return count;
}

ProcessStacks stacks_by_proc(pid_t pid) {
    ProcessStacks process;
    process.tool = "/proc";
    std::vector<ThreadStack> threads;
    std::error_code error;  // it may end meanwhile
    for (std::filesystem::directory_iterator task(fmt::format("/proc/{}/task", pid), error), end;
         !error && task != end; task.increment(error)) {
        const std::string path = task->path().string();
        const auto text = [&path](const char* file) {
            return read_file(fmt::format("{}/{}", path, file), 64u << 10).value_or("");
        };
        ThreadStack thread{.name = std::string(trim(text("comm"))),
                           .frames = parse_kernel_stack(text("stack"))};
        const std::string where(trim(text("wchan")));
        if (thread.frames.empty())
            thread.frames.push_back(where.empty() || where == "0" ? "runs" : where);
        threads.push_back(std::move(thread));
    }
    process.threads = fold_threads(std::move(threads));
    return process;
}

}  // namespace dtrun::ranks
