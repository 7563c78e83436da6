#include "worker/client/step_server.h"

#include "base/fd.h"
#include "rendezvous/exchange_messages.h"
#include "rendezvous/rank_messages.h"
#include "worker/client/handshake.h"

#include <signal.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kScratchBytes = 256u << 10;
constexpr std::uint64_t kDescriptorsOfOthers = 128;  // helpers, strangers, and the program's own
constexpr std::chrono::seconds kFullTime{1};
/// How long the end waits for peers that do not read their last frames.
constexpr std::chrono::seconds kEndTime{1};

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
      roll_(step.ranks),
      listener_(poll_),
      hub_(*this, HubOptions{}),
      scratch_(kScratchBytes) {
    hub_.begin(1, step.ranks);
}

Outcome<std::unique_ptr<StepServer>> StepServer::start(const SlurmStep& step, StepKey& key) {
    if (auto allowed = allow_descriptors(step.ranks); !allowed)
        return std::unexpected(allowed.error());
    std::unique_ptr<StepServer> server(new StepServer(step));
    if (!server->poll_.is_ready()) return failure(DTRUN_INTERNAL, "{}", strerror(errno));
    auto greeting = key.make_greeting();
    if (!greeting) return std::unexpected(greeting.error());
    server->greeting_ = std::move(*greeting);
    const auto port = server->listener_.listen(key.ports());
    if (!port)
        return failure(DTRUN_CLOSED, "none of the ports of step {} is free: {}", step.id,
                       strerror(errno));
    server->credentials_ = key.credentials_at({step.node, *port});
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
    poll_.wake();
    thread_.join();
}

Outcome<void> StepServer::add_own_end() {
    auto [ours, theirs] = private_socket_pair();
    if (!ours) return failure(DTRUN_INTERNAL, "socketpair: {}", strerror(errno));
    own_end_ = std::move(theirs);
    enter(add(std::move(ours)), 0);
    return {};
}

std::optional<std::string> StepServer::end_if_missing(std::chrono::milliseconds waited) {
    auto missing = roll_.end_if_missing(waited);
    if (missing) poll_.wake();
    return missing;
}

void StepServer::end(std::string why) {
    roll_.end(std::move(why));
    poll_.wake();
}

Outcome<void> StepServer::wait_for_others(const Patience& patience) {
    return roll_.wait_for_others(patience);
}

StepPeer& StepServer::add(PrivateFd socket) {
    const PeerId id = ++last_peer_;
    auto peer = std::make_unique<StepPeer>(std::move(socket), id);
    poll_.watch(peer->fd(), id, EPOLLIN);
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
    listener_.close();
    roll_.all_go();
}

bool StepServer::is_over() {
    if (ending_) return peers_.empty() || now() >= *ending_;
    return roll_.is_stopped();
}

/// Waits until something happens, and deals with all that has.
void StepServer::turn() {
    const auto events = poll_.wait(next_moment());
    take_orders();  // before what their giver has done next
    listener_.resume(now());
    for (const epoll_event& event : events) {
        const std::uint64_t what = event.data.u64;
        if (what == StepPoll::kListener) {
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
    listener_.close();
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
    Moment next = std::min(hub_.next_deadline(), listener_.next());
    if (ending_) next = std::min(next, *ending_);
    if (!full_due_.empty()) next = std::min(next, full_due_.front().due);
    return std::min(next, strangers_.next());
}

void StepServer::accept_all() {
    for (;;) {
        if (const auto excess = strangers_.excess()) lose(*excess);
        auto socket = listener_.accept();
        if (socket && !*socket) return;
        roll_.set_problem(socket ? "" : fmt::format(" (rank 0: accept: {})", socket.error().text));
        if (!socket) return;
        StepPeer& peer = add(std::move(*socket));
        strangers_.add(peer.id, now() + kHandshakeTime);
        send(peer, greeting_);
    }
}

void StepServer::cut_off_late_strangers() {
    while (const auto late = strangers_.late(now())) lose(*late);
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
        poll_.watch(
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
