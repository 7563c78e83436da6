#pragma once

#include "base/clock.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

namespace dtrun {

/// Keeps what strangers can make happen as often as they like from filling the log.
class Throttle {
public:
    explicit Throttle(std::chrono::milliseconds pause = std::chrono::seconds(5)) : pause_(pause) {}

    /// It has happened once more. \return how often since it was last told, if it is to be told now
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
