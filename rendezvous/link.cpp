#include "rendezvous/link.h"

#include "base/fd.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun {
namespace {

constexpr std::size_t kBufferBytesMin = 4u << 10;
constexpr std::size_t kBufferBytesUsual = 512u << 10;  // reached only by links with much traffic
constexpr std::size_t kBatchBytes = 64u << 10;
constexpr std::chrono::milliseconds kJustHeard{1'000};
/// A peer that was cut off has sent its last TCP ACK at most this long after we last heard it.
constexpr std::chrono::milliseconds kLastAnswer{800};
/// A live but busy peer's kernel has acknowledged our last heartbeat within this time.
constexpr std::chrono::milliseconds kAnswersWithin{1'500};
/// A peer whose link is full and that takes no bytes for this long is read nevertheless.
constexpr std::chrono::seconds kStalled{1};
constexpr int kUserTimeoutMs = 6'000;  // for the peer's kernel to acknowledge sent bytes
constexpr int kTcpRtoMaxMs = 44;       // TCP_RTO_MAX_MS of Linux 6.15, which headers may lack

/// Whether a frame does not count against kUnaskedBytesMax: requests and fences, their answers, and
/// output, which its receiver has granted.
bool is_asked_for(FrameType type) {
    switch (type) {
        case FrameType::request:
        case FrameType::reply:
        case FrameType::fence:
        case FrameType::fenced:
        case FrameType::output:
            return true;
        default:
            return false;
    }
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
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
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
      sealing_(std::move(sealing)),
      wake_writer_(socket_.get_executor(), Timer::time_point::max()),
      wake_flush_(socket_.get_executor(), Timer::time_point::max()),
      wake_room_(socket_.get_executor(), Timer::time_point::max()),
      stalled_(socket_.get_executor()) {
    boost::system::error_code ignored;
    socket_.non_blocking(true, ignored);
    close_on_exec(socket_.native_handle());
}

/// Keeps the beginning of an incomplete frame, at the front of a buffer that can hold all of it.
void Link::make_room() {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(parsed_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(used_), buffer_.begin());
    used_ -= parsed_;
    parsed_ = 0;
    // Shrinks the buffer once no large frame has arrived lately.
    if (used_ == 0 && buffer_.size() > kBufferBytesUsual && !std::exchange(large_came_, false)) {
        buffer_.resize(kBufferBytesUsual);
        buffer_.shrink_to_fit();
    }
    std::size_t wanted = std::max(buffer_.size(), kBufferBytesMin);
    if (used_ >= FrameHeader::kBytes) {
        const auto header = decode_header({buffer_.data(), used_});
        if (header) wanted = std::max(wanted, FrameHeader::kBytes + header->payload_bytes);
        large_came_ |= header && FrameHeader::kBytes + header->payload_bytes > kBufferBytesUsual;
    }
    if (buffer_.size() < wanted) buffer_.resize(wanted);
}

asio::awaitable<Result<void>> Link::receive() {
    if (!socket_.is_open()) co_return fail(Errc::cancelled, "link closed");
    make_room();
    const std::size_t before = used_;
    while (used_ == before) {
        const std::size_t kept = sealed_.size();
        if (sealing_) sealed_.resize(std::max(kBufferBytesMin, buffer_.size()) + kept);
        const auto room = sealing_ ? asio::buffer(sealed_.data() + kept, sealed_.size() - kept)
                                   : asio::buffer(buffer_.data() + used_, buffer_.size() - used_);
        const auto [error, bytes] = co_await socket_.async_read_some(room, use_tuple);
        if (cut_off_)
            co_return fail(Errc::closed, "cut off: it has not read {} MiB that wait for it",
                           kUnaskedBytesMax >> 20);
        if (error == asio::error::operation_aborted) co_return fail(Errc::cancelled, "link closed");
        if (error == asio::error::eof) co_return fail(Errc::closed, "connection closed");
        if (error) co_return fail(Errc::closed, "connection lost: {}", error.message());
        last_heard_ = Clock::now();
        const bool filled = bytes == room.size();
        if (!sealing_) {
            used_ += bytes;
        } else if (const auto done = opened(kept + bytes); !done) {
            co_return done;
        }
        if (filled && buffer_.size() < kBufferBytesUsual) buffer_.resize(buffer_.size() * 4);
    }
    co_return Result<void>{};
}

/// Decrypts the first `bytes` bytes of sealed_ and appends them to buffer_.
Result<void> Link::opened(std::size_t bytes) {
    std::string_view sealed(sealed_.data(), bytes);
    const std::size_t size = buffer_.size();
    buffer_.resize(used_);
    const auto done = sealing_->in.open(sealed, buffer_);
    used_ = buffer_.size();
    buffer_.resize(std::max(size, used_));
    sealed_ = Bytes(sealed);
    return done;
}

Result<std::optional<FrameView>> Link::next() {
    std::string_view bytes(buffer_.data() + parsed_, used_ - parsed_);
    const std::size_t before = bytes.size();
    auto frame = next_frame(bytes);
    parsed_ += before - bytes.size();
    return frame;
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
        const std::uint64_t taken_before = taken_bytes_;
        stalled_.expires_after(kStalled);
        co_await stalled_.async_wait(use_tuple);
        heard_though_full_ = taken_bytes_ == taken_before && queued_bytes_ <= kUnaskedBytesMax;
    }
    hold_ = Hold::none;
    last_heard_ = Clock::now();  // frames sent meanwhile are still unread
}

asio::awaitable<void> Link::room() {
    while (socket_.is_open() && is_full()) co_await wake_room_.async_wait(use_tuple);
}

Deadline Link::last_heard() const {
    switch (hold_) {
        case Hold::none:
            break;
        case Hold::here:
            return std::max(last_heard_, last_taken_);
        case Hold::elsewhere:
            return Clock::now();  // we do not read it, so we cannot tell that it is silent
    }
    return last_heard_;
}

void Link::enqueue(Item item) {
    const std::size_t bytes = item.unsent_bytes();
    const bool asked = item.asked;
    queue_.push_back(std::move(item));
    queued(bytes, asked);
}

/// Counts bytes added to the queue; cuts off a peer that leaves too many unread.
void Link::queued(std::size_t bytes, bool asked) {
    queued_bytes_ += bytes;
    if (!asked) unasked_bytes_ += bytes;
    if (unasked_bytes_ <= kUnaskedBytesMax) return;
    cut_off_ = true;
    drop_queue();
    boost::system::error_code ignored;
    socket_.shutdown(StreamSocket::shutdown_both, ignored);
}

/// Counts bytes that the socket has taken of an item.
void Link::taken(const Item& item, std::size_t bytes) {
    queued_bytes_ -= bytes;
    if (!item.asked) unasked_bytes_ -= bytes;
    taken_bytes_ += bytes;
    if (hold_ == Hold::here) last_taken_ = Clock::now();
    if (is_full()) return;
    heard_though_full_ = false;
    if (hold_ == Hold::here) stalled_.cancel();
    wake_room_.cancel();
}

void Link::wake_writer() {
    if (std::exchange(woken_, true)) return;
    wake_writer_.cancel();
}

void Link::send(Bytes frame) {
    if (broken_) return;
    Item item;
    item.asked = is_asked_for(static_cast<FrameType>(frame[4]));
    item.bytes = std::move(frame);
    enqueue(std::move(item));
    if (queue_.size() == 1 && write_queue() == Progress::done) return;
    wake_writer();
}

void Link::send(FrameType type, std::string_view payload) {
    if (broken_) return;
    if (sealing_ || !queue_.empty()) return send_soon(type, payload);
    auto header = encode_header({type, static_cast<std::uint32_t>(payload.size())});
    iovec parts[2] = {{header.data(), header.size()},
                      {const_cast<char*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    const auto sent = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    if (sent == header.size() + payload.size()) return;
    Item rest;
    rest.bytes = encode_frame(type, payload);
    rest.offset = sent;
    rest.asked = is_asked_for(type);
    enqueue(std::move(rest));
    wake_writer();  // finds the error, if the socket is not just full
}

void Link::send_soon(FrameType type, std::string_view payload) {
    if (broken_) return;
    const bool asked = is_asked_for(type);
    const auto fits = [&](const Item& last) {
        return last.pipe < 0 && !last.sent && !last.sealed && !last.rest && last.asked == asked &&
               last.bytes.size() + payload.size() < kBatchBytes;
    };
    if (queue_.empty() || !fits(queue_.back())) {
        queue_.emplace_back();
        queue_.back().asked = asked;
    }
    Bytes& batch = queue_.back().bytes;
    const auto header = encode_header({type, static_cast<std::uint32_t>(payload.size())});
    batch.append(header.data(), header.size());
    batch.append(payload);
    queued(header.size() + payload.size(), asked);
    wake_writer();
}

void Link::send_soon(FrameType type, std::string_view payload, SharedBytes rest) {
    if (broken_) return;
    const auto bytes = static_cast<std::uint32_t>(payload.size() + rest->size());
    const auto header = encode_header({type, bytes});
    Item item;
    item.bytes.assign(header.data(), header.size());
    item.bytes.append(payload);
    item.rest = std::move(rest);
    item.asked = is_asked_for(type);
    enqueue(std::move(item));
    wake_writer();
}

void Link::send_from_pipe(Bytes header, int pipe, std::size_t bytes, std::function<void()> sent) {
    if (broken_) return;
    Item item;
    item.bytes = std::move(header);
    item.asked = true;
    item.pipe = pipe;
    item.pipe_bytes = bytes;
    item.sent = std::move(sent);
    enqueue(std::move(item));
    if (queue_.size() == 1 && write_queue() == Progress::done) return;
    wake_writer();
}

/// Encrypts an item right before it is sent, so that its shared bytes stay shared as long as
/// possible. Bytes in a pipe must be read for this.
void Link::seal(Item& item) {
    const std::size_t before = item.unsent_bytes();
    Bytes plain = std::move(item.bytes);
    if (item.rest) plain += *std::exchange(item.rest, nullptr);
    std::size_t at = plain.size();
    plain.resize(at + std::exchange(item.pipe_bytes, 0));
    const int pipe = std::exchange(item.pipe, -1);
    while (at < plain.size()) {
        const ssize_t n = ::read(pipe, plain.data() + at, plain.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;  // the caller promised more than the pipe held
        at += static_cast<std::size_t>(n);
    }
    broken_ |= at < plain.size();
    item.bytes.clear();
    sealing_->out.seal(plain, item.bytes);
    item.sealed = true;
    const std::size_t more = item.unsent_bytes() - before;
    queued_bytes_ += more;
    if (!item.asked) unasked_bytes_ += more;
}

Link::Progress Link::write_queue() {
    if (broken_) return Progress::broken;
    if (writing_ || !socket_.is_open()) return Progress::blocked;
    writing_ = true;
    Progress progress = Progress::done;
    while (!queue_.empty()) {
        Item& item = queue_.front();
        if (sealing_ && !item.sealed) seal(item);
        progress = broken_ ? Progress::broken : write_bytes(item);
        if (progress == Progress::done) progress = write_pipe(item);
        if (progress != Progress::done) break;
        const std::function<void()> sent = std::move(item.sent);
        queue_.pop_front();
        if (sent) sent();  // may queue more
    }
    writing_ = false;
    if (progress == Progress::broken) drop_queue();
    if (queue_.empty()) wake_flush_.cancel();
    return progress;
}

/// Drops the queue after a failed write. The peer's bytes can still be read; receive() reports the
/// end.
void Link::drop_queue() {
    broken_ = true;
    queue_.clear();
    queued_bytes_ = unasked_bytes_ = 0;
    wake_flush_.cancel();
    wake_room_.cancel();
    stalled_.cancel();
}

Link::Progress Link::write_bytes(Item& item) {
    while (item.offset < item.bytes.size() + item.rest_bytes()) {
        const std::size_t in_bytes = std::min(item.offset, item.bytes.size());
        const std::size_t in_rest = item.offset - in_bytes;
        iovec parts[2] = {{item.bytes.data() + in_bytes, item.bytes.size() - in_bytes}, {}};
        if (item.rest)
            parts[1] = {const_cast<char*>(item.rest->data()) + in_rest,
                        item.rest->size() - in_rest};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = item.rest ? 2 : 1;
        const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (item.pipe_bytes > 0 ? MSG_MORE : 0);
        const ssize_t n = ::sendmsg(socket_.native_handle(), &message, flags);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? Progress::blocked : Progress::broken;
        item.offset += static_cast<std::size_t>(n);
        taken(item, static_cast<std::size_t>(n));
    }
    return Progress::done;
}

Link::Progress Link::write_pipe(Item& item) {
    while (item.pipe_bytes > 0) {
        const ssize_t n = ::splice(item.pipe, nullptr, socket_.native_handle(), nullptr,
                                   item.pipe_bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? Progress::blocked : Progress::broken;
        if (n == 0) return Progress::broken;  // the caller promised more than the pipe held
        item.pipe_bytes -= static_cast<std::size_t>(n);
        taken(item, static_cast<std::size_t>(n));
    }
    return Progress::done;
}

bool Link::loses_packets() {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;  // closed, or a Unix socket
    if (Clock::now() - last_heard_ < kJustHeard) repeated_ = info.tcpi_total_retrans;
    const Deadline answered = Clock::now() - std::chrono::milliseconds(info.tcpi_last_ack_recv);
    return info.tcpi_total_retrans > repeated_ && answered > last_heard_ + kLastAnswer;
}

void Link::set_peer_stopped(bool stopped) {
    const int timeout_ms = stopped ? 0 : kUserTimeoutMs;  // 0: TCP's own limit of retransmissions
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
                 sizeof timeout_ms);
}

bool Link::machine_answers() {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    return std::chrono::milliseconds(info.tcpi_last_ack_recv) < kAnswersWithin;
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
    buffer_.resize(std::max(buffer_.size(), kBufferBytesMin));
    const auto room = asio::buffer(buffer_.data(), buffer_.size());
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
    queued_bytes_ = unasked_bytes_ = 0;
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
