#pragma once

#include "base/result.h"

#include <string>

namespace dtrun::agent {

/// find_package() for the agent that runs.
Result<std::string> find_own_package();

/// Is the agent of this host: over standard input and output, with processes for ranks. The process must
/// be what start_guard() has left.
/// \param node  what the scheduler that starts all agents calls this host; else empty
/// \param lent_agent  that of take_lent_agent()
/// \return the process's exit status. What is still under way then ends with the process.
int run_agent(std::string node, std::string lent_agent);

}  // namespace dtrun::agent
