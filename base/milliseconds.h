#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace dtrun {

/// A duration as messages carry it: whole milliseconds, at most 2^32 - 1, which is 49 days.
inline std::uint32_t to_ms(std::chrono::nanoseconds span) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ms, 0, UINT32_MAX));
}

}  // namespace dtrun
