// How an agent lets people look into its ranks: stacks, and a debugger.

#include "worker/agent/agent.h"

#include "base/log.h"
#include "base/loop/deadline.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/message.h"
#include "worker/ranks/agent_directories.h"
#include "worker/ranks/debug_command.h"
#include "worker/ranks/python_command.h"
#include "worker/ranks/stack_taker.h"

#include <algorithm>
#include <chrono>

namespace dtrun::agent {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kHangLimitMs = 3'000;  // for the stacks of a rank that hangs
constexpr std::size_t kHangLinesMax = 20;

/// The stack of a rank's first thread, for a message of one line after another.
std::string place_of(const std::vector<ProcessStacks>& processes) {
    std::string text;
    std::size_t lines = 0;
    for (const ProcessStacks& process : processes) {
        if (process.is_child || process.threads.empty()) continue;
        if (process.tool == "/proc" && process.note.empty()) continue;
        text += fmt::format("\n  {}, by {}:", process.program, process.tool);
        if (!process.note.empty()) text += " " + process.note;
        if (process.tool == "/proc") continue;  // where in the kernel it waits
        for (const std::string& frame : process.threads.front().frames)
            if (++lines <= kHangLinesMax) text += "\n    " + frame;
    }
    return text;
}

}  // namespace

asio::awaitable<void> Agent::answer_stacks(StackRequest request) {
    StackReport stacks;
    stacks.number = request.number;
    if (request.signal != 0)
        stacks.signalled = ranks::signal_catchers(runner_->running_ranks(), request.signal);
    else
        stacks.processes = co_await look_at(std::nullopt, request);
    link_->send(encode(stacks));
}

/// The answer does not wait for what GPUs do, which may take seconds to find out.
asio::awaitable<void> Agent::answer_usage(std::uint32_t number) {
    std::vector<ranks::RunningRank> ranks = runner_->running_ranks();
    UsageReport report;
    if (parts_.measure) report = parts_.measure(ranks);
    report.number = number;
    const auto steps = connections_->relay().steps();
    for (RankUsage& usage : report.ranks) {
        const auto found = steps.find(usage.rank);
        if (found == steps.end()) continue;
        usage.counts_steps = true;
        usage.step = found->second.step;
        usage.step_ns = found->second.at.time_since_epoch().count();
        usage.span_us = static_cast<std::uint64_t>(found->second.span.count() * 1e6);
    }
    link_->send(encode(report));
    if (!parts_.ask_gpus) co_return;
    contracts::Environment env = preflight_.env;
    co_await parts_.ask_gpus(std::move(ranks), std::move(env));
}

/// Two tools cannot look at one process at once, so those who ask have their turn.
asio::awaitable<std::vector<ProcessStacks>> Agent::look_at(std::optional<Rank> only,
                                                           StackRequest request) {
    const Deadline until = after(milliseconds(request.limit_ms));
    while (looking_ && Clock::now() < until) {
        DeadlineGuard guard(look_ends_, until);
        co_await look_ends_.async_wait(use_tuple);
    }
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    std::vector<ProcessStacks> stacks;
    if (looking_ || !parts_.take_stacks || left <= milliseconds(0)) co_return stacks;
    looking_ = true;
    request.limit_ms = static_cast<std::uint32_t>(left.count());
    std::vector<ranks::RunningRank> ranks = runner_->running_ranks();
    if (only)
        std::erase_if(ranks, [only](const ranks::RunningRank& each) { return each.rank != *only; });
    contracts::Environment env = preflight_.env;
    stacks = co_await parts_.take_stacks(std::move(ranks), std::move(env), request);
    looking_ = false;
    look_ends_.cancel();
    co_return stacks;
}

/// Where it hangs is told with it, if a tool can say that soon.
asio::awaitable<void> Agent::tell_hang(Rank rank, std::string why) {
    const std::uint64_t generation = assign_.generation;
    StackRequest request;
    request.limit_ms = kHangLimitMs;
    request.brief = true;
    const std::vector<ProcessStacks> stacks = co_await look_at(rank, request);
    if (config_.kills_hung()) why += ": it is killed (--on-hang)";
    tell_user(why + place_of(stacks));
    if (config_.kills_hung()) runner_->kill(generation, rank);
}

Result<void> Agent::open_debug_door() {
    if (!config_.debug_rank || config_.debug_host != config_.host) return {};
    debugger_proxy_ = std::make_unique<DebuggerProxy>(
        io_.get_executor(), ranks::directory_prefix(facts_.job, facts_.agent),
        [this](const Tunnel& tunnel) { link_->send(encode(tunnel)); });
    if (preflight_.problem != HostProblem::none) return {};
    ranks::RankCommand command = bare_command(static_cast<Rank>(*config_.debug_rank));
    const std::string& path = preflight_.env.at("PATH");
    command.env.push_back("PATH=" + path);
    debugger_ = ranks::debugger_for(command, config_.debugger);
    auto place = debugger_proxy_->open(debugger_);
    if (!place) return std::unexpected(place.error());
    debug_place_ = std::move(*place);
    // What is missing is found before anything runs.
    const auto found = ranks::wait_for_debugger(command, debugger_, debug_place_, path);
    if (found) return {};
    preflight_.problem = HostProblem::program_missing;
    preflight_.problem_text = found.error().message + " (--debug-rank)";
    return {};
}

/// Nobody is invited to a debugger that Python does not have.
asio::awaitable<void> Agent::check_debugger() {
    const bool is_asked = debugger_proxy_ && debugger_ == Debugger::debugpy && parts_.check_health;
    if (!is_asked || preflight_.problem != HostProblem::none) co_return;
    ranks::RankCommand command = bare_command(static_cast<Rank>(*config_.debug_rank));
    command.env = environment_of_checks();
    auto python = ranks::python_words(command);
    if (!python) co_return;
    python->words.resize(python->program);  // with Python's own options
    python->words.insert(python->words.end(), {"-c", "import debugpy"});
    command.path = python->path;
    command.argv = std::move(python->words);
    const auto found = co_await parts_.check_health(std::move(command));
    if (found) co_return;
    preflight_.problem = HostProblem::program_missing;
    preflight_.problem_text =
        fmt::format("{0} has no debugpy: {0} -m pip install debugpy there, or --debug-rank {1}:gdb",
                    python->path, *config_.debug_rank);
}

void Agent::add_debugger(ranks::RankCommand& command, const RankSlot& slot) {
    if (!debugger_proxy_ || !config_.is_debugged(slot.rank)) return;
    DebugStatus news{slot.rank, debugger_, command.path};
    const auto done =
        ranks::wait_for_debugger(command, debugger_, debug_place_, preflight_.env.at("PATH"));
    if (!done) return tell_user("--debug-rank: " + done.error().message);
    debug_news_ = std::move(news);
}

void Agent::tell_debugger(Rank rank) {
    if (debug_news_ && debug_news_->rank == rank) link_->send(encode(*debug_news_));
}

}  // namespace dtrun::agent
