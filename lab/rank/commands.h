#pragma once

#include "lab/rank/options.h"
#include "lab/rank/rank_comm.h"

#include <functional>

namespace dtrun::lab::rank {

/// Writes a line of JSON, on rank 0; does nothing elsewhere.
using Print = std::function<void(const std::string& line)>;

/// What this rank does for each command, together with all others.
Result<void> run_facts(const RankOptions& options, const RankGroup& group, const Print& print);
Result<void> run_sweep(const RankOptions& options, const RankGroup& group, const Print& print);
Result<void> run_pairs(const RankOptions& options, const RankGroup& group, const Print& print);

}  // namespace dtrun::lab::rank
