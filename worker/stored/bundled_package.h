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

/// The folder that has dtrun's Python package for ranks of this host (worker/agent_bundle/README.md). It is `package`
/// beside an agent that was built here. It is `package-<id>` beside one that was copied, `agent-<id>`, made of
/// `package-<id>.tar.gz`; and one in the cache for one that was installed, made of `dtrun-package.tar.gz` beside that.
/// Those two are made when they are needed first, and again if others could have changed them, or if their files are
/// not those that were unpacked.
/// \param agent  the agent's file
/// \param cache  the user's own folder for what dtrun makes, which need not exist; empty: they have none
/// Errc: not_found (there is neither folder nor archive, or no place to unpack it), invalid_input (a damaged archive),
/// denied (others could change it, or put another in its place), internal (it cannot be unpacked)
Result<std::string> find_package(const std::string& agent, const PackageDigests& digests,
                                 const std::string& cache);

/// A user's cache, or `elsewhere` if nothing can be executed in the cache, as libraries of the package are, and can be
/// there: homes are mounted noexec on many clusters.
/// \param cache  need not exist; empty: there is none, and neither elsewhere
std::string cache_for_code(const std::string& cache, const std::string& elsewhere);

/// Makes ranks find the package: behind what the user's PYTHONPATH says, and before that what they import at their
/// start, by which `dtrun stacks` sees where they are.
/// \param horovod  put dtrun's package `horovod` in front of all, too
void add_to_python_path(const std::string& package, bool horovod, contracts::Environment& env);

}  // namespace dtrun::agent
