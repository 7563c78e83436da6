#include "worker/client/connect/frame_socket.h"

#include "base/fd.h"
#include "base/threads.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kBufferBytes = 64u << 10;

/// Waits until `events` are there. Failures: timed_out, cancelled
Outcome<void> wait_for(int fd, short events, const WaitContext& context) {
    for (;;) {
        const int ready = poll_until(fd, events, context.slice());
        if (ready > 0) return {};
        if (context.give_up && context.give_up()) return failure(DTRUN_CANCELLED, "interrupted");
        if (context.over()) return failure(DTRUN_TIMED_OUT, "no answer");
    }
}

Outcome<FrameSocket> connect_address(const TcpAddress& address, const WaitContext& context) {
    const auto* where = reinterpret_cast<const sockaddr*>(&address.socket_address);
    if (SimulatedSystem::current != nullptr) {
        PrivateFd simulated([where] { return SimulatedSystem::current->connect(*where); });
        if (!simulated) return failure(DTRUN_CLOSED, "{}", strerror(errno));
        return FrameSocket(std::move(simulated));
    }
    PrivateFd socket([&address] {
        return ::socket(address.socket_address.ss_family,
                        SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    });
    if (!socket) return failure(DTRUN_CLOSED, "socket: {}", strerror(errno));
    int error = 0;
    if (::connect(socket.get(), where, address.size) != 0) error = errno;
    if (error == EINPROGRESS) {
        const auto ready = wait_for(socket.get(), POLLOUT, context);
        if (!ready) return std::unexpected(ready.error());
        socklen_t size = sizeof error;
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) return failure(DTRUN_CLOSED, "{}", strerror(error));
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
    return FrameSocket(std::move(socket));
}

bool is_numeric(const std::string& host) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
    ::freeaddrinfo(found);
    return true;
}

}  // namespace

void keep_watch(int tcp_socket) {
    const auto set = [tcp_socket](int level, int option, int value) {
        (void)::setsockopt(tcp_socket, level, option, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);  // seconds
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
    // No TCP_USER_TIMEOUT: it would also end the connection of a process that is stopped, by a
    // debugger for instance, and so has not read for a while what there is for it.
}

TcpAddress TcpAddress::at(std::uint16_t port) const {
    TcpAddress address = *this;
    if (socket_address.ss_family == AF_INET6)
        reinterpret_cast<sockaddr_in6&>(address.socket_address).sin6_port = htons(port);
    else
        reinterpret_cast<sockaddr_in&>(address.socket_address).sin_port = htons(port);
    return address;
}

Outcome<std::vector<TcpAddress>> ask_resolver(const std::string& host, const std::string& port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const char* service = port.empty() ? nullptr : port.c_str();
    if (const int error = ::getaddrinfo(host.c_str(), service, &hints, &found); error != 0)
        return failure(DTRUN_CLOSED, "{}", gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    std::vector<TcpAddress> addresses;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        TcpAddress& address = addresses.emplace_back();
        address.size = a->ai_addrlen;
        std::memcpy(&address.socket_address, a->ai_addr, a->ai_addrlen);
    }
    return addresses;
}

Outcome<std::vector<TcpAddress>> resolve(const std::string& host, const std::string& port,
                                         const WaitContext& context, const Resolver& resolver) {
    if (is_numeric(host) || SimulatedSystem::current != nullptr) return resolver(host, port);
    struct Asked {
        Mutex mutex;
        ConditionVariable changed;
        std::optional<Outcome<std::vector<TcpAddress>>> found;
    };
    const auto asked = std::make_shared<Asked>();
    const auto ask = [asked, resolver, host, port] {
        auto found = resolver(host, port);
        const std::lock_guard lock(asked->mutex);
        asked->found = std::move(found);
        asked->changed.notify_all();
    };
    Thread thread;
    try {
        thread = Thread(ask);
    } catch (const std::system_error&) {
        return resolver(host, port);  // no more threads: then without a limit
    }
    const auto is_found = [&] { return asked->found.has_value(); };
    for (;;) {
        std::unique_lock lock(asked->mutex);
        const Moment until = context.slice();
        if (until == Moment::max()) asked->changed.wait(lock, is_found);
        if (is_found() || asked->changed.wait_until(lock, until, is_found)) {
            lock.unlock();
            thread.join();
            return std::move(*asked->found);
        }
        lock.unlock();
        const bool stop = context.give_up && context.give_up();
        if (!stop && !context.over()) continue;
        (void)thread.join_until(now());
        if (stop) return failure(DTRUN_CANCELLED, "interrupted");
        return failure(DTRUN_TIMED_OUT, "the address of '{}' is not found in time", host);
    }
}

Outcome<FrameSocket> FrameSocket::connect_unix(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() < 2 || path.size() >= sizeof address.sun_path)
        return failure(DTRUN_INVALID, "DTRUN_SOCKET='{}' is not the name of a socket", path);
    std::memcpy(address.sun_path, path.data(), path.size());
    std::size_t bytes = offsetof(sockaddr_un, sun_path) + path.size();
    if (path.front() == '@')
        address.sun_path[0] = '\0';
    else
        ++bytes;  // the zero at its end
    PrivateFd socket([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); });
    if (!socket) return failure(DTRUN_CLOSED, "socket: {}", strerror(errno));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                  static_cast<socklen_t>(bytes)) != 0)
        return failure(DTRUN_CLOSED, "no agent of dtrun at DTRUN_SOCKET='{}': {}", path,
                       strerror(errno));
    if (const auto other = foreign_user(socket.get()))
        return failure(DTRUN_REFUSED, "DTRUN_SOCKET='{}' belongs to user {}, not to us", path,
                       *other);
    FrameSocket connected(std::move(socket));
    connected.is_unix_ = true;
    return connected;
}

