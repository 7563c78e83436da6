#include "rendezvous/exchange/relay.h"

#include "rendezvous/wire/request.h"
#include "rendezvous/wire/store_request.h"

#include <algorithm>

namespace dtrun {
namespace {

/// At how many fences a rank may be at once: as many threads wait.
constexpr std::size_t kOpenOfRankMax = 4'096;

/// Whether the root must hear of this although its client has gone: its owner lives, and would keep what nobody knows
/// of.
bool takes_back(const RequestView& request) {
    if (request.header.op != Op::cancel) return false;
    PackReader in(request.arguments);
    (void)in.array(), (void)in.uint();
    const auto cancel = StoreRequest::decode(Op::cancel, in);
    return cancel && cancel->owner != 0;
}

}  // namespace

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
    peers_[peer] = Peer{kind, rank, {}, {}, {}, {}};
}

void Relay::remove_peer(PeerId peer) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    for (const std::uint64_t client : found->second.clients) {
        outbox_.to_root(FrameType::gone, payload_of(encode(Gone{client})));
        client_peers_.erase(client);
        forget_requests(client);
    }
    const std::vector<FenceKey> taken_back = fences_.retract(peer);
    if (found->second.kind == PeerKind::rank)
        for (const auto& [name, round] : taken_back)
            rounds_.take_back(found->second.rank, name, round);
    peers_.erase(found);
}

void Relay::renumber(PeerId id, Rank rank) {
    const auto found = peers_.find(id);
    if (found != peers_.end()) found->second.rank = rank;
}

void Relay::forget_requests(std::uint64_t client) {
    const auto begin = unanswered_.lower_bound({client, 0});
    const auto end = unanswered_.upper_bound({client, UINT64_MAX});
    for (auto request = begin; request != end;)
        request = request->second.takes_back ? std::next(request) : unanswered_.erase(request);
    owners_.erase(client);
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
        case FrameType::unfence:
            return on_unfence(peer, frame.payload);
        case FrameType::gone:
            return on_gone(peer, frame.payload);
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
            if (peer.kind == PeerKind::subtree) peer.progress = *heartbeat;
            return {};
        }
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

/// Only of clients behind this peer: nobody speaks for another's.
Result<void> Relay::on_gone(Peer& peer, std::string_view payload) {
    const auto gone = decode<Gone>(payload);
    if (!gone) return std::unexpected(gone.error());
    if (peer.clients.erase(gone->client) == 0) return {};
    client_peers_.erase(gone->client);
    forget_requests(gone->client);
    outbox_.to_root(FrameType::gone, payload);
    return {};
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
    if (header.op == Op::own)
        owners_[header.client] = payload;
    else if (resendable_)
        unanswered_[{header.client, header.id}] = {++requests_, Bytes(payload),
                                                   takes_back(*request)};
    outbox_.to_root(FrameType::request, payload);
    return {};
}

Result<void> Relay::on_fence(PeerId id, Peer& peer, std::string_view payload) {
    auto fence = decode<Fence>(payload);
    if (!fence) return std::unexpected(fence.error());
    if (fence->name.empty() || fence->name.size() > Fence::kNameBytesMax)
        return fail(Errc::invalid_input, "a fence's name has 1 to {} bytes", Fence::kNameBytesMax);
    if (fence->generation != fences_.generation()) {
        const Fenced stale{fence->generation,         fence->name, fence->round, false,
                           "this generation is over", {}};
        outbox_.to_peer(id, FrameType::fenced, payload_of(encode(stale)));
        return {};
    }
    if (peer.kind == PeerKind::rank) {
        const auto admitted = admit(id, peer, *fence);
        if (!admitted) return std::unexpected(admitted.error());
        if (!*admitted) return {};
    }
    const Fenced twice{fence->generation, fence->name, fence->round, false, kTwice, {}, true};
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
            tell(id, peer, arrival.fenced);
            return {};
        case FenceTable::Arrival::Kind::twice:
            tell(id, peer, twice);
            return {};
        case FenceTable::Arrival::Kind::too_much: {
            const Fenced& failed = arrival.fenced;
            tell(id, peer, failed);
            give_up({failed.generation, failed.name, failed.round, failed.why});
            return {};
        }
    }
    return {};
}

