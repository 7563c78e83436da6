#pragma once

namespace dtrun {

/// Splits the process in two: returns in the child, which becomes the agent, in a session of its own
/// and a subreaper. The parent, named "dtrun-guard", stays and waits: when the agent has ended in
/// whatever way, SIGKILL included, it ends every process that the agent left behind, and exits with
/// the agent's status. When the guard itself is killed, the agent gets SIGTERM and does the same.
void start_guard();

}  // namespace dtrun