Outcome<FrameSocket> FrameSocket::connect_tcp(const std::vector<TcpAddress>& addresses,
                                              const WaitContext& context) {
    Outcome<FrameSocket> socket = failure(DTRUN_CLOSED, "no address");
    auto left = static_cast<Moment::rep>(addresses.size());
    for (const TcpAddress& address : addresses) {
        WaitContext share = context;
        const Moment started = now();
        if (context.deadline != Moment::max() && started < context.deadline)
            share.deadline = started + (context.deadline - started) / left;
        --left;
        socket = connect_address(address, share);
        if (socket || socket.error().code == DTRUN_CANCELLED) break;
    }
    return socket;
}

Outcome<FrameSocket> FrameSocket::connect_tcp(const std::string& host, const std::string& port,
                                              const WaitContext& context) {
    const auto addresses = resolve(host, port, context);
    if (!addresses) return std::unexpected(addresses.error());
    return connect_tcp(*addresses, context);
}

Outcome<void> FrameSocket::send(std::string_view bytes) {
    Outcome<void> sent;
    while (sent && !bytes.empty()) sent = send_some(bytes, Moment::max());
    return sent;
}

Outcome<void> FrameSocket::send_some(std::string_view& bytes, Moment until) {
    while (!bytes.empty()) {
        // It waits in poll_until(), where a simulation lets others run, of whom one reads this.
        const auto n =
            ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        const int error = n < 0 ? errno : 0;
        if (n >= 0)
            bytes.remove_prefix(static_cast<std::size_t>(n));
        else if (error != EAGAIN && error != EINTR)
            return failure(DTRUN_CLOSED, "{}", strerror(error));
        else if (error == EAGAIN && poll_until(socket_.get(), POLLOUT, until) <= 0)
            return {};
    }
    return {};
}

bool FrameSocket::can_send() const {
    pollfd entry{socket_.get(), POLLOUT, 0};
    return ::poll(&entry, 1, 0) > 0;
}

