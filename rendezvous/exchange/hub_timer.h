#pragma once

#include "base/loop/asio.h"
#include "rendezvous/exchange/hub.h"

namespace dtrun {

/// Calls a hub's expire() at its next deadline.
///
/// Thread: the executor's, which must not run any more when the timer is destroyed. Lifetime: the hub
/// outlives it.
class HubTimer {
public:
    HubTimer(asio::any_io_executor executor, Hub& hub) : timer_(executor), hub_(hub) {}

    /// To be called after every event that may have made a request wait.
    void look() {
        const Deadline next = hub_.next_deadline();
        if (next == Deadline::max() || (armed_ && timer_.expiry() <= next)) return;
        armed_ = true;
        timer_.expires_at(next);
        timer_.async_wait([this](boost::system::error_code error) {
            if (error) return;
            armed_ = false;
            hub_.expire(Clock::now());
            look();
        });
    }

private:
    Timer timer_;
    Hub& hub_;
    bool armed_ = false;
};

}  // namespace dtrun
