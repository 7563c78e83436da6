#include "worker/client/step_server.h"

#include "rendezvous/exchange_messages.h"
#include "rendezvous/rank_messages.h"
#include "worker/client/handshake.h"
#include "worker/client/step_search.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kScratchBytes = 256u << 10;
constexpr std::uint64_t kDescriptorsOfOthers = 128;     // helpers, strangers, and the program's own
constexpr std::chrono::milliseconds kAcceptPause{100};  // when out of descriptors
constexpr std::chrono::seconds kFullTime{1};
/// How long the end waits for peers that do not read their last frames.
constexpr std::chrono::seconds kEndTime{1};

// epoll user data of descriptors other than peers; a peer has its own number.
constexpr std::uint64_t kWake = UINT64_MAX;
constexpr std::uint64_t kListener = UINT64_MAX - 1;

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

/// Every rank has a connection to us. Takes more descriptors than usual only if they are needed.
/// Failures: internal
Outcome<void> allow_descriptors(std::uint32_t ranks) {
    const std::uint64_t needed = ranks + kDescriptorsOfOthers;
    raise_descriptor_limit(needed);
    const std::uint64_t most = descriptor_limit();
    if (most < needed)
        return failure(DTRUN_INTERNAL,
                       "rank 0 needs {} descriptors to serve {} ranks, and may have {} at most "
                       "(ulimit -Hn)",
                       needed, ranks, most);
    return {};
}

}  // namespace

StepServer::StepServer(const SlurmStep& step)
    : step_(step),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      roll_(step.ranks),
      hub_(*this, HubOptions{}),
      scratch_(kScratchBytes) {
    hub_.begin(1, step.ranks);
}

Outcome<std::unique_ptr<StepServer>> StepServer::start(const SlurmStep& step, StepKey& key) {
    if (auto allowed = allow_descriptors(step.ranks); !allowed)
        return std::unexpected(allowed.error());
    std::unique_ptr<StepServer> server(new StepServer(step));
    if (!server->poll_ || !server->wake_) return failure(DTRUN_INTERNAL, "{}", strerror(errno));
    auto greeting = key.make_greeting();
    if (!greeting) return std::unexpected(greeting.error());
    server->greeting_ = std::move(*greeting);
    const auto& ports = key.ports();
    const auto free = std::ranges::find_if(ports, [&](std::uint16_t port) {
        server->listener_ = listen_at(port);
        return static_cast<bool>(server->listener_);
    });
    if (free == ports.end())
        return failure(DTRUN_CLOSED, "none of the ports of step {} is free: {}", step.id,
                       strerror(errno));
    server->credentials_ = key.credentials_at({step.node, *free});
    server->watch(server->wake_.get(), kWake, EPOLLIN);
    server->set_accepting(true);
    if (auto added = server->add_own_end(); !added) return std::unexpected(added.error());

    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // handlers run in the program's threads
    std::string problem;
    try {
        server->thread_ = std::thread(&StepServer::run, server.get());
    } catch (const std::system_error& error) {
        problem = error.what();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!problem.empty()) return failure(DTRUN_INTERNAL, "thread: {}", problem);
    return server;
}

StepServer::~StepServer() {
    if (!thread_.joinable()) return;
    roll_.stop();
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
}

Outcome<void> StepServer::add_own_end() {
    auto [ours, theirs] = private_socket_pair();
    if (!ours) return failure(DTRUN_INTERNAL, "socketpair: {}", strerror(errno));
    own_end_ = std::move(theirs);
    enter(add(std::move(ours)), Rank{0});
    return {};
}

std::optional<std::string> StepServer::end_if_missing(std::chrono::milliseconds waited) {
    auto missing = roll_.end_if_missing(waited);
    if (missing) ::eventfd_write(wake_.get(), 1);
    return missing;
}

void StepServer::end(std::string why) {
    roll_.end(std::move(why));
    ::eventfd_write(wake_.get(), 1);
}

Outcome<void> StepServer::wait_for_others(const Patience& patience) {
    return roll_.wait_for_others(patience);
}

void StepServer::watch(int fd, std::uint64_t what, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = what;
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
        ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void StepServer::set_accepting(bool accepting) {
    if (std::exchange(accepting_, accepting) == accepting) return;
    watch(listener_.get(), kListener, accepting ? std::uint32_t{EPOLLIN} : 0u);
}

StepPeer& StepServer::add(PrivateFd socket) {
    const PeerId id = ++last_peer_;
    auto peer = std::make_unique<StepPeer>(std::move(socket), id);
    watch(peer->fd(), id, EPOLLIN);
    return *peers_.emplace(id, std::move(peer)).first->second;
}

void StepServer::run() {
    try {
        flush_all();
        while (!is_over()) turn();
    } catch (const std::exception&) {
        // Out of memory. The program may not be: it and the others find their connections closed.
    }
    peers_.clear();
    listener_.reset();
    roll_.all_go();
}

bool StepServer::is_over() {
    if (ending_) return peers_.empty() || now() >= *ending_;
    return roll_.is_stopped();
}

/// Waits until something happens, and deals with all that has.
void StepServer::turn() {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()),
                                   poll_timeout(next_moment()));
    take_orders();  // before what their giver has done next
    if (accept_again_ <= now()) accept_again_ = Moment::max();
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        const std::uint64_t what = event.data.u64;
        if (what == kWake) {
            eventfd_t value = 0;
            (void)::eventfd_read(wake_.get(), &value);
        } else if (what == kListener) {
            accept_all();
        } else if (const auto peer = peers_.find(static_cast<PeerId>(what)); peer != peers_.end()) {
            if ((event.events & EPOLLOUT) != 0) unflushed_.push_back(peer->first);
            if ((event.events & ~EPOLLOUT) != 0) read(*peer->second);
        }
    }
    hub_.expire(now());
    cut_off_late_strangers();
    hear_the_full();
    flush_all();
}

