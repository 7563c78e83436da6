#pragma once

#include "collectives/bench/json_line.h"
#include "collectives/bench/options.h"
#include "collectives/bench/rank_comm.h"

#include <functional>

namespace dtrun::collectives::bench {

/// Writes a line of JSON, on rank 0; does nothing elsewhere.
using Print = std::function<void(const std::string& line)>;

/// What this rank does for each command, together with all others.
Result<void> run_facts(const BenchOptions& options, const Membership& membership,
                       const Print& print);
Result<void> run_sweep(const BenchOptions& options, const Membership& membership,
                       const Print& print);
Result<void> run_train(const BenchOptions& options, const Membership& membership,
                       const Print& print);

}  // namespace dtrun::collectives::bench
