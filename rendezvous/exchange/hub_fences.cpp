// The fences of a hub.

#include "rendezvous/exchange/hub.h"

#include <algorithm>

namespace dtrun {
namespace {

/// How many completed fences are kept. A thread is at one fence at a time, so nobody asks for older
/// ones. Where nobody reconnects only what was under way when a fence was completed may come yet.
constexpr std::size_t kCompletedMax = 65'536;
constexpr std::size_t kCompletedMaxWithoutReturns = 4'096;
constexpr std::size_t kCompletedBytesMax = 64u << 20;
constexpr std::size_t kCompletedKept = 16;  // at least, whatever their size
/// How often fences are looked at while a rank has closed its worker and lives on. Who waits at two looks
/// is not kept longer: the rank may open another worker, or may not.
constexpr std::chrono::seconds kAbsentLook{5};

}  // namespace

bool Hub::completed(const std::string& name, std::uint64_t round) const {
    const auto last = completed_.find(name);
    return last != completed_.end() && round <= last->second.fenced.round;
}

/// What must not be fails this arrival, and nothing else: a rank may cause it.
Result<void> Hub::on_fence(PeerId peer, std::string_view payload) {
    auto fence = decode<Fence>(payload);
    if (!fence) return std::unexpected(fence.error());
    const auto tell = [&](const Fenced& fenced) {
        outbox_.to_peer(peer, FrameType::fenced, payload_of(encode(fenced)));
    };
    if (fence->name.empty() || fence->name.size() > Fence::kNameBytesMax)
        return fail(Errc::invalid_input, "a fence's name has 1 to {} bytes", Fence::kNameBytesMax);
    if (const Peer& from = peers_.at(peer); from.kind == PeerKind::rank)
        if (const auto own = make_own(*fence, from.rank); !own) return own;
    if (fence->generation != generation()) {
        tell({fence->generation, fence->name, fence->round, false, "this generation is over", {}});
        return {};
    }
    const Fenced twice{fence->generation, fence->name, fence->round, false, kTwice, {}, true};
    if (completed(fence->name, fence->round)) {
        const Fenced& last = completed_.find(fence->name)->second.fenced;
        tell(options_.reconnects && last.round == fence->round ? last : twice);
        return {};
    }
    auto arrival = fences_.arrive(peer, std::move(*fence));
    switch (arrival.kind) {
        case FenceTable::Arrival::Kind::pending:
            return {};
        case FenceTable::Arrival::Kind::failed:
            tell(arrival.fenced);
            return {};
        case FenceTable::Arrival::Kind::twice:
            tell(twice);
            return {};
        case FenceTable::Arrival::Kind::too_much:
            tell(arrival.fenced);
            end_fence(arrival.fenced);
            return {};
        case FenceTable::Arrival::Kind::complete:
            break;
    }
    Fence& sum = arrival.sum;
    std::ranges::sort(sum.entries, {}, &FenceEntry::rank);
    Fenced fenced{sum.generation, sum.name, sum.round, true, "", std::move(sum.entries)};
    if (entry_bytes(fenced.entries) > Fence::kBytesMax) {
        fenced.why = kTooManyBytes;
        fenced.complete = false;
        fenced.entries.clear();
    }
    end_fence(fenced);
    return {};
}

Result<void> Hub::on_unfence(PeerId peer, std::string_view payload, Deadline now) {
    const auto unfence = decode<Unfence>(payload);
    if (!unfence) return std::unexpected(unfence.error());
    if (unfence->name.size() > Fence::kNameBytesMax ||
        unfence->why.size() > Unfence::kReasonBytesMax)
        return fail(Errc::invalid_input, "malformed unfence");
    if (unfence->name.empty() && peers_.at(peer).kind == PeerKind::rank)
        return fail(Errc::invalid_input, "a rank gives up one fence, not all");
    if (unfence->generation != generation()) return {};
    if (unfence->name.empty() && unfence->away != kNoRank) {
        on_absent(peer, *unfence, now);
        return {};
    }
    if (unfence->name.empty()) {
        fail_fences(unfence->why);
        return {};
    }
    if (completed(unfence->name, unfence->round)) {
        // Who waits has sent its arrival again before this, and has been told all; it needs no entries.
        const Fenced over{unfence->generation, unfence->name, unfence->round, true, "", {}};
        if (options_.reconnects) outbox_.to_peer(peer, FrameType::fenced, payload_of(encode(over)));
        return {};
    }
    end_fence({unfence->generation, unfence->name, unfence->round, false, unfence->why, {}});
    return {};
}

/// A rank has closed its worker and lives on, or is back.
void Hub::on_absent(PeerId peer, const Unfence& unfence, Deadline now) {
    if (unfence.is_back) {
        absent_.erase(unfence.away);
        return;
    }
    absent_[unfence.away] = Absent{peer, unfence.why};
    if (!absent_look_) absent_look_ = now + kAbsentLook;
}

/// Fails fences that have waited while a rank has no worker, here and below, where the relays know of
/// them.
void Hub::end_long_waits(Deadline now) {
    absent_look_.reset();
    if (absent_.empty()) return;
    absent_look_ = now + kAbsentLook;
    const auto& [rank, absent] = *absent_.begin();
    const Unfence give_up{generation(), "", 0, absent.why, rank};
    for (const auto& [id, peer] : peers_)
        if (peer.kind == PeerKind::subtree)
            outbox_.to_peer(id, FrameType::unfence, payload_of(encode(give_up)));
    for (const auto& [name, round] : fences_.waited())
        end_fence({generation(), name, round, false, give_up.why, {}});
}

void Hub::end_fence(const Fenced& fenced) {
    const Bytes frame = encode(fenced);
    if (fenced.complete && frame.size() > Fence::kBytesMax)
        return end_fence({fenced.generation,
                          fenced.name,
                          fenced.round,
                          false,
                          "the ranks brought too many bytes; use the store",
                          {}});
    if (journal_ != nullptr)
        fenced.complete ? journal_->fence_completed(fenced) : journal_->fence_failed(fenced);
    if (fenced.complete) remember_completed(fenced);
    const auto ended = fences_.end(fenced);
    if (const auto old = fences_.take_forgotten(); old && journal_ != nullptr)
        journal_->failure_forgotten(old->first, old->second);
    SharedBytes shared;
    if (frame.size() >= kSharedBytesMin) shared = std::make_shared<const Bytes>(payload_of(frame));
    for (const auto& [id, peer] : peers_) {
        if (peer.kind == PeerKind::subtree && shared)
            outbox_.share_with_peer(id, FrameType::fenced, "", shared);
        else if (peer.kind == PeerKind::subtree)
            outbox_.to_peer(id, FrameType::fenced, payload_of(frame));
        else if (peer.rank != kNoRank)
            for (const Fenced& one : ended)
                outbox_.to_peer(id, FrameType::fenced, payload_of(encode(one)));
    }
}

/// Keeps a completed round, for ranks that repeat their arrival after a reconnect.
void Hub::remember_completed(const Fenced& fenced) {
    Completed& last = completed_[fenced.name];
    completed_bytes_ -= entry_bytes(last.fenced.entries);
    completed_order_.erase(last.number);
    last = {fenced, ++completions_};
    if (!options_.reconnects) last.fenced.entries.clear();
    completed_bytes_ += entry_bytes(last.fenced.entries);
    completed_order_[last.number] = fenced.name;
    const std::size_t most = options_.reconnects ? kCompletedMax : kCompletedMaxWithoutReturns;
    while (completed_.size() > most ||
           (completed_bytes_ > kCompletedBytesMax && completed_.size() > kCompletedKept)) {
        const auto oldest = completed_.find(completed_order_.begin()->second);
        completed_bytes_ -= entry_bytes(oldest->second.fenced.entries);
        if (journal_ != nullptr) journal_->completion_forgotten(oldest->first);
        completed_order_.erase(completed_order_.begin());
        completed_.erase(oldest);
    }
}

void Hub::fail_fences(std::string why) {
    if (std::exchange(fences_failed_, true)) return;
    end_fence({generation(), "", 0, false, std::move(why), {}});
}

}  // namespace dtrun
