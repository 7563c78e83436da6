#pragma once

#include "base/result.h"

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// Every living process below `root`, however deep, `root` itself not included. Zombies are left out.
/// A process that daemonized is still found while an ancestor of it is a subreaper below `root` or
/// `root` itself is one.
/// \param except  these are left out, with all below them
std::vector<pid_t> descendants(pid_t root, std::span<const pid_t> except = {});

/// The same for several roots, by one look at all processes. \return one list for each root
std::vector<std::vector<pid_t>> descendants_of_each(std::span<const pid_t> roots);

/// Whether a process, or only its first thread, is ending or has ended and is not reaped: peers may have seen its
/// connections close.
bool is_ending(pid_t pid);

/// Whether a process has started the one that has started us, or so on.
bool is_ancestor(pid_t pid);

/// What the environment of a process was at its exec: each variable between zeros. Only zeros if it is gone.
std::string environment_of(pid_t pid);
/// Whether it has all of these, as "NAME=value".
bool has_variables(const std::string& environment, std::span<const std::string> variables);

/// Living processes of this user whose environment at exec time had DTRUN_JOB=`job` and DTRUN_AGENT=`agent`,
/// other than the caller and its ancestors: what is left of an agent that is gone, as its guard is. Another
/// agent of the job may be on this machine.
std::vector<pid_t> processes_of_agent(const std::string& job, std::uint64_t agent);

/// Sends SIGKILL to every descendant of the calling process; stops them first, so that none can fork
/// meanwhile. An orphan on its way to us may be missed: to be repeated until no child is left.
/// \param except  these are spared, with all below them
/// \return who it was
std::vector<pid_t> kill_descendants(std::span<const pid_t> except = {});

/// Repeats kill_descendants() and reaps children until no child is left, or the time is over: a
/// process in uninterruptible sleep cannot be ended. Blocks.
/// \return how many processes were killed
int end_descendants(std::chrono::milliseconds limit);

/// Lets every thread that a process has now use these processors only, and so those that it makes later.
/// \param cpus       by the numbers of Linux; empty: nothing changes
/// \param only_from  threads that may use others than these have chosen for themselves, and are left alone; empty:
///                   none are
/// Errc: internal
Result<void> bind_process(pid_t process, std::span<const unsigned> cpus,
                          std::span<const unsigned> only_from = {});

}  // namespace dtrun::ranks
