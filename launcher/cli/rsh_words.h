#pragma once
// What mpirun is told of the ssh that it is to use, in words and variables of its own.

#include "base/result.h"
#include "launcher/plan/options.h"

#include <string>
#include <string_view>

namespace dtrun::cli {

/// Open MPI's plm_rsh_agent and plm_rsh_args, and what Hydra has for them.
struct RshWords {
    std::string agent{};      ///< "ssh : rsh": the first that there is; empty: ssh
    std::string arguments{};  ///< of it, before the host, as a shell splits them
};

/// Whether a setting of Open MPI is on, in letters of either case.
bool says_yes(std::string_view value);

/// Whether this is the name of one of the two settings, without "OMPI_MCA_"; keeps its value then.
bool keep_rsh_word(RshWords& words, std::string_view name, std::string_view value);

/// Makes of them what -p, -i and --ssh-command say; what was given by these stays. Errc: invalid_input
Result<void> follow_rsh_words(const RshWords& words, plan::Options& options);

}  // namespace dtrun::cli
