#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "contracts/variables.h"
#include "rendezvous/wire/look_messages.h"
#include "worker/ranks/rank_runner.h"

#include <sys/types.h>
#include <string>
#include <vector>

namespace dtrun::ranks {

class Supervisor;

/// Finds out where processes of ranks are. Python that listens says so itself (ask_python()); other Python by py-spy and
/// native code by gdb, where PATH has them; else by what /proc says. A process is stopped only while one of the two reads
/// it, and goes on if the tool is killed at its limit. One tool runs at a time.
///
/// \param ranks  first these, then the processes below them
/// \param env    of the ranks: its PATH is searched
/// \return each process by each tool that has told something; /proc, at once, for what is left at the limit
asio::awaitable<std::vector<ProcessStacks>> take_stacks(Supervisor& processes,
                                                        std::vector<RunningRank> ranks,
                                                        contracts::Environment env,
                                                        StackRequest request);

/// Sends a signal to those of the ranks that catch it, so that it ends none. \return how many
std::uint32_t signal_catchers(const std::vector<RunningRank>& ranks, int signal);

/// What /proc says of a process. \return no threads if it has gone
ProcessStacks stacks_by_proc(pid_t pid);

}  // namespace dtrun::ranks
