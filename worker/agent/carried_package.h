#pragma once

#include "base/result.h"
#include "contracts/variables.h"

#include <string>
#include <string_view>

namespace dtrun::agent {

/// How the package that was built with an agent is known, by two SHA-256 in hexadecimal. Since they are part of the
/// agent, another package makes another build id, and hosts get both anew.
struct PackageDigests {
    std::string_view archive;  ///< empty: it has none
    std::string_view names;    ///< of the lines "SIZE NAME" of its files, sorted by their names
};
extern const PackageDigests kPackage;

/// The folder that has dtrun's Python package for ranks of this host (worker/carried/README.md). It is `package`
/// beside an agent that was built or installed here. Beside one that was copied, `agent-<id>`, it is `package-<id>`,
/// which is made of `package-<id>.tar.gz` when it is needed first, and again if others could have changed it, or if
/// its files are not those that were unpacked.
/// \param agent  the agent's file
/// Errc: not_found (there is neither folder nor archive), invalid_input (a damaged archive), denied (others could change
/// it), internal (it cannot be unpacked)
Result<std::string> find_package(const std::string& agent, const PackageDigests& digests);

/// Makes ranks find the package: behind what the user's PYTHONPATH says.
/// \param horovod  put dtrun's package `horovod` in front of all, too
void add_to_python_path(const std::string& package, bool horovod, contracts::Environment& env);

}  // namespace dtrun::agent
