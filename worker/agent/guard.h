#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace dtrun::agent {

/// Splits the process in two: returns in the child, which becomes the agent, in a session of its own
/// and a subreaper. The parent, named "dtrun-guard", stays and waits: when the agent has ended in
/// whatever way, SIGKILL included, it ends every process that the agent left behind, and exits with
/// the agent's status. When the guard itself is killed, the agent gets SIGTERM and does the same.
///
/// Signals that ask for something (kGuardSignals) are the agent's: it gets each under another number, so
/// that it can tell what was sent to the guard alone from what was sent to every process.
///
/// \param of_scheduler  a scheduler started it, to which the guard shows how the agent was killed: by SIGKILL, too
void start_guard(bool of_scheduler);

inline constexpr std::array kGuardSignals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

/// What the agent gets when the guard gets kGuardSignals[index].
inline int passed_on(std::size_t index) {
    return SIGRTMIN + static_cast<int>(index);
}

}  // namespace dtrun::agent
