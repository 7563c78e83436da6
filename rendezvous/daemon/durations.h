#pragma once

#include "base/clock.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dtrun {

/// How long something took, every time, as Prometheus counts it: for each bound how often it took at most so long.
///
/// Thread: one adds, any may read.
class Durations {
public:
    static constexpr std::array kBounds_s = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                             0.1,    0.25,  0.5,    1.0,   2.5,  5.0,   10.0};

    void add(Clock::duration took) {
        const double seconds = std::chrono::duration<double>(took).count();
        const auto* const bound = std::ranges::lower_bound(kBounds_s, seconds);
        ++counts_[static_cast<std::size_t>(bound - kBounds_s.begin())];
        sum_ns_ += static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
    }
    /// How often it took at most kBounds_s[bound], but more than the bound before. \param bound  their number: more
    /// than all
    std::uint64_t count(std::size_t bound) const { return counts_[bound]; }
    double sum_s() const { return static_cast<double>(sum_ns_) / 1e9; }

private:
    std::array<std::atomic<std::uint64_t>, kBounds_s.size() + 1> counts_{};
    std::atomic<std::uint64_t> sum_ns_{0};
};

}  // namespace dtrun
