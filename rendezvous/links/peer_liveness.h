#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"

#include <cstdint>

namespace dtrun {

/// What one end of a connection knows of the life of the other one: when it was heard, what TCP knows
/// of its machine and of the network, and what it has said of itself.
///
/// Thread: the socket's. Lifetime: `socket` outlives it.
class PeerLiveness {
public:
    explicit PeerLiveness(StreamSocket& socket) : socket_(socket) {}

    void heard() { last_heard_ = Clock::now(); }
    Deadline last_heard() const { return last_heard_; }

    /// Whether, since last_heard(), the peer's kernel has sent ACKs and TCP has retransmitted
    /// packets. Exact only if asked at every beat.
    bool loses_packets();
    /// Whether the peer's kernel still acknowledges what we send; false without TCP. Meaningful
    /// only where something was sent every half second for three of these; heartbeats are, once one is late.
    bool machine_answers() const;

    /// The peer is about to be stopped by its user, or runs again. While it is stopped full buffers
    /// do not end the connection, and loss of its machine may take minutes to be noticed.
    void set_stopped(bool stopped);
    /// The peer has said whether it may not get a processor for seconds.
    void set_busy(bool busy) { busy_ = busy; }
    bool is_busy() const { return busy_; }

    static constexpr int kUserTimeoutMs = 6'000;  ///< for its kernel to acknowledge sent bytes

private:
    StreamSocket& socket_;
    Deadline last_heard_ = Clock::now();
    std::uint32_t repeated_ = 0;  ///< TCP's retransmissions until about last_heard_
    bool busy_ = false;
};

}  // namespace dtrun
