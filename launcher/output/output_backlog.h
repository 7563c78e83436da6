#pragma once

#include "base/clock.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace dtrun::output {

/// Output that a host's agent has sent and dtrun has not written yet. No sockets, no clock.
///
/// An agent whose window is used up cannot send the rest of its output, and so not say that it is
/// done: for as long as dtrun's own reader pauses, the agent is not to blame.
class OutputBacklog {
public:
    void add(std::uint64_t bytes) { waiting_ += bytes; }

    /// This many bytes have been written.
    void left(std::uint64_t bytes, Deadline now) {
        bytes = std::min(bytes, waiting_);
        waiting_ -= bytes;
        credit_ += bytes;
        last_left_ = now;
    }

    /// Bytes that the agent may send again, since the last call.
    std::uint64_t take_credit() { return std::exchange(credit_, 0); }

    /// The deadline of an agent that was to answer by `deadline`: none while output waits here,
    /// else at least `limit` after the last was written, for the agent may have as much again.
    Deadline patience(Deadline deadline, std::chrono::milliseconds limit) const {
        return waiting_ > 0 ? Deadline::max() : std::max(deadline, last_left_ + limit);
    }

private:
    std::uint64_t waiting_ = 0;
    std::uint64_t credit_ = 0;
    Deadline last_left_{};
};

}  // namespace dtrun::output
