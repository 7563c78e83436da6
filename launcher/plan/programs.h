#pragma once
// A job of several programs, as in `-np 2 a : -np 1 b`. One of a single program has none of this.

#include "base/result.h"
#include "hostfiles/placement.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <string>
#include <vector>

namespace dtrun::plan {

/// One of several programs of a job. Its ranks are consecutive.
struct PlannedProgram {
    std::vector<std::string> argv;
    std::vector<Options::Variable> env;  ///< of its ranks, besides their host's
    std::string directory;               ///< empty: the job's
    int ranks = 0;
};

/// Whether each program has hosts of its own.
bool has_own_hosts(const Options& options);

/// The words of -H: of the job, or of all programs together.
std::string all_hosts_words(const Options& options);

/// Places the ranks of each program on its own hosts. A host of several programs is one host, with the
/// slots of all. Errc: invalid_input
Result<Placement> place_programs(const Options& options);

/// Decides what each program's ranks get; nothing for a job of one program. Errc: invalid_input
/// \param directory  the caller's working directory
Result<std::vector<PlannedProgram>> plan_programs(const Options& options, EnvironmentView caller,
                                                  const std::string& directory);

/// A directory that --wdir names. Errc: invalid_input (it is relative, and `from` has been removed)
/// \param from  where a relative one begins; empty: it has been removed
Result<std::string> whole_directory(const std::string& wdir, const std::string& from);

}  // namespace dtrun::plan
