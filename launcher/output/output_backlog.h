#pragma once

#include "base/clock.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace dtrun::output {

/// What a host's agent has sent and nobody has read from us yet. No sockets, no clock.
///
/// An agent whose window is used up can send no more output, nor say that it is done before it has: for
/// as long as our own reader pauses, it is not to blame.
class OutputBacklog {
public:
    void add(std::uint64_t bytes) { waiting_ += bytes; }

    /// So many were read.
    void left(std::uint64_t bytes, Deadline now) {
        bytes = std::min(bytes, waiting_);
        waiting_ -= bytes;
        credit_ += bytes;
        last_left_ = now;
    }

    /// Bytes that the agent may send again, since the last call.
    std::uint64_t take_credit() { return std::exchange(credit_, 0); }

    /// By when an agent has to answer that was given until `deadline`: not while something waits here,
    /// and after that within `limit`, for it may have as much again.
    Deadline patience(Deadline deadline, std::chrono::milliseconds limit) const {
        return waiting_ > 0 ? Deadline::max() : std::max(deadline, last_left_ + limit);
    }

private:
    std::uint64_t waiting_ = 0;
    std::uint64_t credit_ = 0;
    Deadline last_left_{};
};

}  // namespace dtrun::output
