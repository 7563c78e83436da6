#pragma once

#include "base/result.h"

#include <string>

namespace dtrun::transport {

/// An agent program that can be started here or copied to a host.
struct AgentFile {
    std::string path;
    std::string build_id;  ///< names it in hosts' caches
    std::string
        package{};  ///< archive of the Python package that goes with it; empty: there is none
};

/// The agent that belongs to this dtrun: beside it, or in ../libexec/dtrun/. For another CPU:
/// "dtrun-agent-<machine>" at the same places. Its package lies beside it: "dtrun-package.tar.gz", or
/// "dtrun-package-<machine>.tar.gz".
/// \param machine  as `uname -m` says; empty: this machine's
/// Errc: not_found (the message lists the places), invalid_input
Result<AgentFile> find_agent(const std::string& machine = {});

}  // namespace dtrun::transport
