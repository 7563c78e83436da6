#include "rendezvous/exchange/relay.h"

#include "rendezvous/wire/request.h"

#include <algorithm>

namespace dtrun {
void ProgressSum::add(const RankProgress& progress) {
    add(Heartbeat{1, progress, progress.step});
}

void ProgressSum::add(const Heartbeat& other) {
    if (other.reporting == 0) return;
    if (summary_.reporting == 0 || other.slowest.step < summary_.slowest.step)
        summary_.slowest = other.slowest;
    summary_.reporting += other.reporting;
    summary_.fastest_step = std::max(summary_.fastest_step, other.fastest_step);
}

void Relay::add_peer(PeerId peer, PeerKind kind, Rank rank) {
    peers_[peer] = Peer{kind, rank, {}, {}};
}

void Relay::remove_peer(PeerId peer) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    for (const std::uint64_t client : found->second.clients) {
        outbox_.to_root(FrameType::gone, payload_of(encode(Gone{client})));
        client_peers_.erase(client);
        forget_requests(client);
    }
    fences_.retract(peer);
    peers_.erase(found);
}

void Relay::renumber(PeerId id, Rank rank) {
    const auto found = peers_.find(id);
    if (found != peers_.end()) found->second.rank = rank;
}

void Relay::forget_requests(std::uint64_t client) {
    const auto begin = unanswered_.lower_bound({client, 0});
    const auto end = unanswered_.upper_bound({client, UINT64_MAX});
    unanswered_.erase(begin, end);
}

