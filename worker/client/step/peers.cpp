#include "worker/client/step/peers.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kScratchBytes = 256u << 10;
constexpr std::chrono::seconds kFullTime{1};

}  // namespace

StepPeers::StepPeers(StepPoll& poll, Handler& handler)
    : poll_(poll), handler_(handler), scratch_(kScratchBytes) {}

StepPeer& StepPeers::add(PrivateFd socket) {
    const PeerId id = ++last_peer_;
    auto peer = std::make_unique<StepPeer>(std::move(socket), id);
    poll_.watch(peer->fd(), id, EPOLLIN);
    return *peers_.emplace(id, std::move(peer)).first->second;
}

StepPeer* StepPeers::find(PeerId id) {
    const auto peer = peers_.find(id);
    return peer == peers_.end() ? nullptr : peer->second.get();
}

/// Removes a peer whose connection has ended or is to end.
void StepPeers::lose(PeerId id) {
    const auto node = peers_.extract(id);
    handler_.on_lost(*node.mapped());
}

void StepPeers::send(StepPeer& peer, std::shared_ptr<const Bytes> bytes, bool asked) {
    peer.out.add(std::move(bytes), asked);
    unflushed_.push_back(peer.id);
}

void StepPeers::on_ready(PeerId id, std::uint32_t events) {
    StepPeer* peer = find(id);
    if (peer == nullptr) return;
    if ((events & EPOLLOUT) != 0) unflushed_.push_back(id);
    if ((events & ~std::uint32_t{EPOLLOUT}) == 0) return;
    if (!peer->receive(scratch_)) return lose(id);
    handle_received(*peer);
}

void StepPeers::handle_received(StepPeer& peer) {
    const PeerId id = peer.id;
    const Result<void> handled = handler_.on_received(peer);
    if (handled) return;
    (void)peer.out.flush(peer.fd());  // a refusal
    lose(id);
}

/// \return whether the peer lives
bool StepPeers::flush(StepPeer& peer) {
    if (!peer.out.flush(peer.fd()) || peer.out.is_stuck()) return false;
    const bool full = peer.out.is_full();
    if (!full) peer.heard_though_full = false;
    const bool reads = !full || peer.heard_though_full;
    if (reads && std::exchange(peer.held_back, false)) resumed_.push_back(peer.id);
    if (peer.writing != !peer.out.empty() || peer.reading != reads) {
        if (peer.reading && !reads)
            full_due_.push_back({now() + kFullTime, peer.id, peer.out.sent_bytes()});
        peer.writing = !peer.out.empty();
        peer.reading = reads;
        poll_.watch(
            peer.fd(), peer.id,
            (reads ? std::uint32_t{EPOLLIN} : 0u) | (peer.writing ? std::uint32_t{EPOLLOUT} : 0u));
    }
    // The peer closes once it has read our last frame, which it might not get if we closed first.
    if (finishing_ && peer.out.empty()) ::shutdown(peer.fd(), SHUT_WR);
    return true;
}

void StepPeers::flush_all() {
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
}

/// Reads again from a peer that is full and has read nothing for a while: it may be waiting for us
/// to read, as all its threads send and none receives. A stopped rank sends nothing, so this costs
/// nothing then.
void StepPeers::hear_the_full() {
    while (!full_due_.empty() && full_due_.front().due <= now()) {
        const Full was = full_due_.front();
        full_due_.pop_front();
        const auto found = peers_.find(was.peer);
        if (found == peers_.end() || found->second->reading) continue;
        StepPeer& peer = *found->second;
        if (peer.out.sent_bytes() != was.sent_bytes) {
            full_due_.push_back({now() + kFullTime, peer.id, peer.out.sent_bytes()});
            continue;
        }
        peer.heard_though_full = true;
        unflushed_.push_back(peer.id);
    }
}

}  // namespace dtrun::embedded
