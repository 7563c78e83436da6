#include "rendezvous/link.h"

#include "base/fd.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun {
namespace {

constexpr std::size_t kBufferBytesMin = 16u << 10;
constexpr std::size_t kBufferBytesUsual = 512u << 10;  // grown to only by links that carry volume

/// The kernel notices a peer that is gone without a word in about six seconds.
void watch_peer(int fd) {
    const auto set = [fd](int level, int option, int value) {
        ::setsockopt(fd, level, option, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, 6'000);
}

}  // namespace

Link::Link(tcp::socket socket)
    : socket_(std::move(socket)),
      wake_writer_(socket_.get_executor(), asio::steady_timer::time_point::max()),
      wake_flush_(socket_.get_executor(), asio::steady_timer::time_point::max()) {
    boost::system::error_code ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(tcp::no_delay(true), ignored);
    watch_peer(socket_.native_handle());
    close_on_exec(socket_.native_handle());
}

asio::awaitable<Result<void>> Link::receive() {
    if (!socket_.is_open()) co_return fail(Errc::cancelled, "link closed");
    // Keep the beginning of an incomplete frame, at the front of a buffer that can hold all of it.
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(parsed_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(used_), buffer_.begin());
    used_ -= parsed_;
    parsed_ = 0;
    std::size_t wanted = std::max(buffer_.size(), kBufferBytesMin);
    if (used_ >= FrameHeader::kBytes) {
        const auto header = decode_header({buffer_.data(), used_});
        if (header) wanted = std::max(wanted, FrameHeader::kBytes + header->payload_bytes);
    }
    if (buffer_.size() < wanted) buffer_.resize(wanted);

    const auto room = asio::buffer(buffer_.data() + used_, buffer_.size() - used_);
    const auto [error, bytes] = co_await socket_.async_read_some(room, use_tuple);
    if (error == asio::error::operation_aborted) co_return fail(Errc::cancelled, "link closed");
    if (error == asio::error::eof) co_return fail(Errc::closed, "connection closed");
    if (error) co_return fail(Errc::closed, "connection lost: {}", error.message());
    used_ += bytes;
    if (bytes == room.size() && buffer_.size() < kBufferBytesUsual)
        buffer_.resize(buffer_.size() * 4);
    co_return Result<void>{};
}

Result<std::optional<FrameView>> Link::next() {
    std::string_view bytes(buffer_.data() + parsed_, used_ - parsed_);
    const std::size_t before = bytes.size();
    auto frame = next_frame(bytes);
    parsed_ += before - bytes.size();
    return frame;
}

void Link::send(Bytes frame) {
    if (broken_) return;
    queued_bytes_ += frame.size();
    queue_.push_back(Item{std::move(frame), 0, -1, 0, {}});
    if (queue_.size() == 1 && write_queue() == Progress::done) return;
    wake_writer_.cancel();
}

void Link::send_from_pipe(Bytes header, int pipe, std::size_t bytes, std::function<void()> sent) {
    if (broken_) return;
    queued_bytes_ += header.size() + bytes;
    queue_.push_back(Item{std::move(header), 0, pipe, bytes, std::move(sent)});
    if (queue_.size() == 1 && write_queue() == Progress::done) return;
    wake_writer_.cancel();
}

Link::Progress Link::write_queue() {
    if (broken_) return Progress::broken;
    if (writing_ || !socket_.is_open()) return Progress::blocked;
    writing_ = true;
    Progress progress = Progress::done;
    while (!queue_.empty()) {
        Item& item = queue_.front();
        progress = write_bytes(item);
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

/// The peer takes no more. What it has sent before is still to be read: receive() finds the end.
void Link::drop_queue() {
    broken_ = true;
    queue_.clear();
    queued_bytes_ = 0;
}

Link::Progress Link::write_bytes(Item& item) {
    while (item.offset < item.bytes.size()) {
        const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (item.pipe_bytes > 0 ? MSG_MORE : 0);
        const ssize_t n = ::send(socket_.native_handle(), item.bytes.data() + item.offset,
                                 item.bytes.size() - item.offset, flags);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? Progress::blocked : Progress::broken;
        item.offset += static_cast<std::size_t>(n);
        queued_bytes_ -= static_cast<std::size_t>(n);
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
        queued_bytes_ -= static_cast<std::size_t>(n);
    }
    return Progress::done;
}

asio::awaitable<void> Link::run_writer() {
    while (socket_.is_open()) {
        const Progress progress = write_queue();
        if (progress == Progress::broken) co_return;
        if (progress == Progress::blocked) {
            co_await socket_.async_wait(tcp::socket::wait_write, use_tuple);
        } else {
            co_await wake_writer_.async_wait(use_tuple);
        }
    }
}

asio::awaitable<void> Link::flush() {
    while (socket_.is_open() && !queue_.empty()) co_await wake_flush_.async_wait(use_tuple);
}

void Link::close() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
    wake_writer_.cancel();
    wake_flush_.cancel();
}

}  // namespace dtrun
