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
/// When it fails, what is queued is dropped, silently: receive() tells that the peer has gone, after
/// everything that the peer had sent.
///
/// Flow control: a link with more than kFullBytes unsent is full. serve() does not hear a peer whose
/// link is full, for what it says next is likely to be answered. Only a peer that lets
/// kUnaskedBytesMax wait of what it never asked for is cut off.
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

    /// Gives every frame that arrives to `handle`, until the end, unless this link is full.
    /// \param towards  where `handle` sends what frames lead to besides the answer, if that can be
    ///                 full as well; outlives the call
    /// \return why it ended: what `handle` returned, or closed, cancelled (by close()), invalid_input
    asio::awaitable<Result<void>> serve(std::function<Result<void>(const FrameView&)> handle,
                                        Backpressure* towards = nullptr);

    void send(Bytes frame);
    /// The same for a frame that is not put together yet; cheapest when the socket takes it at once.
    void send(FrameType type, std::string_view payload);
    /// As send(), together with everything else that is sent before the loop comes round again.
    void send_soon(FrameType type, std::string_view payload);
    /// As send_soon(), for a payload that ends with bytes which go to others as well: they are kept
    /// once.
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

    /// Sends the end, and lets the peer read to it: waits until it closes, and drops what it still says.
    asio::awaitable<void> finish(Deadline deadline);
    void close() noexcept;  ///< idempotent; receive() and run_writer() then end
    /// The peer reads to the end of what was sent, and then sees that there is no more.
    void shut_down_sending() noexcept;
    bool is_open() const { return socket_.is_open(); }
    /// When the peer last gave a sign of life: bytes that arrived or, while it is not heard because it
    /// has to read first, that it took.
    Deadline last_heard() const;
    /// Whether the peer's machine answers ours, and packets between us go missing, since we last
    /// heard of it. Exact only if asked about every half second.
    bool loses_packets();
    /// The peer is about to be stopped for as long as somebody likes, or runs again: full buffers are no
    /// reason to end the connection meanwhile. That its machine is gone may take minutes to be noticed.
    void set_peer_stopped(bool stopped);
    /// Whether the peer may not get a processor for seconds, as it has said.
    void set_peer_busy(bool busy) { peer_busy_ = busy; }
    bool peer_is_busy() const { return peer_busy_; }
    /// Whether the peer's machine still says that it got what we send; false if that is not TCP.
    /// To be asked only where something is sent every half second.
    bool machine_answers();

private:
    /// `bytes`, then `rest`, then what is in the pipe.
    struct Item {
        Bytes bytes{};
        SharedBytes rest{};
        std::size_t offset = 0;  ///< in `bytes` and `rest`
        bool asked = false;      ///< for: as much as the peer wants
        bool sealed = false;     ///< `bytes` are encrypted, and all there is
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
        elsewhere  ///< where its frames lead to is
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
    Bytes buffer_;             ///< frames; its size is what may be filled
    std::size_t used_ = 0;     ///< bytes of buffer_ that were received
    std::size_t parsed_ = 0;   ///< of those, returned by next()
    bool large_came_ = false;  ///< a frame that buffer_ has grown for, not long ago
    Bytes sealed_;             ///< encrypted bytes of which the end of a record is missing
    std::deque<Item> queue_;
    std::size_t queued_bytes_ = 0;
    bool peer_busy_ = false;
    std::size_t unasked_bytes_ = 0;  ///< of these, that the peer has not asked for
    std::uint64_t taken_bytes_ = 0;  ///< by the peer, ever
    Deadline last_taken_{};
    Hold hold_ = Hold::none;  ///< why the peer is not heard just now
    /// It is full, and yet heard: perhaps it reads nothing because it first has to be read.
    bool heard_though_full_ = false;
    bool writing_ = false;  ///< write_queue() is on the stack
    bool woken_ = false;    ///< the writer will look at the queue
    bool broken_ = false;   ///< a write has failed: nothing more can be sent
    bool cut_off_ = false;  ///< because the peer did not read
    Deadline last_heard_ = Clock::now();
    std::uint32_t repeated_ = 0;  ///< packets that TCP had to send again until last_heard_, about
    Timer wake_writer_;
    Timer wake_flush_;
    Timer wake_room_;  ///< cancelled when the link is not full any more
    Timer stalled_;    ///< the same, for serve(), which does not wait for ever
};

}  // namespace dtrun
