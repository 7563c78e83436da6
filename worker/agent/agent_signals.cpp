#include "worker/agent/agent_signals.h"

#include "worker/agent/guard.h"

#include <fmt/format.h>
#include <algorithm>
#include <csignal>

namespace dtrun::agent {
namespace {

/// Signals for the ranks to make of what they like; the others of kGuardSignals end the job.
bool asks_ranks(int signal) {
    return signal == SIGUSR1 || signal == SIGUSR2;
}

bool ends_job(int signal) {
    return !asks_ranks(signal) && std::ranges::find(kGuardSignals, signal) != kGuardSignals.end();
}

bool is_recent_in(const std::map<int, Deadline>& signals, int signal) {
    const auto found = signals.find(signal);
    return found != signals.end() && Clock::now() - found->second < 2 * AgentSignals::kSpread;
}

}  // namespace

AgentSignals::AgentSignals(Parts parts) : parts_(std::move(parts)), tasks_(parts_.executor) {}

void AgentSignals::agent_got(int signal, bool guard_lives) {
    if (parts_.of_scheduler && guard_lives) {
        agent_had_[signal] = Clock::now();
        scheduler_sent(signal);
    } else if (!asks_ranks(signal)) {
        parts_.leave(
            fmt::format("signal {}", signal));  // the guard died, or somebody wants us gone
    }
}

void AgentSignals::guard_got(int signal) {
    if (!parts_.of_scheduler) {
        if (asks_ranks(signal)) return parts_.to_ranks(signal);
        return parts_.leave(fmt::format("signal {}", signal));
    }
    guard_had_[signal] = Clock::now();
    scheduler_sent(signal);
    if (asks_ranks(signal)) tasks_.spawn(pass_on(signal));
}

asio::awaitable<void> AgentSignals::pass_on(int signal) {
    Timer timer(parts_.executor, kSpread);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (!error && !is_recent(signal)) parts_.to_ranks(signal);
}

/// Handles a signal that a scheduler has sent. One that ends a process means the whole job: the
/// head is told, and ends the ranks with the grace that the user asked for.
void AgentSignals::scheduler_sent(int signal) {
    if (asks_ranks(signal)) return;
    if (everybody_got(signal)) parts_.ranks_had(signal);
    parts_.scheduler_ends_job(signal);
}

bool AgentSignals::is_unclear(int signal) const {
    return parts_.of_scheduler && ends_job(signal);
}

bool AgentSignals::is_recent(int signal) const {
    return is_recent_in(agent_had_, signal);
}

bool AgentSignals::everybody_got(int signal) const {
    return is_recent_in(agent_had_, signal) && is_recent_in(guard_had_, signal);
}

asio::awaitable<void> AgentSignals::join() {
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::agent
