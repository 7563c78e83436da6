#include "tests/simulation/network.h"

#include "tests/simulation/world.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

namespace dtrun::simulation {

void watch_fd(const Fd& poll, int fd, std::uint32_t events, std::uint64_t what) {
    // An epoll would tell of the end of a connection even so.
    if (events == 0) {
        ::epoll_ctl(poll.get(), EPOLL_CTL_DEL, fd, nullptr);
        return;
    }
    epoll_event entry{.events = events | EPOLLONESHOT, .data = {.u64 = what}};
    if (::epoll_ctl(poll.get(), EPOLL_CTL_MOD, fd, &entry) != 0 && errno == ENOENT)
        ::epoll_ctl(poll.get(), EPOLL_CTL_ADD, fd, &entry);
}

namespace {

/// What a connection holds on its way, beyond which its sender's socket fills.
constexpr std::size_t kFlyingBytesMax = 256u << 10;

}  // namespace

int Network::connect(Process& from, Machine& to, std::uint16_t port) {
    if (to.is_on() && !to.listeners_.contains(port) && !is_blocked(from.machine(), to)) {
        errno = ECONNREFUSED;
        return -1;
    }
    int near[2], far[2];
    const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    if (::socketpair(AF_UNIX, kind, 0, near) != 0 || ::socketpair(AF_UNIX, kind, 0, far) != 0)
        throw std::runtime_error("no more sockets");
    // Half of all sockets are so small that a frame does not go into them at once.
    const int small = 4'096;
    if (world_.draw_chance(0.5))
        for (const int fd : {near[0], near[1], far[0], far[1]})
            ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    auto wire = std::make_unique<Wire>();
    wire->number = ++last_;
    wire->ends[0] = {&from.machine(), &from, Fd(near[1]), 0, false};
    wire->ends[1] = {&to, nullptr, Fd(far[1]), 0, false};
    watch(*wire, 0);
    const std::uint64_t number = wire->number;
    wires_[number] = std::move(wire);
    auto inner = std::make_shared<Fd>(far[0]);
    world_.at(world_.now() + draw_delay(),
              [this, number, port, inner] { accept(number, port, std::move(*inner)); });
    return near[0];
}

/// The connection reaches the other machine.
void Network::accept(std::uint64_t number, std::uint16_t port, Fd inner) {
    const auto found = wires_.find(number);
    if (found == wires_.end()) return;
    Wire& wire = *found->second;
    Machine& to = *wire.ends[1].machine;
    if (!to.is_on() || wire.ways[0].lost) return;
    if (is_blocked(*wire.ends[0].machine, to)) {
        auto kept = std::make_shared<Fd>(std::move(inner));
        world_.at(world_.now() + milliseconds(500),
                  [this, number, port, kept] { accept(number, port, std::move(*kept)); });
        return;
    }
    const auto listener = to.listeners_.find(port);
    if (listener == to.listeners_.end()) return reset(number);
    Process& process = *to.process();
    wire.ends[1].process = &process;
    watch(wire, 1);
    Process* const before = std::exchange(world_.current_, &process);
    listener->second(std::move(inner));
    world_.current_ = before;
    process.due_ = std::min(process.due_, world_.now());
}

/// Has the machine's program tell when it has sent something.
void Network::watch(Wire& wire, int end) {
    End& of = wire.ends[end];
    if (of.process == nullptr || !of.fd) return;
    const std::uint32_t events =
        (wire.ways[end].ended || wire.ways[end].bytes >= kFlyingBytesMax ? 0u : EPOLLIN) |
        (wire.ways[1 - end].arms ? EPOLLOUT : 0u);
    if (std::exchange(of.watched, events) == events) return;
    watch_fd(of.process->poll_, of.fd.get(), events, wire.number * 2 + static_cast<unsigned>(end));
}

/// The epoll has told of a connection's end, which it does once.
void Network::told(std::uint64_t number, int end) {
    if (const auto wire = wires_.find(number); wire != wires_.end())
        wire->second->ends[end].watched = 0;
}

void Network::readable(std::uint64_t number, int end) {
    const auto wire = wires_.find(number);
    if (wire == wires_.end()) return;
    pick_up(*wire->second, end);
    watch(*wire->second, end);
}

void Network::writable(std::uint64_t number, int end) {
    const auto wire = wires_.find(number);
    if (wire == wires_.end()) return;
    wire->second->ways[1 - end].arms = false;
    deliver(number, 1 - end);
}

/// Takes what was sent.
void Network::pick_up(Wire& wire, int end) {
    Way& way = wire.ways[end];
    std::array<char, 64 << 10> bytes;
    while (!way.ended && way.bytes < kFlyingBytesMax) {
        const ssize_t n = ::recv(wire.ends[end].fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        way.last = std::max(way.last, world_.now() + draw_delay());
        if (n <= 0) {
            way.ended = true;
            way.flying.push_back({way.last, ""});
        } else {
            way.bytes += static_cast<std::size_t>(n);
            way.flying.push_back(
                {way.last, std::string(bytes.data(), static_cast<std::size_t>(n))});
        }
        schedule(wire, end, way.last);
        if (n > 0 && wire.breaks == end) return break_end(wire, end);
        if (n > 0 && static_cast<std::size_t>(n) < bytes.size()) return;  // that was all
    }
}

void Network::schedule(Wire& wire, int end, Deadline when) {
    world_.at(when, [this, number = wire.number, end] { deliver(number, end); });
}

void Network::deliver(std::uint64_t number, int end) {
    const auto found = wires_.find(number);
    if (found == wires_.end()) return;
    Wire& wire = *found->second;
    Way& way = wire.ways[end];
    End& to = wire.ends[1 - end];
    if (way.lost || is_blocked(*wire.ends[end].machine, *to.machine)) return;
    if (to.process == nullptr) {
        if (to.machine->is_on() && !way.flying.empty() && end == 1) reset(number);
        // Else it is not accepted yet.
        if (end == 0 && to.machine->is_on() && !way.flying.empty())
            schedule(wire, end, world_.now() + milliseconds(1));
        return;
    }
    if (!to.process->is_alive()) {
        if (to.machine->is_on() && !way.flying.empty()) reset(number);
        return;
    }
    if (to.broken) {
        way.flying.clear();
        way.bytes = 0;
        return reset_if_over(wire);
    }
    bool delivered = false;
    while (!way.flying.empty() && way.flying.front().when <= world_.now() && !way.arms) {
        Way::Piece& piece = way.flying.front();
        if (piece.bytes.empty()) {
            ::shutdown(to.fd.get(), SHUT_WR);
            way.flying.pop_front();
            delivered = true;
            continue;
        }
        const ssize_t n = ::send(to.fd.get(), piece.bytes.data(), piece.bytes.size(),
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) return reset(number);
        const std::size_t sent = n > 0 ? static_cast<std::size_t>(n) : 0;
        way.bytes -= sent;
        delivered |= sent > 0;
        if (sent == piece.bytes.size()) {
            way.flying.pop_front();
        } else {
            piece.bytes.erase(0, sent);
            way.arms = true;
        }
    }
    if (delivered) to.process->due_ = std::min(to.process->due_, world_.now());
    watch(wire, 1 - end);
    watch(wire, end);
    reset_if_over(wire);
}

void Network::reset_if_over(Wire& wire) {
    if (wire.ways[0].ended && wire.ways[1].ended && wire.ways[0].flying.empty() &&
        wire.ways[1].flying.empty())
        reset(wire.number);
}

/// Both ends find the connection broken.
void Network::reset(std::uint64_t number) {
    const auto wire = wires_.extract(number);
    if (wire.empty()) return;
    for (End& end : wire.mapped()->ends)
        if (end.process != nullptr && end.process->is_alive())
            end.process->due_ = std::min(end.process->due_, world_.now());
}

void Network::block(const Machine& from, const Machine& to) {
    blocked_.emplace_back(&from, &to);
}

void Network::heal() {
    blocked_.clear();
    for (auto& [number, wire] : wires_)
        for (int end = 0; end < 2; ++end)
            if (!wire->ways[end].flying.empty()) {
                const Deadline when = std::max(world_.now(), wire->ways[end].flying.front().when);
                schedule(*wire, end, when + draw_delay());
            }
}

bool Network::is_blocked(const Machine& from, const Machine& to) const {
    return std::ranges::find(blocked_, std::pair(&from, &to)) != blocked_.end();
}

/// \param told  the system closes its connections; else it has lost its power, too
void Network::process_gone(Process& process, bool told) {
    std::vector<std::uint64_t> closed;
    for (auto& [number, wire] : wires_)
        for (int end = 0; end < 2; ++end) {
            if (wire->ends[end].process != &process) continue;
            watch_fd(process.poll_, wire->ends[end].fd.get(), 0, 0);
            Way& way = wire->ways[end];
            if (told) pick_up(*wire, end);
            if (told && !way.ended) {
                way.last = std::max(way.last, world_.now() + draw_delay());
                way.flying.push_back({way.last, ""});
                schedule(*wire, end, way.last);
            }
            way.ended = true;
            Process* const peer = wire->ends[1 - end].process;
            if (peer == nullptr || !peer->is_alive()) closed.push_back(number);
        }
    for (const std::uint64_t number : closed) wires_.erase(number);
}

std::chrono::microseconds Network::draw_delay() {
    if (delays.spikes > 0 && world_.draw_chance(delays.spikes))
        return world_.draw_time(delays.most, delays.spike);
    return world_.draw_time(delays.least, delays.most);
}

Network::Wire* Network::draw_wire() {
    if (wires_.empty()) return nullptr;
    return std::next(wires_.begin(), static_cast<std::ptrdiff_t>(world_.draw(wires_.size())))
        ->second.get();
}

void Network::reset_one() {
    if (const Wire* wire = draw_wire()) reset(wire->number);
}

void Network::lose_one() {
    Wire* const wire = draw_wire();
    if (wire == nullptr) return;
    const std::uint64_t which = world_.draw(4);
    wire->ways[0].lost |= which == 0 || which == 3;
    wire->ways[1].lost |= which != 0;  // more often the answers
}

void Network::break_one_end(std::chrono::microseconds later) {
    Wire* const wire = draw_wire();
    if (wire == nullptr) return;
    wire->breaks = world_.draw_chance(0.7) ? 0 : 1;  // who has connected has more to repeat
    wire->later = later;
}

void Network::break_end(Wire& wire, int end) {
    wire.breaks = -1;
    End& of = wire.ends[end];
    Way& way = wire.ways[end];
    way.ended = true;
    way.flying.push_back({way.last, ""});
    for (Way::Piece& piece : way.flying) {
        piece.when += wire.later;
        schedule(wire, end, piece.when);
    }
    of.broken = true;
    of.fd.reset();
    of.process->due_ = std::min(of.process->due_, world_.now());
}

}  // namespace dtrun::simulation
