#pragma once

#include "base/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::transport {

/// An agent program that can be started here or copied to a host.
struct AgentFile {
    std::string path;
    std::string build_id;  ///< names it in hosts' caches
    std::string
        package{};  ///< archive of the Python package that goes with it; empty: there is none
};

/// The agent that belongs to this dtrun: beside it, or in ../libexec/dtrun/. For another CPU:
/// "dtrun-agent-<CPU>" at the same places. Its package lies beside it: "dtrun-package.tar.gz", or
/// "dtrun-package-<CPU>.tar.gz".
/// \param machine  as `uname -m` says; empty: this machine's
/// Errc: not_found (the message lists the places, and what to do), denied, invalid_input (it is of another CPU, or
/// no agent)
Result<AgentFile> find_agent(const std::string& machine = {});
/// The same for a dtrun that lies in a folder.
Result<AgentFile> find_agent_near(const std::string& folder, const std::string& machine);

/// Build ids of all agents that this dtrun has: of its own CPU, then of others.
std::vector<std::string> agent_build_ids();
/// The same for a dtrun that lies in a folder.
std::vector<std::string> agent_build_ids_near(const std::string& folder);

/// The CPU for which this dtrun was built, as `uname -m` says: a 32-bit personality does not change it.
std::string own_cpu();

/// The name that Linux has for a CPU which others call "arm64" or "amd64".
std::string_view cpu_of(std::string_view machine);

}  // namespace dtrun::transport
