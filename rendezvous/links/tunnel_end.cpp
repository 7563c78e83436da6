#include "rendezvous/links/tunnel_end.h"

#include <fcntl.h>
#include <algorithm>
#include <utility>

namespace dtrun {
namespace {

constexpr std::size_t kReadBytesMax = 64u << 10;

}  // namespace

TunnelEnd::TunnelEnd(asio::any_io_executor executor, std::uint32_t number,
                     std::function<void(const Tunnel&)> send)
    : from_(executor),
      to_(executor),
      number_(number),
      send_(std::move(send)),
      has_room_(executor, Timer::time_point::max()),
      has_bytes_(executor, Timer::time_point::max()) {}

void TunnelEnd::open(Fd from, Fd to) {
    from_.assign(from.release());
    to_.assign(to.release());
}

void TunnelEnd::open(tcp::socket socket) {
    boost::system::error_code ignored;
    socket.native_non_blocking(true, ignored);
    Fd other(::fcntl(socket.native_handle(), F_DUPFD_CLOEXEC, 3));
    open(Fd(socket.release()), std::move(other));
}

void TunnelEnd::take(const Tunnel& tunnel) {
    room_ += tunnel.taken;
    if (!tunnel.bytes.empty()) queue_.push_back(tunnel.bytes);
    other_ended_ = other_ended_ || tunnel.ended;
    has_room_.cancel();
    has_bytes_.cancel();
}

void TunnelEnd::say(std::string bytes, std::uint64_t taken, bool ended) {
    send_(Tunnel{number_, std::move(bytes), taken, ended});
}

asio::awaitable<void> TunnelEnd::run() {
    TaskGroup writer(from_.get_executor());
    writer.spawn(write_all());
    std::string piece;
    while (!over_) {
        if (room_ == 0) {
            co_await has_room_.async_wait(use_tuple);
            continue;
        }
        piece.resize(std::min<std::size_t>(room_, kReadBytesMax));
        const auto buffer = asio::buffer(piece);
        const auto [error, bytes] = co_await from_.async_read_some(buffer, use_tuple);
        if (error) break;
        room_ -= bytes;
        say(piece.substr(0, bytes), 0, false);
    }
    if (!other_ended_) say({}, 0, true);
    stop();
    co_await writer.join();
}

/// Ends when everything was written that the other end has sent before its end.
asio::awaitable<void> TunnelEnd::write_all() {
    while (!over_) {
        if (queue_.empty() && other_ended_) break;
        if (queue_.empty()) {
            co_await has_bytes_.async_wait(use_tuple);
            continue;
        }
        const std::string piece = std::move(queue_.front());
        queue_.pop_front();
        const auto buffer = asio::buffer(piece);
        const auto [error, bytes] = co_await asio::async_write(to_, buffer, use_tuple);
        if (error) break;
        say({}, bytes, false);
    }
    stop();
}

void TunnelEnd::stop() noexcept {
    over_ = true;
    boost::system::error_code ignored;
    from_.close(ignored);
    to_.close(ignored);
    has_room_.cancel();
    has_bytes_.cancel();
}

}  // namespace dtrun
