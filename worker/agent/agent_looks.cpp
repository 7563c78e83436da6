// How an agent lets people look into its ranks: stacks, and a debugger.

#include "worker/agent/agent.h"

#include "base/log.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/message.h"
#include "worker/ranks/debug_command.h"
#include "worker/ranks/stack_taker.h"

#include <algorithm>

namespace dtrun::agent {
namespace {

constexpr std::uint32_t kHangLimitMs = 3'000;  // for the stacks of a rank that hangs
constexpr std::size_t kHangLinesMax = 20;

/// The stack of a rank's first thread, for a message of one line after another.
std::string place_of(const std::vector<ProcessStacks>& processes) {
    std::string text;
    std::size_t lines = 0;
    for (const ProcessStacks& process : processes) {
        if (process.is_child || process.threads.empty()) continue;
        text += fmt::format("\n  {}, by {}:", process.program, process.tool);
        for (const std::string& frame : process.threads.front().frames)
            if (++lines <= kHangLinesMax) text += "\n    " + frame;
    }
    return text;
}

}  // namespace

Result<void> Agent::on_look(std::string_view payload) {
    const auto look = decode<Look>(payload);
    if (!look) return std::unexpected(look.error());
    tasks_.spawn(answer_look(*look));
    return {};
}

asio::awaitable<void> Agent::answer_look(Look look) {
    Stacks stacks;
    stacks.number = look.number;
    if (look.signal != 0)
        stacks.signalled = ranks::signal_catchers(runner_->running_ranks(), look.signal);
    else if (parts_.take_stacks)
        stacks.processes =
            co_await parts_.take_stacks(runner_->running_ranks(), preflight_.env, look);
    link_->send(encode(stacks));
}

/// Where it hangs is told with it, if a tool can say that soon.
asio::awaitable<void> Agent::tell_hang(Rank rank, std::string why) {
    const std::uint64_t generation = assign_.generation;
    std::vector<ranks::RunningRank> ranks = runner_->running_ranks();
    std::erase_if(ranks, [rank](const ranks::RunningRank& each) { return each.rank != rank; });
    std::vector<ProcessStacks> stacks;
    Look look;
    look.limit_ms = kHangLimitMs;
    look.only_by_tools = true;
    if (parts_.take_stacks)
        stacks = co_await parts_.take_stacks(std::move(ranks), preflight_.env, look);
    if (bootstrap_.kill_hung) why += ": it is killed (--on-hang)";
    tell_user(why + place_of(stacks));
    if (bootstrap_.kill_hung) runner_->kill(generation, rank);
}

Result<void> Agent::open_debug_door() {
    if (bootstrap_.debugger == Debugger::none) return {};
    debug_door_ = std::make_unique<DebugDoor>(
        io_.get_executor(), [this](const Tunnel& tunnel) { link_->send(encode(tunnel)); });
    const auto port = debug_door_->reserve();
    if (!port) return std::unexpected(port.error());
    debug_port_ = *port;
    if (preflight_.problem != HostProblem::none) return {};
    // What is missing is found before anything runs.
    ranks::RankCommand command{.path = preflight_.program,
                               .argv = bootstrap_.argv,
                               .env = {},
                               .directory = preflight_.directory};
    const Debugger debugger = ranks::debugger_for(command, bootstrap_.debugger);
    const auto found =
        ranks::wait_for_debugger(command, debugger, debug_port_, preflight_.env.at("PATH"));
    if (found) return {};
    preflight_.problem = HostProblem::program_missing;
    preflight_.problem_text = found.error().message + " (--debug-rank)";
    return {};
}

void Agent::add_debugger(ranks::RankCommand& command, const RankSlot& slot) const {
    if (!debug_door_ || bootstrap_.debug_rank != slot.rank) return;
    const Debugger debugger = ranks::debugger_for(command, bootstrap_.debugger);
    const auto done =
        ranks::wait_for_debugger(command, debugger, debug_port_, preflight_.env.at("PATH"));
    if (!done) log::warn("--debug-rank: {}", done.error().message);
}

void Agent::tell_debugger(Rank rank) {
    if (!debug_door_ || bootstrap_.debug_rank != rank) return;
    const ranks::RankCommand command{.path = preflight_.program,
                                     .argv = bootstrap_.argv,
                                     .env = {},
                                     .directory = preflight_.directory};
    DebugNews news;
    news.rank = rank;
    news.debugger = ranks::debugger_for(command, bootstrap_.debugger);
    news.program = preflight_.program;
    link_->send(encode(news));
}

}  // namespace dtrun::agent
