#pragma once

#include <fmt/core.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace dtrun {

/// A duration as messages carry it: whole milliseconds, at most 2^32 - 1, which is 49 days.
inline std::uint32_t to_ms(std::chrono::nanoseconds span) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ms, 0, UINT32_MAX));
}

/// A duration for the user, such as "0.25 s".
inline std::string in_seconds(std::chrono::milliseconds span) {
    return fmt::format("{:.3g} s", std::chrono::duration<double>(span).count());
}

}  // namespace dtrun
