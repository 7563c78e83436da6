#pragma once

#include "base/loop/asio.h"

#include <stdexcept>

namespace dtrun {

/// While alive, only run() moves dtrun's Clock. There may be one at a time.
class VirtualTime {
public:
    VirtualTime() { Clock::simulated = &now_; }
    ~VirtualTime() { Clock::simulated = nullptr; }
    VirtualTime(const VirtualTime&) = delete;
    VirtualTime& operator=(const VirtualTime&) = delete;

    Deadline now() const { return now_; }
    /// To be called by a handler: so long no other runs, as while the process is stopped.
    void stand_still(Clock::duration span) { now_ += span; }

    /// Runs handlers until `done()`. When none is ready the time moves to the next timer at once.
    /// \throws std::runtime_error when no timer is left, or at `limit`
    template <class Done>
    void run(asio::io_context& io, Done done, Deadline limit) {
        while (!done()) {
            TimerWait::next = Clock::duration::max();
            if (io.stopped()) io.restart();
            if (io.poll() > 0) continue;
            if (TimerWait::next == Clock::duration::max())
                throw std::runtime_error("nothing will ever happen again");
            now_ += std::max(TimerWait::next, Clock::duration(1'000));
            if (now_ > limit) throw std::runtime_error("it has not ended in time");
        }
    }

private:
    Deadline now_{std::chrono::hours(1'000)};
};

}  // namespace dtrun
