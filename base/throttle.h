#pragma once

#include "base/clock.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

namespace dtrun {

/// Limits how often an event is logged that strangers can cause as often as they like.
class Throttle {
public:
    explicit Throttle(std::chrono::milliseconds pause = std::chrono::seconds(5)) : pause_(pause) {}

    /// Counts an event.
    /// \return the number of events since the last log line, if one is to be logged now
    std::optional<std::size_t> count(Deadline now = Clock::now()) {
        ++times_;
        if (told_ && now < *told_ + pause_) return std::nullopt;
        told_ = now;
        return std::exchange(times_, 0);
    }

private:
    std::chrono::milliseconds pause_;
    std::optional<Deadline> told_;
    std::size_t times_ = 0;
};

}  // namespace dtrun
