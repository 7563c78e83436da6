#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "rendezvous/backpressure.h"
#include "rendezvous/frame.h"
#include "rendezvous/sealing.h"

#include <deque>
#include <functional>
#include <optional>
#include <vector>

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
    static constexpr std::size_t kFullBytes = 8u << 20;
    static constexpr std::size_t kUnaskedBytesMax = 128u << 20;

    explicit Link(Connection connection);
    explicit Link(Unix::socket socket);

    /// Waits until more bytes have arrived. Errc: closed, cancelled, invalid_input (encryption)
    asio::awaitable<Result<void>> receive();
    /// The next frame that has arrived, if any; valid until receive(). Errc: invalid_input
    Result<std::optional<FrameView>> next();

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
    std::size_t queued_bytes() const { return queued_bytes_; }
    bool is_full() const override { return queued_bytes_ > kFullBytes; }
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
    /// Whether, since last_heard(), the peer's kernel has sent ACKs and TCP has retransmitted
    /// packets. Exact only if asked about every half second.
    bool loses_packets();
    /// Tells that the peer is about to be stopped by its user, or runs again. While it is stopped
    /// full buffers do not end the connection, and loss of its machine may take minutes to be
    /// noticed.
    void set_peer_stopped(bool stopped);
    /// Records whether the peer has said that it may not get a processor for seconds.
    void set_peer_busy(bool busy) { peer_busy_ = busy; }
    bool peer_is_busy() const { return peer_busy_; }
    /// Whether the peer's kernel still acknowledges what we send; false without TCP. Meaningful
    /// only where something is sent every half second.
    bool machine_answers();

private:
    /// One entry of the send queue: `bytes`, then `rest`, then `pipe_bytes` bytes from the pipe.
    struct Item {
        Bytes bytes{};
        SharedBytes rest{};
        std::size_t offset = 0;  ///< bytes of `bytes` and `rest` already sent
        bool asked = false;      ///< not counted in unasked_bytes_
        bool sealed = false;     ///< `bytes` are encrypted and hold everything
        int pipe = -1;
        std::size_t pipe_bytes = 0;
        std::function<void()> sent{};

        std::size_t rest_bytes() const { return rest ? rest->size() : 0; }
        std::size_t unsent_bytes() const {
            return bytes.size() + rest_bytes() - offset + pipe_bytes;
        }
    };
    enum class Progress { done, blocked, broken };
    enum class Hold {
        none,
        here,      ///< this link is full
        elsewhere  ///< the destination of its frames is full
    };

    Link(StreamSocket socket, std::optional<Sealing> sealing);
    void enqueue(Item item);
    void wake_writer();
    Progress write_queue();
    void drop_queue();
    void queued(std::size_t bytes, bool asked);
    void taken(const Item& item, std::size_t bytes);
    void seal(Item& item);
    Progress write_bytes(Item& item);
    Progress write_pipe(Item& item);
    void make_room();
    asio::awaitable<void> wait_for_room(Backpressure* towards);
    Result<void> opened(std::size_t bytes);

    StreamSocket socket_;
    std::optional<Sealing> sealing_;
    Bytes buffer_;             ///< received frames; its size is the room
    std::size_t used_ = 0;     ///< received bytes of buffer_
    std::size_t parsed_ = 0;   ///< bytes of them that next() has returned
    bool large_came_ = false;  ///< a frame has come lately that needed a larger buffer_
    Bytes sealed_;             ///< encrypted bytes of an incomplete record
    std::deque<Item> queue_;
    std::size_t queued_bytes_ = 0;
    bool peer_busy_ = false;
    std::size_t unasked_bytes_ = 0;  ///< part of them that the peer has not asked for
    std::uint64_t taken_bytes_ = 0;  ///< bytes that the socket has ever taken
    Deadline last_taken_{};
    Hold hold_ = Hold::none;  ///< why the peer is not read at present
    /// The link is full and the peer is read nevertheless: it may wait for us to read first.
    bool heard_though_full_ = false;
    bool writing_ = false;  ///< write_queue() is on the stack
    bool woken_ = false;    ///< the writer will look at the queue
    bool broken_ = false;   ///< a write has failed: nothing more can be sent
    bool cut_off_ = false;  ///< the peer left too many bytes unread
    Deadline last_heard_ = Clock::now();
    std::uint32_t repeated_ = 0;  ///< TCP's retransmissions until about last_heard_
    Timer wake_writer_;
    Timer wake_flush_;
    Timer wake_room_;  ///< cancelled when the link is not full any more
    Timer stalled_;    ///< as wake_room_, for wait_for_room(); also a timeout
};

}  // namespace dtrun
