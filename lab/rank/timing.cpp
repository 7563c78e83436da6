#include "lab/rank/timing.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace dtrun::lab::rank {

Times summarize(std::span<double> times) {
    assert(!times.empty());
    std::ranges::sort(times);
    const auto count = static_cast<double>(times.size());
    const auto percentile = [&](double part) {
        return times[static_cast<std::size_t>(std::ceil(part * count)) - 1];
    };
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    return {times.front(), sum / count, percentile(0.5), percentile(0.99), times.back()};
}

}  // namespace dtrun::lab::rank
