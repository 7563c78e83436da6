#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "rendezvous/wire/look_messages.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace dtrun {

/// One of the two ends of a connection that is carried as `tunnel` frames: what comes from its socket, or from a
/// pipe, is sent, and what the other end has sent is written to it, or to another pipe. At most kWindowBytes are
/// under way in each direction, so that the frames of others do not wait behind them.
///
/// Thread: the executor's. Lifetime: run() has ended before it is destroyed.
class TunnelEnd {
public:
    static constexpr std::uint32_t kWindowBytes = 256u << 10;

    TunnelEnd(asio::any_io_executor executor, std::uint32_t number,
              std::function<void(const Tunnel&)> send);

    /// \param from, to  non-blocking
    void open(Fd from, Fd to);
    void open(tcp::socket socket);
    /// What the other end says, also before run().
    void take(const Tunnel& tunnel);
    /// Once it is open: until one of the two sides has ended and what it sent before was written.
    asio::awaitable<void> run();
    void stop() noexcept;
    bool is_over() const { return over_ || other_ended_; }

private:
    asio::awaitable<void> write_all();
    void say(std::string bytes, std::uint64_t taken, bool ended);

    asio::posix::stream_descriptor from_, to_;
    std::uint32_t number_;
    std::function<void(const Tunnel&)> send_;
    std::deque<std::string> queue_;  ///< for the stream
    std::uint64_t room_ = kWindowBytes;
    bool other_ended_ = false;
    bool over_ = false;
    Timer has_room_;   ///< cancelled when there is room, or all is over
    Timer has_bytes_;  ///< the same for `queue_`
};

}  // namespace dtrun
