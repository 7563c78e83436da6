#include "tests/collectives/nccl/fake_mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

namespace fake {
namespace {

/// How late an abort is noticed.
constexpr int kPollMs = 5;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

void make_ready(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void wait_for(int fd, short events, const std::atomic<bool>& aborted) {
    pollfd one{fd, events, 0};
    do {
        if (aborted) throw Aborted();
    } while (::poll(&one, 1, kPollMs) == 0);
}

/// Roots of this process, until it ends.
class Roots {
public:
    ~Roots() {
        stop_ = true;
        for (std::thread& thread : threads_) thread.join();
    }
    RootAddress start() {
        Socket listener = Socket::listen();
        RootAddress address{};
        std::memcpy(address.magic, "fakenccl", sizeof address.magic);
        std::random_device random;
        address.secret = (std::uint64_t{random()} << 32) | random();
        address.port = listener.port();
        const std::lock_guard lock(mutex_);
        threads_.emplace_back(
            [this, at = std::move(listener), secret = address.secret] { serve(at, secret); });
        return address;
    }

private:
    void serve(const Socket& listener, std::uint64_t secret) {
        try {
            std::vector<RankAddress> ranks;
            std::vector<Socket> sockets;
            std::size_t came = 0;
            do {
                Socket socket = accept_one(listener, stop_);
                RankAddress one;
                read_all(socket, &one, sizeof one, stop_);
                if (one.secret != secret) continue;
                ranks.resize(static_cast<std::size_t>(one.size));
                ranks[static_cast<std::size_t>(one.rank)] = one;
                sockets.push_back(std::move(socket));
                ++came;
            } while (came < ranks.size() || came == 0);
            for (const Socket& socket : sockets)
                write_all(socket, ranks.data(), ranks.size() * sizeof ranks[0], stop_);
        } catch (const Aborted&) {
        } catch (const Broken&) {
            // Whoever is gone is missed by the others.
        }
    }

    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::vector<std::thread> threads_;
};

struct Header {
    std::uint64_t magic;
    std::uint64_t bytes;
};
constexpr std::uint64_t kMagic = 0x6d657373616765;

/// Messages of one direction with one peer, one behind the other.
template <class Message>
struct Lane {
    std::deque<Message> messages;
    Header header{};
    std::size_t done = 0;  ///< bytes of the first message's header and data
};

/// Sends what can be sent now.
void progress(int fd, int peer, Lane<Outgoing>& lane) {
    while (!lane.messages.empty()) {
        const Outgoing& message = lane.messages.front();
        lane.header = {kMagic, message.bytes};
        const bool head = lane.done < sizeof lane.header;
        const auto* const from = head ? reinterpret_cast<const std::byte*>(&lane.header) + lane.done
                                      : message.data + (lane.done - sizeof lane.header);
        const std::size_t all = sizeof lane.header + message.bytes;
        const std::size_t bytes = (head ? sizeof lane.header : all) - lane.done;
        if (bytes > 0) {
            const ssize_t sent = ::send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (sent < 0) throw Broken(peer, "rank " + std::to_string(peer) + " has hung up");
            lane.done += static_cast<std::size_t>(sent);
        }
        if (lane.done < all) continue;
        lane.messages.pop_front();
        lane.done = 0;
    }
}

void progress(int fd, int peer, Lane<Incoming>& lane) {
    while (!lane.messages.empty()) {
        const Incoming& message = lane.messages.front();
        const bool head = lane.done < sizeof lane.header;
        auto* const to = head ? reinterpret_cast<std::byte*>(&lane.header) + lane.done
                              : message.data + (lane.done - sizeof lane.header);
        const std::size_t all = sizeof lane.header + message.bytes;
        const std::size_t bytes = (head ? sizeof lane.header : all) - lane.done;
        if (bytes > 0) {
            const ssize_t got = ::recv(fd, to, bytes, MSG_DONTWAIT);
            if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (got <= 0) throw Broken(peer, "rank " + std::to_string(peer) + " has hung up");
            lane.done += static_cast<std::size_t>(got);
        }
        if (lane.done == sizeof lane.header &&
            (lane.header.magic != kMagic || lane.header.bytes != message.bytes))
            throw Broken(-1, "rank " + std::to_string(peer) + " has sent " +
                                 std::to_string(lane.header.bytes) + " B, not " +
                                 std::to_string(message.bytes));
        if (lane.done < all) continue;
        lane.messages.pop_front();
        lane.done = 0;
    }
}

}  // namespace

Socket::~Socket() {
    if (fd_ >= 0) ::close(fd_);
}

Socket Socket::listen() {
    Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = loopback(0);
    if (::bind(socket.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(socket.fd_, 1024) != 0)
        throw Broken(-1, std::string("listen: ") + std::strerror(errno));
    make_ready(socket.fd_);
    return socket;
}

Socket Socket::connect(std::uint16_t port) {
    Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = loopback(port);
    if (::connect(socket.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        throw Broken(-1, std::string("connect: ") + std::strerror(errno));
    make_ready(socket.fd_);
    return socket;
}

std::uint16_t Socket::port() const {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
}

void Socket::shut_down() const {
    if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

Socket accept_one(const Socket& listener, const std::atomic<bool>& aborted) {
    while (true) {
        wait_for(listener.fd(), POLLIN, aborted);
        const int fd = ::accept(listener.fd(), nullptr, nullptr);
        if (fd < 0) continue;
        make_ready(fd);
        return Socket(fd);
    }
}

void write_all(const Socket& socket, const void* data, std::size_t bytes,
               const std::atomic<bool>& aborted) {
    const auto* at = static_cast<const std::byte*>(data);
    while (bytes > 0) {
        wait_for(socket.fd(), POLLOUT, aborted);
        const ssize_t sent = ::send(socket.fd(), at, bytes, MSG_NOSIGNAL);
        if (sent < 0) throw Broken(-1, "connection broke");
        at += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
}

void read_all(const Socket& socket, void* data, std::size_t bytes,
              const std::atomic<bool>& aborted) {
    auto* at = static_cast<std::byte*>(data);
    while (bytes > 0) {
        wait_for(socket.fd(), POLLIN, aborted);
        const ssize_t got = ::recv(socket.fd(), at, bytes, 0);
        if (got <= 0) throw Broken(-1, "connection broke");
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

RootAddress start_root() {
    static Roots roots;
    return roots.start();
}

Mesh::Mesh(const RootAddress& root, RankAddress self, const std::atomic<bool>& aborted)
    : self_(self),
      ranks_(static_cast<std::size_t>(self.size)),
      peers_(static_cast<std::size_t>(self.size)) {
    const Socket listener = Socket::listen();
    self.port = listener.port();
    self.secret = root.secret;
    const Socket to_root = Socket::connect(root.port);
    write_all(to_root, &self, sizeof self, aborted);
    read_all(to_root, ranks_.data(), ranks_.size() * sizeof ranks_[0], aborted);
    for (int peer = 0; peer < self.rank; ++peer) {
        Socket socket = Socket::connect(ranks_[static_cast<std::size_t>(peer)].port);
        write_all(socket, &self, sizeof self, aborted);
        peers_[static_cast<std::size_t>(peer)] = std::move(socket);
    }
    for (int left = self.size - 1 - self.rank; left > 0;) {
        Socket socket = accept_one(listener, aborted);
        RankAddress other;
        read_all(socket, &other, sizeof other, aborted);
        if (other.secret != root.secret) continue;
        peers_[static_cast<std::size_t>(other.rank)] = std::move(socket);
        --left;
    }
}

void Mesh::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                    const std::atomic<bool>& aborted) {
    std::vector<Lane<Outgoing>> out(peers_.size());
    std::vector<Lane<Incoming>> in(peers_.size());
    for (const Outgoing& one : outgoing)
        out[static_cast<std::size_t>(one.peer)].messages.push_back(one);
    for (const Incoming& one : incoming)
        in[static_cast<std::size_t>(one.peer)].messages.push_back(one);
    while (true) {
        std::vector<pollfd> waiting;
        for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
            const int fd = peers_[peer].fd();
            progress(fd, static_cast<int>(peer), out[peer]);
            progress(fd, static_cast<int>(peer), in[peer]);
            const int events = (out[peer].messages.empty() ? 0 : POLLOUT) |
                               (in[peer].messages.empty() ? 0 : POLLIN);
            if (events != 0) waiting.push_back({fd, static_cast<short>(events), 0});
        }
        if (waiting.empty()) return;
        if (aborted) throw Aborted();
        ::poll(waiting.data(), waiting.size(), kPollMs);
    }
}

void Mesh::hang_up() const {
    for (const Socket& peer : peers_) peer.shut_down();
}

}  // namespace fake
