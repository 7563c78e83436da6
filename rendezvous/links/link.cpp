#include "rendezvous/links/link.h"

#include "base/fd.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <span>
#include <utility>

namespace dtrun {
namespace {

/// A peer whose link is full and that takes no bytes for this long is read nevertheless.
constexpr std::chrono::seconds kStalled{1};
constexpr std::size_t kDiscardBytes = 64u << 10;  // at a time
constexpr int kTcpRtoMaxMs = 44;  // TCP_RTO_MAX_MS of Linux 6.15, which headers may lack

std::optional<Seal> seal_of(std::optional<Sealing>& sealing, Seal Sealing::*direction) {
    if (!sealing) return std::nullopt;
    return std::move((*sealing).*direction);
}

StreamSocket prepared(tcp::socket socket) {
    const int fd = socket.native_handle();
    const auto set = [fd](int level, int option, int value) {
        ::setsockopt(fd, level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    // The kernel gives up a vanished peer in about six seconds; heartbeats are faster, but not
    // every holder of a connection sends them.
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, PeerLiveness::kUserTimeoutMs);
    // Heartbeats that are lost again and again are still repeated every 0.2 s: doubling the pause
    // each time would make a bad minute of the network look like a dead host.
    set(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
    set(IPPROTO_TCP, kTcpRtoMaxMs, 1'000);
    return StreamSocket(std::move(socket));
}

}  // namespace

Link::Link(Connection connection)
    : Link(prepared(std::move(connection.socket)), std::move(connection.sealing)) {}

Link::Link(Unix::socket socket) : Link(StreamSocket(std::move(socket)), std::nullopt) {}

Link::Link(StreamSocket socket, std::optional<Sealing> sealing)
    : socket_(std::move(socket)),
      incoming_(seal_of(sealing, &Sealing::in)),
      queue_(socket_, seal_of(sealing, &Sealing::out), [this] { taken(); }),
      peer_(socket_),
      wake_writer_(socket_.get_executor(), Timer::time_point::max()),
      wake_flush_(socket_.get_executor(), Timer::time_point::max()),
      wake_room_(socket_.get_executor(), Timer::time_point::max()),
      stalled_(socket_.get_executor()) {
    boost::system::error_code ignored;
    socket_.non_blocking(true, ignored);
    close_on_exec(socket_.native_handle());
}

Link::~Link() {
    if (turns_ != nullptr) turns_->leave(wake_writer_);
}

asio::awaitable<Result<void>> Link::receive() {
    if (!socket_.is_open()) co_return fail(Errc::cancelled, "link closed");
    incoming_.make_room();
    for (;;) {
        const std::span<char> room = incoming_.room();
        const auto buffer = asio::buffer(room.data(), room.size());
        const auto [error, bytes] = co_await socket_.async_read_some(buffer, use_tuple);
        if (cut_off_)
            co_return fail(Errc::closed, "cut off: it has not read {} MiB that wait for it",
                           kUnaskedBytesMax >> 20);
        if (error == asio::error::operation_aborted) co_return fail(Errc::cancelled, "link closed");
        if (error == asio::error::eof) co_return fail(Errc::closed, "connection closed");
        if (error) co_return fail(Errc::closed, "connection lost: {}", error.message());
        peer_.heard();
        const auto received = incoming_.received(bytes);
        if (!received) co_return std::unexpected(received.error());
        if (*received) co_return Result<void>{};
    }
}

asio::awaitable<Result<void>> Link::serve(std::function<Result<void>(const FrameView&)> handle,
                                          Backpressure* towards) {
    for (;;) {
        if ((is_full() && !heard_though_full_) || (towards != nullptr && towards->is_full()))
            co_await wait_for_room(towards);
        const auto frame = next();
        if (!socket_.is_open()) co_return fail(Errc::cancelled, "link closed");
        if (!frame) co_return std::unexpected(frame.error());
        if (*frame) {
            const auto handled = handle(**frame);
            if (!handled) co_return handled;
            continue;
        }
        const auto received = co_await receive();
        if (!received) co_return received;
    }
}

/// Waits until a peer may be read again. A peer that takes nothing for kStalled although its link
/// is full may itself wait for us to read, since all its threads send and none receives: it is read
/// then, up to a limit. Reading a stopped peer costs nothing, as it sends nothing.
asio::awaitable<void> Link::wait_for_room(Backpressure* towards) {
    hold_ = Hold::elsewhere;
    while (socket_.is_open() && towards != nullptr && towards->is_full()) co_await towards->room();
    hold_ = Hold::here;
    while (socket_.is_open() && is_full() && !heard_though_full_) {
        const std::uint64_t taken_before = queue_.taken_bytes();
        stalled_.expires_after(kStalled);
        co_await stalled_.async_wait(use_tuple);
        heard_though_full_ =
            queue_.taken_bytes() == taken_before && queue_.bytes() <= kUnaskedBytesMax;
    }
    hold_ = Hold::none;
    peer_.heard();  // frames sent meanwhile are still unread
}

asio::awaitable<void> Link::room() {
    while (socket_.is_open() && is_full()) co_await wake_room_.async_wait(use_tuple);
}

Deadline Link::last_heard() const {
    switch (hold_) {
        case Hold::none:
            break;
        case Hold::here:
            return std::max(peer_.last_heard(), last_taken_);
        case Hold::elsewhere:
            return Clock::now();  // we do not read it, so we cannot tell that it is silent
    }
    return peer_.last_heard();
}

/// Cuts off a peer that leaves too many bytes unread.
void Link::added() {
    if (!queue_.is_over_limit()) return;
    cut_off_ = true;
    drop_queue();
    boost::system::error_code ignored;
    socket_.shutdown(StreamSocket::shutdown_both, ignored);
}

/// The socket has taken some of the queue.
void Link::taken() {
    if (hold_ == Hold::here) last_taken_ = Clock::now();
    if (is_full()) return;
    heard_though_full_ = false;
    if (hold_ == Hold::here) stalled_.cancel();
    wake_room_.cancel();
}

void Link::wake_writer() {
    if (std::exchange(woken_, true)) return;
    if (may_write())
        wake_writer_.cancel();
    else
        turns_->wait(wake_writer_);
}

bool Link::may_write() {
    return turns_ == nullptr || turns_->take();
}

void Link::send(Bytes frame) {
    if (queue_.is_broken()) return;
    queue_.add(std::move(frame));
    added();
    if (queue_.size() == 1 && may_write() && write_queue() == Progress::done) return;
    wake_writer();
}

void Link::send(FrameType type, std::string_view payload) {
    if (queue_.is_broken()) return;
    if (queue_.is_sealed() || !queue_.empty() || !may_write()) return send_soon(type, payload);
    auto header = encode_header({type, static_cast<std::uint32_t>(payload.size())});
    iovec parts[2] = {{header.data(), header.size()},
                      {const_cast<char*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    const auto sent = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    if (sent == header.size() + payload.size()) return;
    const std::size_t of_header = std::min(sent, header.size());
    Bytes rest;
    rest.reserve(header.size() + payload.size() - sent);
    rest.append(header.data() + of_header, header.size() - of_header);
    rest.append(payload.substr(sent - of_header));
    queue_.add_rest(type, std::move(rest));
    added();
    wake_writer();  // finds the error, if the socket is not just full
}

void Link::send_soon(FrameType type, std::string_view payload) {
    if (queue_.is_broken()) return;
    queue_.add_to_batch(type, payload);
    added();
    wake_writer();
}

void Link::send_soon(FrameType type, std::string_view payload, SharedBytes rest) {
    if (queue_.is_broken()) return;
    queue_.add(type, payload, std::move(rest));
    added();
    wake_writer();
}

void Link::send_from_pipe(Bytes header, int pipe, std::size_t bytes, std::function<void()> sent) {
    if (queue_.is_broken()) return;
    queue_.add_from_pipe(std::move(header), pipe, bytes, std::move(sent));
    added();
    if (queue_.size() == 1 && write_queue() == Progress::done) return;
    wake_writer();
}

Link::Progress Link::write_queue() {
    if (queue_.is_broken()) return Progress::broken;
    if (!socket_.is_open()) return Progress::blocked;
    const Progress progress = queue_.write();
    if (progress == Progress::broken) drop_queue();
    if (queue_.empty()) wake_flush_.cancel();
    return progress;
}

/// Drops the queue after a failed write. The peer's bytes can still be read; receive() reports the
/// end.
void Link::drop_queue() {
    queue_.give_up();
    wake_flush_.cancel();
    wake_room_.cancel();
    stalled_.cancel();
}

asio::awaitable<void> Link::run_writer() {
    while (socket_.is_open()) {
        const Progress progress = write_queue();
        woken_ = false;  // wake-ups during write_queue() are done
        if (progress == Progress::broken) co_return;
        if (progress == Progress::blocked) {
            co_await socket_.async_wait(StreamSocket::wait_write, use_tuple);
        } else {
            co_await wake_writer_.async_wait(use_tuple);
        }
    }
}

asio::awaitable<void> Link::flush() {
    while (socket_.is_open() && !queue_.empty()) co_await wake_flush_.async_wait(use_tuple);
}

asio::awaitable<void> Link::finish(Deadline deadline) {
    {
        DeadlineGuard flushing(wake_flush_, deadline);
        while (socket_.is_open() && !queue_.empty() && !flushing.expired())
            co_await wake_flush_.async_wait(use_tuple);
    }
    shut_down_sending();
    Bytes discarded(kDiscardBytes, '\0');
    const auto room = asio::buffer(discarded);
    DeadlineGuard reading(socket_, deadline);
    while (socket_.is_open() && !reading.expired()) {
        const auto [error, bytes] = co_await socket_.async_read_some(room, use_tuple);
        if (error) co_return;
    }
}

void Link::close() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
    queue_.clear();  // a closed link is not full
    wake_writer_.cancel();
    wake_flush_.cancel();
    wake_room_.cancel();
    stalled_.cancel();
}

void Link::shut_down_sending() noexcept {
    boost::system::error_code ignored;
    socket_.shutdown(StreamSocket::shutdown_send, ignored);
}

}  // namespace dtrun
