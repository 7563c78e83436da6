#pragma once

#include <span>

namespace dtrun::lab::rank {

/// Statistics of the times of iterations, in the same unit.
struct Times {
    double min = 0;
    double mean = 0;
    double p50 = 0;  ///< half of the iterations took no longer
    double p99 = 0;
    double max = 0;
};

/// \param times  at least one; are sorted
Times summarize(std::span<double> times);

}  // namespace dtrun::lab::rank
