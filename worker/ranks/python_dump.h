#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"

#include <sys/types.h>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// What a Python process has said when it was asked where it is.
struct PythonDump {
    std::string text;  ///< as faulthandler writes it
    std::string why;   ///< why there is none; empty as well where nobody listens
};

/// Asks Python processes where their threads are, all at once: SIGURG for those that have imported
/// worker/agent_bundle/dtrun_startup, as a file of its name in them and their handler tell. Each writes into its own
/// file, from which what was read is removed. Others get no signal, and nothing is stopped.
///
/// \param until  who has not answered then, or after 1.5 s, is left out
/// \return one for each of `pids`
asio::awaitable<std::vector<PythonDump>> ask_python(std::vector<pid_t> pids, Deadline until);

/// Whether a process has imported that.
bool listens(pid_t pid);

/// What keeps a process from doing anything: it is stopped by a signal or by a debugger. Empty: nothing does.
std::string why_stopped(pid_t pid);

}  // namespace dtrun::ranks
