#include "collectives/gloo/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace dtrun::collectives::over_gloo {
namespace {

bool equal(const sockaddr_storage& a, const sockaddr_storage& b) {
    if (a.ss_family != b.ss_family) return false;
    if (a.ss_family == AF_INET) {
        const auto& x = reinterpret_cast<const sockaddr_in&>(a);
        const auto& y = reinterpret_cast<const sockaddr_in&>(b);
        return x.sin_port == y.sin_port && x.sin_addr.s_addr == y.sin_addr.s_addr;
    }
    const auto& x = reinterpret_cast<const sockaddr_in6&>(a);
    const auto& y = reinterpret_cast<const sockaddr_in6&>(b);
    return x.sin6_port == y.sin6_port &&
           std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

std::optional<Socket::Ends> ends_of(int fd) {
    Socket::Ends ends{};
    sockaddr_storage peer{};
    socklen_t local_bytes = sizeof ends.local, peer_bytes = sizeof peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&ends.local), &local_bytes) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0)
        return std::nullopt;
    ends.peer = peer;
    return ends;
}

}  // namespace

Result<std::vector<Socket>> Socket::find(std::span<const Ends> wanted) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
    if (!folder) return fail(Errc::internal, "/proc/self/fd: {}", std::strerror(errno));
    std::vector<Socket> sockets(wanted.size());
    while (const dirent* entry = readdir(folder.get())) {
        const std::string_view name = entry->d_name;
        int fd = -1;
        std::from_chars(name.data(), name.data() + name.size(), fd);
        const auto ends = fd < 0 ? std::nullopt : ends_of(fd);
        if (!ends) continue;
        const auto is_it = [&](const Ends& one) {
            return equal(ends->local, one.local) && (!one.peer || equal(*ends->peer, *one.peer));
        };
        const auto found = std::ranges::find_if(wanted, is_it);
        if (found == wanted.end()) continue;
        // A program that this process starts must not keep the connection open.
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (own < 0) return fail(Errc::internal, "dup: {}", std::strerror(errno));
        sockets[static_cast<std::size_t>(found - wanted.begin())] = Socket(own);
        // Gloo has applied its connect timeout to this socket's reads and writes.
        const timeval forever{};
        setsockopt(own, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
        setsockopt(own, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof forever);
    }
    return sockets;
}

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

Socket::~Socket() {
    if (fd_ >= 0) close(fd_);
}

void Socket::shut() const noexcept {
    if (fd_ < 0) return;
    // An urgent byte tells the peer that this is no regular close.
    ::send(fd_, "", 1, MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd_, SHUT_RDWR);
}

int Socket::unread() const {
    int bytes = 0;
    return ioctl(fd_, FIONREAD, &bytes) == 0 ? bytes : 0;
}

void Socket::make_send_room() const {
    constexpr int kRoom = 4 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof kRoom);
}

std::size_t Socket::send_room() const {
    int room = 0;
    socklen_t bytes = sizeof room;
    getsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &room, &bytes);
    return static_cast<std::size_t>(room);
}

void Socket::wait_until_shut() const {
    pollfd entry{fd_, POLLRDHUP, 0};
    while (poll(&entry, 1, -1) < 0 && errno == EINTR) {
    }
}

NoPipeSignal::NoPipeSignal() {
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    blocked_ = sigismember(&before, SIGPIPE) == 0;
}

NoPipeSignal::~NoPipeSignal() {
    if (!blocked_) return;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec now{};
    if (take_) sigtimedwait(&pipe, nullptr, &now);
    pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace dtrun::collectives::over_gloo