/// A rank has come: its round is that of the rank, whichever of its connections it has come over before.
/// What must not be fails this call, and nothing else.
/// \return false: it was told that it must not. Errc: invalid_input
Result<bool> Relay::admit(PeerId id, Peer& peer, Fence& fence) {
    if (const auto own = make_own(fence, peer.rank); !own) return std::unexpected(own.error());
    std::string wrong;
    if (fence.name.starts_with(Fence::kOfAgents))
        wrong = fmt::format("names that begin with {} are dtrun's own", Fence::kOfAgents);
    else if (peer.at.size() >= kOpenOfRankMax)
        wrong = fmt::format("rank {} is at {} fences at once", peer.rank, peer.at.size());
    else if (is_at(peer.rank, fence.name, id))
        wrong = fmt::format("another worker of rank {} is at this fence", peer.rank);
    if (!wrong.empty()) {
        const Fenced refused{fence.generation, fence.name, fence.round, false,
                             std::move(wrong), {},         true};
        outbox_.to_peer(id, FrameType::fenced, payload_of(encode(refused)));
        return false;
    }
    const std::uint64_t round = rounds_.next(peer.rank, fence.name);
    rounds_.came(peer.rank, fence.name, round);
    peer.at[{fence.name, round}] = Visit{std::exchange(fence.round, round)};
    return true;
}

/// Whether a rank is at a fence of this name over another connection than this one, and has not given it
/// up: then nobody waits there any more, whatever becomes of the round.
bool Relay::is_at(Rank rank, const std::string& name, PeerId besides) const {
    return std::ranges::any_of(peers_, [&](const auto& entry) {
        const auto& [id, peer] = entry;
        if (id == besides || peer.kind != PeerKind::rank || peer.rank != rank) return false;
        for (auto at = peer.at.lower_bound({name, 0});
             at != peer.at.end() && at->first.first == name; ++at)
            if (!at->second.is_given_up) return true;
        return false;
    });
}

/// From a rank only of a fence at which it is: others it has been told how they ended.
Result<void> Relay::on_unfence(Peer& peer, std::string_view payload) {
    auto unfence = decode<Unfence>(payload);
    if (!unfence) return std::unexpected(unfence.error());
    if (unfence->generation != fences_.generation()) return {};
    if (peer.kind == PeerKind::rank) {
        const auto at = std::ranges::find_if(peer.at, [&](const auto& entry) {
            return entry.first.first == unfence->name && entry.second.round == unfence->round;
        });
        if (at == peer.at.end()) return {};
        at->second.is_given_up = true;
        unfence->why.resize(std::min(unfence->why.size(), Unfence::kReasonBytesMax));
        *unfence = {unfence->generation, unfence->name, at->first.second, std::move(unfence->why)};
    }
    give_up(std::move(*unfence));
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
    away_.clear();
    rounds_.clear();
    for (auto& [id, peer] : peers_) {
        peer.progress = {};
        peer.at.clear();
    }
}

void Relay::fail_fences(std::string why) {
    if (std::exchange(fences_failed_, true)) return;
    give_up({fences_.generation(), "", 0, std::move(why)});
}

void Relay::away(Rank rank, std::string why) {
    give_up({fences_.generation(), "", 0, std::move(why), rank});
}

void Relay::back(Rank rank) {
    if (away_.contains(rank)) give_up({fences_.generation(), "", 0, "", rank, true});
}

/// A rank has closed its worker and lives on: who has long waited here, for it or another, gives up.
void Relay::end_long_waits(const Unfence& unfence) {
    for (const auto& [name, round] : fences_.waited())
        give_up({unfence.generation, name, round, unfence.why});
    for (const auto& [id, peer] : peers_)
        if (peer.kind == PeerKind::subtree)
            outbox_.to_peer(id, FrameType::unfence, payload_of(encode(unfence)));
}

