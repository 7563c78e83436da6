#pragma once

#include "base/asio.h"
#include "base/result.h"
#include "rendezvous/frame.h"

#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace dtrun {

/// An authenticated connection that carries frames.
///
/// Sending never waits: bytes go out at once where the socket takes them and are queued otherwise.
/// When it fails, what is queued is dropped, silently: receive() tells that the peer has gone, after
/// everything that the peer had sent.
/// Who sends much is expected to watch queued_bytes() or to be paced by credits.
///
/// Thread: the socket's. Lifetime: run_writer() must have ended before the link is destroyed.
class Link {
public:
    explicit Link(tcp::socket socket);

    /// Waits until more bytes have arrived. Errc: closed, cancelled
    asio::awaitable<Result<void>> receive();
    /// The next frame that has arrived, if any; valid until receive(). Errc: invalid_input
    Result<std::optional<FrameView>> next();

    void send(Bytes frame);
    /// Sends `header` and then `bytes` bytes straight from a pipe to the socket.
    /// \param pipe  must hold that many bytes, and nobody may read it until `sent` is called
    void send_from_pipe(Bytes header, int pipe, std::size_t bytes, std::function<void()> sent);
    std::size_t queued_bytes() const { return queued_bytes_; }

    /// Sends what is queued whenever the socket takes it; ends when the link is closed.
    asio::awaitable<void> run_writer();
    /// Waits until everything queued was handed to the kernel, or the link is closed.
    asio::awaitable<void> flush();

    void close() noexcept;  ///< idempotent; receive() and run_writer() then end
    bool is_open() const { return socket_.is_open(); }
    tcp::socket& socket() { return socket_; }

private:
    struct Item {
        Bytes bytes;
        std::size_t offset = 0;
        int pipe = -1;
        std::size_t pipe_bytes = 0;
        std::function<void()> sent;
    };
    enum class Progress { done, blocked, broken };

    Progress write_queue();
    void drop_queue();
    Progress write_bytes(Item& item);
    Progress write_pipe(Item& item);

    tcp::socket socket_;
    std::vector<char> buffer_;
    std::size_t used_ = 0;    ///< bytes of buffer_ that were received
    std::size_t parsed_ = 0;  ///< of those, returned by next()
    std::deque<Item> queue_;
    std::size_t queued_bytes_ = 0;
    bool writing_ = false;  ///< write_queue() is on the stack
    bool broken_ = false;   ///< a write has failed: nothing more can be sent
    asio::steady_timer wake_writer_;
    asio::steady_timer wake_flush_;
};

}  // namespace dtrun
