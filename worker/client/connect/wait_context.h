#pragma once

#include "base/clock.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

namespace dtrun::embedded {

using Moment = Deadline;

inline Moment now() {
    return Clock::now();
}

/// `timeout_ms` from now; negative: never.
inline Moment moment_after(std::int64_t timeout_ms) {
    constexpr std::int64_t kYearMs = 366LL * 86'400 * 1'000;
    if (timeout_ms < 0 || timeout_ms > kYearMs) return Moment::max();
    return now() + std::chrono::milliseconds(timeout_ms);
}

/// A deadline of a thread that waits, and what may end the wait before it.
struct WaitContext {
    static constexpr std::chrono::milliseconds kAskInterval{200};

    Moment deadline = Moment::max();
    std::function<bool()> give_up;  ///< asked after signals and each kAskInterval; none: never

    bool over() const { return deadline != Moment::max() && now() >= deadline; }
    /// Until when to wait before asking again.
    Moment slice() const { return give_up ? std::min(deadline, now() + kAskInterval) : deadline; }
};

/// How long we wait to hear how a fence has ended for all whose timeout is over.
inline constexpr std::int64_t kAnswerGraceMs = 10'000;

}  // namespace dtrun::embedded