void FrameSocket::make_room() {
    std::size_t wanted = kBufferBytes;
    if (end_ - begin_ >= FrameHeader::kBytes)
        if (const auto header = decode_header(std::string_view(buffer_).substr(begin_)))
            wanted = std::max(wanted, FrameHeader::kBytes + header->payload_bytes);
    if (begin_ == end_) begin_ = end_ = 0;
    if (begin_ != 0 && buffer_.size() - begin_ < wanted) {
        std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
        end_ -= begin_;
        begin_ = 0;
    }
    // One large value must not keep its memory; but its pages are the dearest part of the next one.
    const bool may_shrink = end_ == 0 && !std::exchange(large_came_, false);
    if (buffer_.size() > wanted && may_shrink) {
        buffer_.resize(wanted);
        buffer_.shrink_to_fit();
    }
    if (buffer_.size() < wanted)
        buffer_.resize_and_overwrite(wanted, [](char*, std::size_t size) { return size; });
}

/// One recv(), or recvmsg() where descriptors may come along.
ssize_t FrameSocket::receive_bytes(int flags) {
    char* const room = buffer_.data() + end_;
    const std::size_t size = buffer_.size() - end_;
    if (!is_unix_) return ::recv(socket_.get(), room, size, flags);
    iovec bytes{room, size};
    alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | flags);
    if (n < 0) return n;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (descriptors_.size() < kDescriptorsMax)
                descriptors_.emplace_back(fd);
            else
                ::close(fd);
        }
    }
    return n;
}

/// As poll(): of the socket, and of what else is to end the wait.
int FrameSocket::wait_for_bytes(Moment until, Also also) {
    const auto events = static_cast<short>(also.has_room ? POLLIN | POLLOUT : POLLIN);
    if (also.bell < 0) return poll_until(socket_.get(), events, until);
    pollfd entries[] = {{socket_.get(), events, 0}, {also.bell, POLLIN, 0}};
    const int ready = ::poll(entries, 2, poll_timeout(until));
    eventfd_t rung = 0;
    if (ready > 0 && entries[1].revents != 0) (void)::eventfd_read(also.bell, &rung);
    return ready;
}

FrameSocket::Got FrameSocket::receive(Moment until, Also also) {
    make_room();
    const bool may_be_woken = also.has_room || also.bell >= 0;
    // recv() itself waits as long as it takes.
    if (until != Moment::max() || may_be_woken || SimulatedSystem::current != nullptr) {
        const int ready = wait_for_bytes(until, also);
        if (ready == 0) return Got::nothing;
        if (ready < 0) return Got::signal;
    }
    const ssize_t n = receive_bytes(may_be_woken ? MSG_DONTWAIT : 0);
    if (n > 0) {
        end_ += static_cast<std::size_t>(n);
        return Got::bytes;
    }
    if (n < 0 && errno == EAGAIN) return Got::woken;
    return n < 0 && errno == EINTR ? Got::signal : Got::end;
}

Result<std::optional<FrameView>> FrameSocket::next() {
    std::string_view bytes = std::string_view(buffer_).substr(begin_, end_ - begin_);
    auto frame = next_frame(bytes);
    begin_ = end_ - bytes.size();
    large_came_ |= frame && *frame && (*frame)->payload.size() > kBufferBytes;
    return frame;
}

Outcome<std::string> FrameSocket::read_exactly(std::size_t size, const WaitContext& context) {
    std::string bytes(size, '\0');
    for (std::size_t got = 0; got < size;) {
        const auto ready = wait_for(socket_.get(), POLLIN, context);
        if (!ready) return std::unexpected(ready.error());
        const ssize_t n = ::recv(socket_.get(), bytes.data() + got, size - got, 0);
        if (n == 0) return failure(DTRUN_CLOSED, "connection closed");
        if (n < 0 && errno != EINTR) return failure(DTRUN_CLOSED, "{}", strerror(errno));
        if (n > 0) got += static_cast<std::size_t>(n);
    }
    return bytes;
}

void FrameSocket::shut_down() {
    if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

void FrameSocket::finish(Moment deadline) {
    if (!socket_) return;
    ::shutdown(socket_.get(), SHUT_WR);
    for (Got got = Got::bytes; got == Got::bytes || got == Got::signal;) {
        begin_ = end_ = 0;
        got = receive(deadline);
    }
}

}  // namespace dtrun::embedded