Result<void> Relay::from_peer(PeerId id, const FrameView& frame, Deadline now) {
    const auto found = peers_.find(id);
    if (found == peers_.end()) return {};
    Peer& peer = found->second;
    switch (frame.type) {
        case FrameType::request:
            return on_request(id, peer, frame.payload);
        case FrameType::fence:
            return on_fence(id, peer, frame.payload);
        case FrameType::unfence: {
            auto unfence = decode<Unfence>(frame.payload);
            if (!unfence) return std::unexpected(unfence.error());
            give_up(std::move(*unfence));
            return {};
        }
        case FrameType::gone: {
            const auto gone = decode<Gone>(frame.payload);
            if (!gone) return std::unexpected(gone.error());
            if (peer.clients.erase(gone->client) > 0) client_peers_.erase(gone->client);
            forget_requests(gone->client);
            outbox_.to_root(frame.type, frame.payload);
            return {};
        }
        case FrameType::progress: {
            const auto progress = decode<RankProgress>(frame.payload);
            if (!progress) return std::unexpected(progress.error());
            if (peer.kind != PeerKind::rank || peer.rank == kNoRank) return {};
            peer.progress = Heartbeat{1, {peer.rank, progress->step}, progress->step};
            peer.advance(progress->step, now);
            return {};
        }
        case FrameType::heartbeat: {
            const auto heartbeat = decode<Heartbeat>(frame.payload);
            if (!heartbeat) return std::unexpected(heartbeat.error());
            peer.progress = *heartbeat;
            return {};
        }
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

Result<void> Relay::on_request(PeerId id, Peer& peer, std::string_view payload) {
    const auto request = decode_request(payload);
    if (!request) return std::unexpected(request.error());
    const RequestHeader& header = request->header;
    const auto [owner, fresh] = client_peers_.try_emplace(header.client, id);
    if (fresh)
        peer.clients.insert(header.client);
    else if (owner->second != id)
        return fail(Errc::invalid_input, "two connections call themselves the same client");
    if (resendable_) unanswered_[{header.client, header.id}] = {++requests_, Bytes(payload)};
    outbox_.to_root(FrameType::request, payload);
    return {};
}

Result<void> Relay::on_fence(PeerId id, const Peer& peer, std::string_view payload) {
    auto fence = decode<Fence>(payload);
    if (!fence) return std::unexpected(fence.error());
    if (fence->name.empty() || fence->name.size() > Fence::kNameBytesMax)
        return fail(Errc::invalid_input, "a fence's name has 1 to {} bytes", Fence::kNameBytesMax);
    if (peer.kind == PeerKind::rank) {
        if (peer.rank == kNoRank) return fail(Errc::invalid_input, "only ranks come to fences");
        if (fence->ranks != 1 || fence->entries.size() > 1)
            return fail(Errc::invalid_input, "a rank comes to a fence for itself only");
        for (FenceEntry& entry : fence->entries) entry.rank = peer.rank;
    }
    if (fence->generation != fences_.generation()) {
        const Fenced stale{fence->generation,         fence->name, fence->round, false,
                           "this generation is over", {}};
        outbox_.to_peer(id, FrameType::fenced, payload_of(encode(stale)));
        return {};
    }
    const auto arrival = fences_.arrive(id, std::move(*fence));
    switch (arrival.kind) {
        case FenceTable::Arrival::Kind::pending:
            return {};
        case FenceTable::Arrival::Kind::complete: {
            if (entry_bytes(arrival.sum.entries) > Fence::kBytesMax) {
                give_up(
                    {arrival.sum.generation, arrival.sum.name, arrival.sum.round, kTooManyBytes});
                return {};
            }
            const Bytes frame = encode(arrival.sum);
            if (resendable_)
                unanswered_fences_[{arrival.sum.name, arrival.sum.round}] = arrival.sum;
            outbox_.to_root(FrameType::fence, payload_of(frame));
            return {};
        }
        case FenceTable::Arrival::Kind::failed:
            outbox_.to_peer(id, FrameType::fenced, payload_of(encode(arrival.fenced)));
            return {};
        case FenceTable::Arrival::Kind::twice:
            return fail(Errc::invalid_input, "came to a fence twice");
        case FenceTable::Arrival::Kind::too_much: {
            const Fenced& failed = arrival.fenced;
            outbox_.to_peer(id, FrameType::fenced, payload_of(encode(failed)));
            give_up({failed.generation, failed.name, failed.round, failed.why});
            return {};
        }
    }
    return {};
}

void Relay::begin(std::uint64_t generation, std::uint32_t ranks) {
    if (fences_.generation() != 0)
        for (const Fenced& fenced :
             fences_.end({fences_.generation(), "", 0, false, "a new generation began", {}}))
            tell_ranks(fenced);
    fences_.begin(generation, ranks);
    fences_failed_ = false;
    unanswered_fences_.clear();
    unfences_.clear();
    for (auto& [id, peer] : peers_) peer.progress = {};
}

void Relay::fail_fences(std::string why) {
    if (std::exchange(fences_failed_, true)) return;
    give_up({fences_.generation(), "", 0, std::move(why)});
}

void Relay::give_up(Unfence unfence) {
    outbox_.to_root(FrameType::unfence, payload_of(encode(unfence)));
    if (!resendable_ || unfence.generation != fences_.generation()) return;
    const FenceKey key{unfence.name, unfence.round};
    unfences_[key] = std::move(unfence);
}

void Relay::announce(const Event& event) {
    const Bytes frame = encode(event);
    for (const auto& [id, peer] : peers_)
        if (peer.kind == PeerKind::rank) outbox_.to_peer(id, FrameType::event, payload_of(frame));
}

Result<void> Relay::from_root(const FrameView& frame) {
    switch (frame.type) {
        case FrameType::reply: {
            const auto reply = decode_reply(frame.payload);
            if (!reply) return std::unexpected(reply.error());
            if (resendable_) unanswered_.erase({reply->header.client, reply->header.id});
            const auto peer = client_peers_.find(reply->header.client);
            if (peer != client_peers_.end())
                outbox_.to_peer(peer->second, frame.type, frame.payload);
            return {};
        }
        case FrameType::fenced: {
            const auto fenced = decode<Fenced>(frame.payload);
            if (!fenced) return std::unexpected(fenced.error());
            if (fenced->generation != fences_.generation()) return {};
            if (fenced->name.empty())
                unanswered_fences_.clear();
            else
                unanswered_fences_.erase({fenced->name, fenced->round});
            if (!fenced->name.empty()) unfences_.erase({fenced->name, fenced->round});
            for (const Fenced& ended : fences_.end(*fenced)) tell_ranks(ended);
            for (const auto& [id, peer] : peers_)
                if (peer.kind == PeerKind::subtree) outbox_.to_peer(id, frame.type, frame.payload);
            return {};
        }
        case FrameType::heartbeat:
            return {};
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

Heartbeat Relay::summary() const {
    ProgressSum sum;
    for (const auto& [id, peer] : peers_) sum.add(peer.progress);
    return sum.summary();
}

/// Of some ten steps: a single one may be long, as when a checkpoint is written.
void Relay::Peer::advance(std::uint64_t to, Deadline now) {
    constexpr double kNewest = 0.2;
    if (step.at != Deadline{} && to > step.step) {
        const auto span = std::chrono::duration<double>(now - step.at) / (to - step.step);
        const bool first = step.span == step.span.zero();
        step.span = first ? span : step.span * (1 - kNewest) + span * kNewest;
    }
    step.step = to;
    step.at = now;
}

std::map<Rank, Relay::Step> Relay::steps() const {
    std::map<Rank, Step> steps;
    for (const auto& [id, peer] : peers_)
        if (peer.kind == PeerKind::rank && peer.progress.reporting > 0)
            steps[peer.rank] = peer.step;
    return steps;
}

void Relay::resend() {
    std::map<std::uint64_t, const Bytes*> in_order;
    for (const auto& [key, request] : unanswered_) in_order[request.number] = &request.payload;
    for (const auto& [number, payload] : in_order) outbox_.to_root(FrameType::request, *payload);
    for (const auto& [key, fence] : unanswered_fences_)
        outbox_.to_root(FrameType::fence, payload_of(encode(fence)));
    for (const auto& [key, unfence] : unfences_)
        outbox_.to_root(FrameType::unfence, payload_of(encode(unfence)));
}

void Relay::tell_ranks(const Fenced& fenced) {
    const Bytes frame = encode(fenced);
    for (const auto& [id, peer] : peers_)
        if (peer.kind == PeerKind::rank && peer.rank != kNoRank)
            outbox_.to_peer(id, FrameType::fenced, payload_of(frame));
}

}  // namespace dtrun
