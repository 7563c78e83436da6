#include "worker/agent/reserved_ports.h"

#include "base/ids.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <array>
#include <utility>

namespace dtrun::agent {
namespace {

constexpr int kTries = 64;
constexpr std::uint32_t kFirst = 20'000, kCount = 12'000;

/// Binds a TCP socket to all IPv6 and IPv4 addresses, or to IPv4 alone where there is no IPv6.
/// \param again  the port was ours before: what is left of its connections is no hindrance
Fd bind_any(std::uint16_t port, bool again = false) {
    Fd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int no = 0, reuse = again;
    if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    if (socket && ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) {
        sockaddr_in6 any{};
        any.sin6_family = AF_INET6;
        any.sin6_port = htons(port);
        if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0)
            return socket;
        if (errno == EADDRINUSE) return {};
    }
    socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return {};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) return {};
    return socket;
}

}  // namespace

/// Accepts what connects to a socket that listens, and closes it.
class ReservedPorts::Door : public std::enable_shared_from_this<Door> {
public:
    /// \param socket  of its own, which does not block
    Door(asio::any_io_executor executor, Fd socket) : socket_(executor, socket.release()) {}

    void open() {
        socket_.async_wait(socket_.wait_read,
                           [self = shared_from_this()](boost::system::error_code error) {
                               if (error || !self->socket_.is_open()) return;
                               while (self->let_go_of_one()) {
                               }
                               self->open();
                           });
    }
    void close() {
        boost::system::error_code ignored;
        socket_.close(ignored);
    }

private:
    /// Resets one connection, so that nothing of it lingers at the port that a rank will have.
    bool let_go_of_one() {
        const Fd one(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
        const linger reset{1, 0};
        if (one) ::setsockopt(one.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        return static_cast<bool>(one);
    }

    asio::posix::stream_descriptor socket_;
};

ReservedPorts::ReservedPorts() = default;
ReservedPorts::ReservedPorts(ReservedPorts&&) noexcept = default;
ReservedPorts& ReservedPorts::operator=(ReservedPorts&&) noexcept = default;

ReservedPorts::~ReservedPorts() {
    if (door_) door_->close();
}

ReservedPorts::ReservedPorts(std::uint32_t count) {
    for (int i = 0; count > 0 && count < kCount && i < kTries; ++i) {
        std::array<std::uint8_t, 2> random{};
        random_bytes(random);
        const std::uint32_t number = static_cast<std::uint32_t>(random[0]) << 8 | random[1];
        const auto first = static_cast<std::uint16_t>(kFirst + number % (kCount - count));
        sockets_.clear();
        while (sockets_.size() < count) {
            Fd socket = bind_any(static_cast<std::uint16_t>(first + sockets_.size()));
            if (!socket) break;
            sockets_.push_back(std::move(socket));
        }
        if (sockets_.size() < count) continue;
        first_ = first;
        return;
    }
    sockets_.clear();
}

void ReservedPorts::listen_on_first(asio::any_io_executor executor) {
    if (sockets_.empty() || ::listen(sockets_.front().get(), SOMAXCONN) != 0) return;
    Fd socket(::fcntl(sockets_.front().get(), F_DUPFD_CLOEXEC, 3));
    if (!socket) return;
    door_ = std::make_shared<Door>(executor, std::move(socket));
    door_->open();
}

Fd ReservedPorts::take_first() {
    if (const auto proxy = std::exchange(door_, nullptr)) proxy->close();
    if (sockets_.empty()) return first_ == 0 ? Fd() : bind_any(first_, true);
    return std::move(sockets_.front());
}

void ReservedPorts::release() {
    if (const auto proxy = std::exchange(door_, nullptr)) proxy->close();
    sockets_.clear();
}

}  // namespace dtrun::agent
