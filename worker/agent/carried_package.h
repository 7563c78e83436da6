#pragma once

#include "base/result.h"
#include "contracts/variables.h"

#include <string>
#include <string_view>

namespace dtrun::agent {

/// SHA-256, in hexadecimal, of the archive that was built with this agent; empty: it has none. Since it is part of
/// the agent, another package makes another build id, and hosts get both anew.
extern const std::string_view kPackageDigest;

/// The folder that has dtrun's Python package for ranks of this host (worker/carried/README.md). It is `package`
/// beside an agent that was built or installed here. Beside one that was copied, `agent-<id>`, it is `package-<id>`,
/// which is made of `package-<id>.tar.gz` when it is needed first.
/// \param agent   the agent's file
/// \param digest  of the archive
/// Errc: not_found (there is neither folder nor archive), invalid_input (a damaged archive), denied, internal (it
/// cannot be unpacked)
Result<std::string> find_package(const std::string& agent, std::string_view digest);

/// Makes ranks find the package: behind what the user's PYTHONPATH says.
/// \param horovod  put dtrun's package `horovod` in front of all, too
void add_to_python_path(const std::string& package, bool horovod, contracts::Environment& env);

}  // namespace dtrun::agent
