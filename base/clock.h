#pragma once

#include <chrono>

namespace dtrun {

/// Monotonic time: the system's, or in a simulation the one that the test sets.
struct Clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock, duration>;
    static constexpr bool is_steady = true;

    static time_point now() noexcept {
        if (simulated != nullptr) return *simulated;
        return time_point(std::chrono::steady_clock::now().time_since_epoch());
    }

    /// The time of a simulation, which tests/support/virtual_time.h moves; nullptr in every program.
    static inline const time_point* simulated = nullptr;
};

/// An absolute moment by which something must have happened.
using Deadline = Clock::time_point;

inline Deadline after(std::chrono::nanoseconds span) {
    return Clock::now() + span;
}

}  // namespace dtrun