void Relay::give_up(Unfence unfence) {
    outbox_.to_root(FrameType::unfence, payload_of(encode(unfence)));
    if (unfence.generation != fences_.generation()) return;
    if (unfence.away != kNoRank) {
        if (unfence.is_back)
            away_.erase(unfence.away);
        else
            away_[unfence.away] = std::move(unfence);
        return;
    }
    if (!resendable_) return;
    const FenceKey key{unfence.name, unfence.round};
    unfences_[key] = std::move(unfence);
}

void Relay::announce(const RankEvent& event) {
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
            if (fenced->complete) rounds_.completed(fenced->name, fenced->round);
            for (const Fenced& ended : fences_.end(*fenced)) tell_ranks(ended);
            for (const auto& [id, peer] : peers_)
                if (peer.kind == PeerKind::subtree) outbox_.to_peer(id, frame.type, frame.payload);
            return {};
        }
        case FrameType::unfence: {
            const auto unfence = decode<Unfence>(frame.payload);
            if (!unfence) return std::unexpected(unfence.error());
            if (unfence->generation == fences_.generation()) end_long_waits(*unfence);
            return {};
        }
        case FrameType::heartbeat:
            return {};
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

/// The connection over which each rank has told of its steps last: it may have several.
std::map<Rank, const Relay::Peer*> Relay::who_progresses() const {
    std::map<Rank, const Peer*> newest;
    for (const auto& [id, peer] : peers_) {
        if (peer.kind != PeerKind::rank || peer.progress.reporting == 0) continue;
        const Peer*& known = newest[peer.rank];
        if (known == nullptr || known->step.at <= peer.step.at) known = &peer;
    }
    return newest;
}

Heartbeat Relay::summary() const {
    ProgressSum sum;
    for (const auto& [rank, peer] : who_progresses()) sum.add(peer->progress);
    for (const auto& [id, peer] : peers_)
        if (peer.kind == PeerKind::subtree) sum.add(peer.progress);
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
    for (const auto& [rank, peer] : who_progresses()) steps[rank] = peer->step;
    return steps;
}

void Relay::resend() {
    resendable_ = true;
    for (const auto& [client, payload] : owners_) outbox_.to_root(FrameType::request, payload);
    std::map<std::uint64_t, std::pair<std::uint64_t, const Bytes*>> in_order;
    for (const auto& [key, request] : unanswered_)
        in_order[request.number] = {key.first, &request.payload};
    for (const auto& [number, request] : in_order) {
        const auto& [client, payload] = request;
        outbox_.to_root(FrameType::request, *payload);
        if (!client_peers_.contains(client))
            outbox_.to_root(FrameType::gone, payload_of(encode(Gone{client})));
    }
    for (const auto& [key, fence] : unanswered_fences_)
        outbox_.to_root(FrameType::fence, payload_of(encode(fence)));
    for (const auto& [key, unfence] : unfences_)
        outbox_.to_root(FrameType::unfence, payload_of(encode(unfence)));
    for (const auto& [rank, unfence] : away_)
        outbox_.to_root(FrameType::unfence, payload_of(encode(unfence)));
}

/// A rank is told by the round of its connection.
void Relay::tell(PeerId id, Peer& peer, Fenced fenced) {
    if (peer.kind == PeerKind::rank) {
        const auto at = peer.at.extract(FenceKey{fenced.name, fenced.round});
        if (at.empty()) return;
        fenced.round = at.mapped().round;
    }
    outbox_.to_peer(id, FrameType::fenced, payload_of(encode(fenced)));
}

void Relay::tell_ranks(const Fenced& fenced) {
    std::map<std::uint64_t, Bytes>
        frames;  // by the round of connections, most often the same of all
    for (auto& [id, peer] : peers_) {
        const auto at = peer.at.extract(FenceKey{fenced.name, fenced.round});
        if (at.empty()) continue;
        Bytes& frame = frames[at.mapped().round];
        if (frame.empty()) {
            Fenced own = fenced;
            own.round = at.mapped().round;
            frame = encode(own);
        }
        outbox_.to_peer(id, FrameType::fenced, payload_of(frame));
    }
}

}  // namespace dtrun
