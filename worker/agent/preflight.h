#pragma once

#include "contracts/variables.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/ranks/wrappers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::agent {

/// One of several programs of a job, as it is on this host.
struct ProgramHere {
    std::string path;  ///< to execute; empty: no rank of this host runs it
    std::string directory;
    bool lacks_library = false;  ///< of dtrun: see carried_libraries.h
};

/// What was found out about this host before any rank is started.
struct Preflight {
    contracts::Environment env;  ///< of every rank, less what differs between ranks
    std::string program;         ///< path to execute; may be empty where a wrapper executes it
    bool lacks_library = false;  ///< of dtrun: see carried_libraries.h
    ranks::Wrappers wrappers;
    std::string directory;
    std::vector<ProgramHere> programs;  ///< if there are several, all; then `program` is empty
    std::string interface;  ///< the first of the user's that this host has; empty: none given
    HostProblem problem = HostProblem::none;
    std::string problem_text;
};

/// Merges environments, chooses the working directory and finds the program.
/// \param host_env  this host's own environment, "NAME=value"
Preflight check_host(const AgentConfig& config, char** host_env);

}  // namespace dtrun::agent
