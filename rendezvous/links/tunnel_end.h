#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "rendezvous/wire/look_messages.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace dtrun {

/// One of the two ends of a TCP connection that is carried as `tunnel` frames: what comes from its socket is
/// sent, and what the other end has sent is written to the socket. At most kWindowBytes are under way in
/// each direction, so that the frames of others do not wait behind them.
///
/// Thread: the socket's. Lifetime: run() has ended before it is destroyed.
class TunnelEnd {
public:
    static constexpr std::uint32_t kWindowBytes = 256u << 10;

    TunnelEnd(tcp::socket socket, std::uint32_t number, std::function<void(const Tunnel&)> send);

    /// What the other end says, also before run().
    void take(const Tunnel& tunnel);
    /// Until one of the two sides has ended and what it sent before was written.
    asio::awaitable<void> run();
    void stop() noexcept;
    tcp::socket& socket() { return socket_; }

private:
    asio::awaitable<void> write_all();
    void say(std::string bytes, std::uint64_t taken, bool ended);

    tcp::socket socket_;
    std::uint32_t number_;
    std::function<void(const Tunnel&)> send_;
    std::deque<std::string> queue_;  ///< for the socket
    std::uint64_t room_ = kWindowBytes;
    bool other_ended_ = false;
    bool over_ = false;
    Timer has_room_;   ///< cancelled when there is room, or all is over
    Timer has_bytes_;  ///< the same for `queue_`
};

}  // namespace dtrun
