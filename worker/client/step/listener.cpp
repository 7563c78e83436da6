#include "worker/client/step/listener.h"

#include "worker/client/step/search.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::milliseconds kPause{100};

template <class Address>
bool bind_to(int socket, const Address& address) {
    return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// Listens for IPv6 and IPv4, or for IPv4 alone where there is no IPv6.
PrivateFd listen_at(std::uint16_t port) {
    const auto open = [](int family) {
        return PrivateFd(
            [=] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    };
    const int on = 1, off = 0;
    PrivateFd socket = open(AF_INET6);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    bool bound = false;
    if (socket) {
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        bound = bind_to(socket.get(), six);
    }
    if (!bound && errno != EADDRINUSE) {
        socket = open(AF_INET);
        if (!socket) return {};
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        sockaddr_in four{};
        four.sin_family = AF_INET;
        four.sin_port = htons(port);
        bound = bind_to(socket.get(), four);
    }
    if (!bound || ::listen(socket.get(), SOMAXCONN) != 0) return {};
    return socket;
}

}  // namespace

std::optional<std::uint16_t> StepListener::listen(std::span<const std::uint16_t> ports) {
    const auto free = std::ranges::find_if(ports, [&](std::uint16_t port) {
        socket_ = listen_at(port);
        return static_cast<bool>(socket_);
    });
    if (free == ports.end()) return std::nullopt;
    set_accepting(true);
    return *free;
}

void StepListener::close() {
    socket_.reset();
    again_ = Moment::max();
}

Outcome<PrivateFd> StepListener::accept() {
    while (socket_) {
        PrivateFd accepted([this] {
            return ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        });
        const int error = accepted ? 0 : errno;
        if (error == EAGAIN || error == EWOULDBLOCK) break;
        if (error == EINTR || error == ECONNABORTED) continue;
        if (error != 0) {
            again_ = now() + kPause;
            set_accepting(false);
            return failure(DTRUN_INTERNAL, "{}", strerror(error));
        }
        keep_watch(accepted.get());
        const int on = 1;
        ::setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        return accepted;
    }
    return PrivateFd();
}

void StepListener::resume(Moment at) {
    if (again_ > at) return;
    again_ = Moment::max();
    if (socket_) set_accepting(true);
}

void StepListener::set_accepting(bool accepting) {
    if (std::exchange(accepting_, accepting) == accepting) return;
    poll_.watch(socket_.get(), StepPoll::kListener, accepting ? std::uint32_t{EPOLLIN} : 0u);
}

}  // namespace dtrun::embedded
