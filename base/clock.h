#pragma once

#include <chrono>

namespace dtrun {

using Clock = std::chrono::steady_clock;
/// An absolute moment by which something must have happened.
using Deadline = Clock::time_point;

inline Deadline after(std::chrono::nanoseconds span) {
    return Clock::now() + span;
}

}  // namespace dtrun
