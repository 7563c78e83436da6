#pragma once

#include "worker/client/outcome.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::embedded {

/// Expands a list of Slurm's, such as "gpu[01-03,7],login", in its order, zero padding kept. What
/// Slurm itself writes has one bracket for each prefix, at its end; more of them, with text behind,
/// are understood.
/// Failures: invalid (malformed, or more than 65,536 names)
Outcome<std::vector<std::string>> expand_nodelist(std::string_view text);

}  // namespace dtrun::embedded
