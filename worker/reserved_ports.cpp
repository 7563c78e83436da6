#include "worker/reserved_ports.h"

#include "base/ids.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <array>

namespace dtrun {
namespace {

constexpr int kTries = 64;
constexpr std::uint32_t kFirst = 20'000, kCount = 12'000;

/// Of both kinds of addresses, where there are both.
/// \param again  it was ours before: what is left of its connections is no hindrance
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

void ReservedPorts::listen_on_first() {
    if (!sockets_.empty() && sockets_.front()) ::listen(sockets_.front().get(), SOMAXCONN);
}

Fd ReservedPorts::take_first() {
    if (sockets_.empty()) return first_ == 0 ? Fd() : bind_any(first_, true);
    return std::move(sockets_.front());
}

void ReservedPorts::release() {
    sockets_.clear();
}

}  // namespace dtrun
