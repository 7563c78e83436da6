#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "rendezvous/links/backpressure.h"
#include "rendezvous/links/incoming_frames.h"
#include "rendezvous/links/peer_liveness.h"
#include "rendezvous/links/send_queue.h"
#include "rendezvous/links/send_turns.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/sealing.h"

#include <functional>
#include <optional>

namespace dtrun {

/// An authenticated connection, before frames flow.
struct Connection {
    tcp::socket socket;
    std::optional<Sealing> sealing;  ///< if it is encrypted
};

/// A connection that carries frames.
///
/// Sending never waits: bytes go out at once where the socket takes them and are queued otherwise.
/// When a write fails the queue is dropped silently; receive() reports the peer's end, after
/// everything that the peer had sent.
///
/// Flow control: a link with more than kFullBytes unsent is full. serve() does not read a peer
/// whose link is full, since its next frames are likely to need answers. A peer is cut off only if
/// more than kUnaskedBytesMax of frames that it did not ask for wait for it.
///
/// Thread: the socket's. Lifetime: run_writer() must have ended before the link is destroyed.
class Link final : public Backpressure {
public:
    static constexpr std::size_t kFullBytes = SendQueue::kFullBytes;
    static constexpr std::size_t kUnaskedBytesMax = SendQueue::kUnaskedBytesMax;

    explicit Link(Connection connection);
    explicit Link(Unix::socket socket);
    ~Link() override;

    /// From now on it writes only in its turns, which it shares with other links; `turns` outlives it.
    void share(SendTurns& turns) { turns_ = &turns; }

    /// Waits until more bytes have arrived. Errc: closed, cancelled, invalid_input (encryption)
    asio::awaitable<Result<void>> receive();
    /// The next frame that has arrived, if any; valid until receive(). Errc: invalid_input
    Result<std::optional<FrameView>> next() { return incoming_.next(); }

    /// Passes every arriving frame to `handle` until the connection ends; pauses while this link is
    /// full.
    /// \param towards  another destination to which `handle` forwards, whose being full pauses
    ///                 reading, too; may be null; outlives the call
    /// \return why it ended: what `handle` returned, or closed, cancelled (by close()), invalid_input
    asio::awaitable<Result<void>> serve(std::function<Result<void>(const FrameView&)> handle,
                                        Backpressure* towards = nullptr);

    void send(Bytes frame);
    /// Sends a frame from its parts; cheapest when the socket takes it at once.
    void send(FrameType type, std::string_view payload);
    /// As send(), but batches all frames of one turn of the loop.
    void send_soon(FrameType type, std::string_view payload);
    /// As send_soon(), for a payload that ends with bytes which other links send as well: they are
    /// not copied.
    void send_soon(FrameType type, std::string_view payload, SharedBytes rest);
    /// Sends `header` and then `bytes` bytes straight from a pipe to the socket.
    /// \param pipe  must hold that many bytes, and nobody may read it until `sent` is called
    void send_from_pipe(Bytes header, int pipe, std::size_t bytes, std::function<void()> sent);
    std::size_t queued_bytes() const { return queue_.bytes(); }
    bool is_full() const override { return queue_.is_full(); }
    asio::awaitable<void> room() override;

    /// Sends what is queued whenever the socket takes it; ends when the link is closed.
    asio::awaitable<void> run_writer();
    /// Waits until everything queued was handed to the kernel, or the link is closed.
    asio::awaitable<void> flush();

    /// Sends the queue and the end of the stream, then discards input until the peer closes.
    asio::awaitable<void> finish(Deadline deadline);
    void close() noexcept;  ///< idempotent; receive() and run_writer() then end
    /// Shuts down sending: the peer reads end of file after everything that was sent.
    void shut_down_sending() noexcept;
    bool is_open() const { return socket_.is_open(); }
    /// When the peer last gave a sign of life: it sent bytes or, while its link is full and it is
    /// not read, its socket took some.
    Deadline last_heard() const;
    // See PeerLiveness.
    bool loses_packets() { return peer_.loses_packets(); }
    bool machine_answers() const { return peer_.machine_answers(); }
    void set_peer_stopped(bool stopped) { peer_.set_stopped(stopped); }
    void set_peer_busy(bool busy) { peer_.set_busy(busy); }
    bool peer_is_busy() const { return peer_.is_busy(); }

private:
    using Progress = SendQueue::Progress;
    enum class Hold {
        none,
        here,      ///< this link is full
        elsewhere  ///< the destination of its frames is full
    };

    Link(StreamSocket socket, std::optional<Sealing> sealing);
    void added();
    void taken();
    bool may_write();
    void wake_writer();
    Progress write_queue();
    void drop_queue();
    asio::awaitable<void> wait_for_room(Backpressure* towards);

    StreamSocket socket_;
    IncomingFrames incoming_;
    SendQueue queue_;
    PeerLiveness peer_;
    SendTurns* turns_ = nullptr;  ///< null: it has all turns
    Deadline last_taken_{};
    Hold hold_ = Hold::none;  ///< why the peer is not read at present
    /// The link is full and the peer is read nevertheless: it may wait for us to read first.
    bool heard_though_full_ = false;
    bool woken_ = false;    ///< the writer will look at the queue
    bool cut_off_ = false;  ///< the peer left too many bytes unread
    Timer wake_writer_;
    Timer wake_flush_;
    Timer wake_room_;  ///< cancelled when the link is not full any more
    Timer stalled_;    ///< as wake_room_, for wait_for_room(); also a timeout
};

}  // namespace dtrun
