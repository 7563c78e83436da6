#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/loop/task_group.h"

#include <chrono>
#include <functional>
#include <map>
#include <string>

namespace dtrun::agent {

/// What signals mean that reach an agent or its guard, straight or by way of a scheduler.
///
/// Some schedulers signal every process of their step, others only the one they started, which is the
/// guard: so what matters is who else has got the same signal within a moment.
///
/// Thread: the loop's. Lifetime: the owner awaits join() before destruction.
class AgentSignals {
public:
    struct Parts {
        asio::any_io_executor executor;
        bool of_scheduler = false;                    ///< a scheduler has started this agent
        std::function<void(int)> to_ranks;            ///< sends the signal to the ranks
        std::function<void(int)> ranks_had;           ///< says that the ranks have got it already
        std::function<void(int)> scheduler_ends_job;  ///< tells the head
        std::function<void(std::string)> leave;       ///< this agent is to end, and why
    };
    explicit AgentSignals(Parts parts);

    /// The agent itself has got a signal.
    /// \param guard_lives  the agent's parent is still there
    void agent_got(int signal, bool guard_lives);
    void guard_got(int signal);

    /// Whether the signal that ended a rank may have come from the scheduler; is_recent() knows
    /// kSpread later.
    bool is_unclear(int signal) const;
    /// Whether the scheduler has sent it to this agent, a moment ago.
    bool is_recent(int signal) const;
    /// Whether everybody has got it, ranks too, since their ancestors got it each for itself.
    bool everybody_got(int signal) const;

    /// Between the first and the last process that gets a scheduler's signal.
    static constexpr std::chrono::milliseconds kSpread{300};

    asio::awaitable<void> join();

private:
    void scheduler_sent(int signal);
    asio::awaitable<void> pass_on(int signal);

    Parts parts_;
    std::map<int, Deadline> agent_had_;  ///< signals, straight, and when
    std::map<int, Deadline> guard_had_;
    TaskGroup tasks_;
};

}  // namespace dtrun::agent
