#include "collectives/backends/tcp/socket.h"

#include "collectives/backends/tcp/address.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::collectives::over_tcp {
namespace {

socklen_t length_of(const sockaddr_storage& address) {
    return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

Result<Fd> open_socket(int family) {
    Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fail(Errc::internal, "socket: {}", std::strerror(errno));
    return fd;
}

/// How fast TCP sends, where the system's way does harm here. BBR keeps a few packets under way on a network with
/// short delays, and a receiver that computes instead of reading acknowledges them 40 ms later: on 4 hosts with 4
/// ranks each at 1 Gbit/s, an allreduce of 4 MiB in 8 bits then waited 90 ms for the wire instead of 20.
void choose_congestion_control(int fd, Traffic traffic) {
    const char* const wish = std::getenv("DTRUN_TCP_CONGESTION");
    std::array<char, 16> current{};  // as long as the kernel's names can be
    socklen_t bytes = current.size();
    if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, current.data(), &bytes) != 0) return;
    const std::string_view is(current.data(), ::strnlen(current.data(), bytes));
    std::vector<std::string_view> wanted;
    if (wish != nullptr)
        wanted = {wish};
    else if (traffic == Traffic::bursts && is.starts_with("bbr"))
        wanted = {"cubic", "reno"};
    // Where the system does not have or allow it, the connection stays as it is.
    for (const std::string_view name : wanted)
        if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                         static_cast<socklen_t>(name.size())) == 0)
            return;
}

bool has_to_wait(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Result<Socket> Socket::listen(const std::string& ip) {
    const auto address = parse_address(ip + " 0");
    if (!address) return std::unexpected(address.error());
    auto fd = open_socket(address->ss_family);
    if (!fd) return std::unexpected(fd.error());
    const auto* where = reinterpret_cast<const sockaddr*>(&*address);
    constexpr int kWaiting = 1'024;  // the system takes its own limit, if that is less
    if (::bind(fd->get(), where, length_of(*address)) != 0 || ::listen(fd->get(), kWaiting) != 0)
        return fail(Errc::internal, "cannot listen at {}: {}", ip, std::strerror(errno));
    return Socket(std::move(*fd));
}

Result<Socket> Socket::connect(const sockaddr_storage& address) {
    auto fd = open_socket(address.ss_family);
    if (!fd) return std::unexpected(fd.error());
    const auto* where = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(fd->get(), where, length_of(address)) != 0 && errno != EINPROGRESS)
        return fail(Errc::closed, "{}: {}", text_of(address), std::strerror(errno));
    return Socket(std::move(*fd));
}

Socket Socket::accept() const {
    return Socket(Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
}

sockaddr_storage Socket::local_address() const {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    return address;
}

sockaddr_storage Socket::peer_address() const {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    ::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    return address;
}

Result<void> Socket::connected() const {
    int error = 0;
    socklen_t bytes = sizeof error;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == 0) return {};
    return fail(Errc::closed, "{}", std::strerror(error));
}

Result<std::size_t> Socket::send(std::span<const iovec> parts) const {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (has_to_wait(errno)) return 0;
    return fail(Errc::closed, "{}", std::strerror(errno));
}

Result<std::size_t> Socket::receive(void* data, std::size_t bytes) const {
    const ssize_t come = ::recv(fd_.get(), data, bytes, MSG_DONTWAIT);
    if (come > 0) return static_cast<std::size_t>(come);
    if (come == 0 && bytes > 0) return fail(Errc::closed, "the connection was closed");
    if (come == 0 || has_to_wait(errno)) return 0;
    return fail(Errc::closed, "{}", std::strerror(errno));
}

void Socket::shut() const noexcept {
    if (!fd_) return;
    // An urgent byte tells the peer that this is no regular close.
    ::send(fd_.get(), "", 1, MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL);
    ::shutdown(fd_.get(), SHUT_RDWR);
}

void Socket::prepare(Traffic traffic) const {
    constexpr int kRoom = 4 << 20;
    constexpr int kOn = 1;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof kRoom);
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
    choose_congestion_control(fd_.get(), traffic);
}

std::size_t Socket::send_room() const {
    int room = 0;
    socklen_t bytes = sizeof room;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &room, &bytes);
    return static_cast<std::size_t>(room);
}

}  // namespace dtrun::collectives::over_tcp
