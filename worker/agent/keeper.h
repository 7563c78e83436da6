#pragma once

namespace dtrun::agent {

/// The option by which a holder of log-ins starts the agent's program.
inline constexpr const char* kKeep = "--keep";

/// Keeps a log-in useful: starts agents for jobs when the holder at the other end of its standard streams wants
/// them, and carries their standard streams (WarmStream).
///
/// Each agent is a program of its own, with what this one has got from the log-in: environment, directory, limits,
/// cgroup. At the end of the input, or when nothing is heard of the holder for long, it returns; the process then
/// ends, and with it the lifelines of the agents that it has started.
/// \return the process's exit status
int run_keeper();

}  // namespace dtrun::agent
