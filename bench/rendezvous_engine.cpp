#include "bench/rendezvous_engine.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace dtrun::bench {
namespace {

constexpr std::size_t kBufferBytes = 64u << 10;
constexpr int kEventsMax = 1024;
/// The kernel has 28,232 ports to give by default, and gets slow long before they are used up. The
/// connections from this number on get the port of that number, which is below those.
constexpr std::uint32_t kOwnPorts = 10'000;
/// What a client waits that finds the backlog of a Unix socket full.
constexpr std::chrono::milliseconds kBacklogWait{10};

template <class T>
bool parse(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Result<Endpoint> tcp_endpoint(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    sockaddr_in address{};
    address.sin_family = AF_INET;
    std::uint16_t port = 0;
    if (colon == text.npos || !parse(std::string_view(text).substr(colon + 1), port) ||
        inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1)
        return fail(Errc::invalid_input, "{}: not an IPv4 address and a port", text);
    address.sin_port = htons(port);
    Endpoint endpoint;
    std::memcpy(&endpoint.address, &address, sizeof address);
    endpoint.address_bytes = sizeof address;
    return endpoint;
}

Result<Endpoint> unix_endpoint(const std::string& text) {
    const std::size_t equals = std::min(text.find('='), text.size());
    std::string path = text.substr(0, equals);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    Endpoint endpoint;
    const bool ranked = equals < text.size();
    if (path.empty() || path.size() >= sizeof address.sun_path ||
        (ranked && !parse(std::string_view(text).substr(equals + 1), endpoint.first_rank)))
        return fail(Errc::invalid_input, "{}: not a Unix socket", text);
    const bool abstract = path.front() == '@';
    if (abstract) path.front() = '\0';
    std::memcpy(address.sun_path, path.data(), path.size());
    endpoint.address_bytes =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
    std::memcpy(&endpoint.address, &address, sizeof address);
    return endpoint;
}

Engine::Engine(Protocol& protocol, std::vector<Endpoint> endpoints, std::uint32_t clients)
    : protocol_(protocol),
      endpoints_(std::move(endpoints)),
      slots_(clients),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      buffer_(kBufferBytes, '\0') {
    const auto hosts = static_cast<std::uint32_t>(endpoints_.size());
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        Connection& c = slots_[i].connection;
        c.client = i;
        c.rank = endpoints_[c.client % hosts].first_rank + c.client / hosts;
        c.key = fmt::format("k{}", c.rank);
        c.value = fmt::format("{:064}", c.rank);
    }
}

bool Engine::begin(std::uint32_t client, Task task) {
    Slot& slot = slots_[client];
    slot.task = task;
    const Progress progress = protocol_.begin(task, slot.connection);
    slot.busy = progress == Progress::more;
    if (!slot.connection.out.empty()) send(slot);
    return !slot.busy;
}

Result<void> Engine::poll(Clock::time_point until, const Done& done) {
    if (!later_.empty()) until = std::min(until, later_.begin()->first);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    std::array<epoll_event, kEventsMax> events;
    const int count = failure_ ? 0
                               : epoll_wait(epoll_.get(), events.data(), kEventsMax,
                                            static_cast<int>(std::max<decltype(left)>(left, 0)));
    for (int i = 0; i < count && !failure_; ++i) {
        Slot& slot = slots_[events[i].data.u32];
        if (slot.wants_room && (events[i].events & EPOLLOUT)) send(slot);
        if (events[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) receive(slot, done);
    }
    while (!later_.empty() && later_.begin()->first <= Clock::now() && !failure_) {
        Slot& slot = slots_[later_.begin()->second];
        later_.erase(later_.begin());
        send(slot);
    }
    if (failure_) return std::unexpected(*failure_);
    return {};
}

void Engine::open(Slot& slot) {
    const Endpoint& endpoint = endpoint_of(slot);
    const int family = endpoint.address.ss_family;
    slot.fd = Fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int fd = slot.fd.get();
    if (fd < 0) return failed(slot, "socket", errno);
    if (family == AF_INET) {
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (const std::uint32_t port = index_of(slot); port >= kOwnPorts) {
            sockaddr_in own{};
            own.sin_family = AF_INET;
            own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            own.sin_port = htons(static_cast<std::uint16_t>(port));
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0)
                return failed(slot, "bind", errno);
        }
    }
    const auto* address = reinterpret_cast<const sockaddr*>(&endpoint.address);
    if (connect(fd, address, endpoint.address_bytes) != 0 && errno != EINPROGRESS) {
        if (errno != EAGAIN) return failed(slot, "connect", errno);
        slot.fd.reset();  // a Unix socket with a full backlog
        return send_later(slot);
    }
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u32 = index_of(slot)}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) failed(slot, "epoll", errno);
}

void Engine::send(Slot& slot) {
    if (!slot.fd) open(slot);
    if (!slot.fd || failure_) return;
    std::string& out = slot.connection.out;
    while (slot.sent < out.size()) {
        const ssize_t sent =
            ::send(slot.fd.get(), out.data() + slot.sent, out.size() - slot.sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return want_room(slot, true);
        if (sent < 0) return failed(slot, "send", errno);
        slot.sent += static_cast<std::size_t>(sent);
    }
    out.clear();
    slot.sent = 0;
    want_room(slot, false);
}

/// A connection that is not established yet has no room either.
void Engine::want_room(Slot& slot, bool wanted) {
    if (slot.wants_room == wanted) return;
    slot.wants_room = wanted;
    epoll_event event{.events = EPOLLIN | EPOLLET | (wanted ? EPOLLOUT : 0u),
                      .data = {.u32 = index_of(slot)}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, slot.fd.get(), &event) != 0)
        failed(slot, "epoll", errno);
}

void Engine::receive(Slot& slot, const Done& done) {
    std::size_t bytes = kBufferBytes;
    while (bytes == kBufferBytes && slot.fd && !failure_) {
        const ssize_t size = recv(slot.fd.get(), buffer_.data(), kBufferBytes, 0);
        if (size < 0 && errno == EAGAIN) return;
        if (size < 0) return failed(slot, "receive", errno);
        if (size == 0) return failed(slot, "the server has closed the connection");
        bytes = static_cast<std::size_t>(size);
        received(slot, {buffer_.data(), bytes}, done);
    }
}

void Engine::received(Slot& slot, std::string_view bytes, const Done& done) {
    Connection& c = slot.connection;
    std::string joined;
    if (!slot.carry.empty()) {
        joined = std::move(slot.carry);
        joined += bytes;
        bytes = joined;
    }
    const Progress progress = protocol_.received(slot.task, c, bytes);
    slot.carry = bytes;
    if (progress == Progress::failed) return failed(slot, "unexpected answer");
    if (!c.out.empty()) send(slot);
    if (progress != Progress::done || !slot.busy) return;
    slot.busy = false;
    if (slot.task == Task::barrier) ++c.barriers;
    done(c.client);
}

void Engine::send_later(const Slot& slot) {
    later_.emplace(Clock::now() + kBacklogWait, index_of(slot));
}

std::uint32_t Engine::index_of(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
}

const Endpoint& Engine::endpoint_of(const Slot& slot) const {
    return endpoints_[slot.connection.client % endpoints_.size()];
}

void Engine::failed(const Slot& slot, const char* what, int error) {
    if (failure_) return;
    failure_ = Error{Errc::closed, fmt::format("client {}: {}", slot.connection.client, what)};
    if (error != 0) failure_->message += fmt::format(": {}", std::strerror(error));
}

}  // namespace dtrun::bench
