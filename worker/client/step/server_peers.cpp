#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/handshake_records.h"
#include "rendezvous/wire/member_messages.h"
#include "worker/client/step/server.h"

#include <algorithm>

namespace dtrun::embedded {

Result<void> StepServer::on_received(StepPeer& peer) {
    for (;;) {
        if (peer.handshake) {
            const auto room = peer.handshake->room();
            const auto record = peer.take(room.size());
            if (!record) return {};
            std::ranges::copy(as_bytes(*record), room.begin());
            const auto fits = peer.handshake->come(room.size());
            send(peer, peer.handshake->take_output());
            if (!fits) return fits;
            if (peer.handshake->room().empty()) peer.handshake.reset();
            continue;
        }
        if (peer.out.is_full() && !peer.heard_though_full) {
            peer.held_back = true;  // until StepPeers hears it again
            return {};
        }
        const auto frame = peer.take_frame();
        if (!frame) return std::unexpected(frame.error());
        if (!*frame) return {};
        const auto taken = peer.is_stranger() ? on_hello(peer, **frame) : on_frame(peer, **frame);
        if (!taken) return taken;
    }
}

Result<void> StepServer::on_hello(StepPeer& peer, const FrameView& frame) {
    const auto hello = decode<Hello>(frame.payload);
    if (frame.type != FrameType::hello || !hello)
        return fail(Errc::invalid_input, "a rank's first frame is hello");
    if (!ProtocolVersions{}.knows(hello->protocol))
        return refuse(
            peer,
            fmt::format("it speaks protocol {}, rank 0 {}", hello->protocol, kProtocolVersion),
            false);
    if (ending_) return refuse(peer, "the job is over", true);
    if (hello->rank == kNoRank) {
        if (!welcomed_) return refuse(peer, "not all ranks have come", true);
    } else if (!is_below(hello->rank, step_.ranks)) {
        return refuse(
            peer,
            fmt::format("rank {} of step {}, which has {}", hello->rank, step_.id, step_.ranks),
            false);
    } else if (!roster_.is_missing(hello->rank)) {
        // It belongs to another program of the same step, and must wait for its own rank 0.
        return refuse(peer, fmt::format("rank {} has come before", hello->rank), true);
    }
    unauthenticated_.remove(peer.id);
    enter(peer, hello->rank);
    return {};
}

std::unexpected<Error> StepServer::refuse(StepPeer& peer, std::string reason, bool later) {
    Error error{Errc::denied, reason};
    send(peer, encode(Refuse{std::move(reason), later}));
    return std::unexpected(std::move(error));
}

/// Lets it in: from here on it is one of us.
void StepServer::enter(StepPeer& peer, Rank rank) {
    peer.rank = rank;
    peer.stage = rank == kNoRank ? StepPeer::Stage::helper : StepPeer::Stage::rank;
    hub_.add_peer(peer.id, PeerKind::rank, rank);
    send(peer, encode(Heartbeat{}));
    if (welcomed_) return welcome(peer);
    if (!roster_.come(rank)) return;
    welcomed_ = true;
    for (const auto& [id, other] : peers_.all())
        if (other->stage == StepPeer::Stage::rank) welcome(*other);
}

void StepServer::welcome(StepPeer& peer) {
    Welcome welcome;
    welcome.job = step_.id;
    welcome.generation = hub_.generation();
    welcome.rank = peer.rank;
    welcome.world_size = step_.ranks;
    send(peer, encode(welcome));
}

Result<void> StepServer::on_frame(StepPeer& peer, const FrameView& frame) {
    if (frame.type != FrameType::leave) return hub_.from_peer(peer.id, frame, now());
    const auto leave = decode<Leave>(frame.payload);
    if (!leave) return std::unexpected(leave.error());
    if (peer.stage != StepPeer::Stage::rank)
        return fail(Errc::invalid_input, "only ranks say goodbye");
    peer.leaving = true;
    hub_.fail_fences(leave->finished ? fmt::format("rank {} has finalized its worker", peer.rank)
                                     : fmt::format("rank {}: {}", peer.rank, leave->why));
    return {};
}

void StepServer::on_lost(const StepPeer& peer) {
    unauthenticated_.remove(peer.id);
    if (peer.stage == StepPeer::Stage::rank || peer.stage == StepPeer::Stage::helper)
        hub_.remove_peer(peer.id);
    if (peer.stage != StepPeer::Stage::rank) return;
    if (ending_) {
        // what there was to tell has been told
    } else if (!welcomed_) {
        end_now(fmt::format("rank {} has ended before all ranks had come", peer.rank));
    } else if (!peer.leaving) {
        hub_.fail_fences(fmt::format("rank {} has ended without finalizing its worker", peer.rank));
    }
    roster_.go(peer.rank);
}

}  // namespace dtrun::embedded