void StepServer::take_orders() {
    const auto why = roll_.take_end();
    if (why && !ending_) end_now(*why);
}

/// Tells all peers that the job is over, and goes on until they have closed, for kEndTime at most.
void StepServer::end_now(const std::string& why) {
    ending_ = now() + kEndTime;
    listener_.reset();
    if (welcomed_) hub_.fail_fences(why);
    for (const auto& [id, peer] : peers_) {
        if (peer->is_stranger()) continue;
        if (welcomed_)
            send(*peer, encode(Stop{0, 0, why}));
        else
            send(*peer, encode(Refuse{why, false}));
    }
}

Moment StepServer::next_moment() const {
    Moment next = std::min(hub_.next_deadline(), accept_again_);
    if (ending_) next = std::min(next, *ending_);
    if (!full_due_.empty()) next = std::min(next, full_due_.front().due);
    return std::min(next, strangers_.next());
}

void StepServer::accept_all() {
    while (listener_) {
        if (const auto excess = strangers_.excess()) lose(*excess);
        PrivateFd socket([this] {
            return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        });
        const int error = socket ? 0 : errno;
        if (error == EAGAIN || error == EWOULDBLOCK) return;
        if (error == EINTR || error == ECONNABORTED) continue;
        roll_.set_problem(error == 0 ? "" : fmt::format(" (rank 0: accept: {})", strerror(error)));
        if (error != 0) {  // out of descriptors, most likely
            accept_again_ = now() + kAcceptPause;
            break;
        }
        keep_watch(socket.get());
        const int on = 1;
        ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        StepPeer& peer = add(std::move(socket));
        strangers_.add(peer.id, now() + kHandshakeTime);
        send(peer, greeting_);
    }
    if (listener_) set_accepting(false);
}

void StepServer::cut_off_late_strangers() {
    while (const auto late = strangers_.late(now())) lose(*late);
    if (accept_again_ == Moment::max() && !ending_) set_accepting(true);
}

/// \return whether the peer lives
bool StepServer::flush(StepPeer& peer) {
    if (!peer.flush() || peer.is_stuck()) return false;
    const bool full = peer.is_full();
    if (!full) peer.heard_though_full = false;
    const bool reads = !full || peer.heard_though_full;
    if (reads && std::exchange(peer.held_back, false)) resumed_.push_back(peer.id);
    if (peer.writing != peer.has_unsent() || peer.reading != reads) {
        if (peer.reading && !reads)
            full_due_.push_back({now() + kFullTime, peer.id, peer.sent_bytes()});
        peer.writing = peer.has_unsent();
        peer.reading = reads;
        watch(
            peer.fd(), peer.id,
            (reads ? std::uint32_t{EPOLLIN} : 0u) | (peer.writing ? std::uint32_t{EPOLLOUT} : 0u));
    }
    // The peer closes once it has read our last frame, which it might not get if we closed first.
    if (ending_ && !peer.has_unsent()) ::shutdown(peer.fd(), SHUT_WR);
    return true;
}

void StepServer::flush_all() {
    while (!unflushed_.empty() || !resumed_.empty()) {  // who is lost makes others be told
        for (const PeerId id : std::exchange(unflushed_, {})) {
            const auto peer = peers_.find(id);
            if (peer != peers_.end() && !flush(*peer->second)) lose(id);
        }
        for (const PeerId id : std::exchange(resumed_, {})) {
            const auto peer = peers_.find(id);
            if (peer != peers_.end()) handle_received(*peer->second);
        }
    }
    last_fenced_.reset();
}

/// Reads again from a peer that is full and has read nothing for a while: it may be waiting for us
/// to read, as all its threads send and none receives. A stopped rank sends nothing, so this costs
/// nothing then.
void StepServer::hear_the_full() {
    while (!full_due_.empty() && full_due_.front().due <= now()) {
        const Full was = full_due_.front();
        full_due_.pop_front();
        const auto found = peers_.find(was.peer);
        if (found == peers_.end() || found->second->reading) continue;
        StepPeer& peer = *found->second;
        if (peer.sent_bytes() != was.sent_bytes) {
            full_due_.push_back({now() + kFullTime, peer.id, peer.sent_bytes()});
            continue;
        }
        peer.heard_though_full = true;
        unflushed_.push_back(peer.id);
    }
}

void StepServer::to_peer(PeerId id, FrameType type, std::string_view payload) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    if (type != FrameType::fenced)
        return send(*peer->second, encode_frame(type, payload), type == FrameType::reply);
    if (!last_fenced_ || payload_of(*last_fenced_) != payload)
        last_fenced_ = std::make_shared<const Bytes>(encode_frame(type, payload));
    peer->second->queue(last_fenced_, false);
    unflushed_.push_back(id);
}

void StepServer::send(StepPeer& peer, Bytes bytes, bool asked) {
    peer.queue(std::make_shared<const Bytes>(std::move(bytes)), asked);
    unflushed_.push_back(peer.id);
}

}  // namespace dtrun::embedded
