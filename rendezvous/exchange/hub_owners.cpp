// Who owns what is in the store, and when it is gone.

#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/store_replies.h"

namespace dtrun {
namespace {

/// How long owners have to find a hub that has been restarted.
constexpr std::chrono::seconds kRestartLimit{10};

/// Whether an operation is about what is its owner's, and nobody else's.
bool needs_owner(Op op) {
    return op == Op::lock || op == Op::unlock || op == Op::claim || op == Op::acknowledge ||
           op == Op::give_back;
}

}  // namespace

/// A client begins to own things, or says over a new connection that it is there.
/// \return whether it was one already, and has what it had
StoreReply Hub::own(PeerId peer, std::uint64_t client) {
    const auto [owner, fresh] = owners_.try_emplace(client);
    owners_away_.erase({owner->second.gone_at, client});
    owner->second = Owner{peer, {}, {}};
    return ok_bool(!fresh);
}

/// Why nothing can be this owner's; empty: it is there, over the same connection.
std::string Hub::owner_refusal(PeerId peer, const StoreRequest& request) const {
    if (request.owner == 0) return needs_owner(request.op) ? "an owner is needed" : "";
    const auto owner = owners_.find(request.owner);
    if (owner == owners_.end() || owner->second.peer != peer) return "its owner has gone";
    return "";
}

/// Whether a lock or an item that this answer has given is not its owner's any more: who has not had the answer
/// must not take it for his, and is served anew.
bool Hub::was_taken(const RequestView& request, std::string_view reply) const {
    if (request.header.op != Op::lock && request.header.op != Op::claim) return false;
    const auto given = decode_reply(reply);
    if (!given || given->header.status != Status::ok) return false;
    PackReader in(request.arguments);
    in.array();
    in.uint();
    const auto asked = StoreRequest::decode(request.header.op, in);
    return asked && !store_->still_has(*asked, {Status::ok, Bytes(given->results)});
}

/// With an owner: if the request was done already, what it has given is taken back.
void Hub::cancel(PeerId peer, const RequestHeader& header, PackReader& in) {
    const std::uint64_t id = in.uint();
    const std::uint64_t owner = in.uint();
    const bool waited = store_->cancel({header.client, id});
    const auto found = owners_.find(owner);
    const bool is_here = in.ok() && found != owners_.end() && found->second.peer == peer;
    if (!waited && is_here) store_->take_back(owner, {header.client, id});
    answer(peer, header, reply(Status::ok));
}

/// Its connection has ended.
void Hub::set_owner_away(std::uint64_t id, Deadline since, Deadline gone_at) {
    Owner& owner = owners_[id];
    owners_away_.erase({owner.gone_at, id});
    owner = Owner{std::nullopt, since, gone_at};
    owners_away_.emplace(gone_at, id);
}

void Hub::owner_gone(std::uint64_t id) {
    const auto owner = owners_.extract(id);
    if (owner.empty()) return;
    owners_away_.erase({owner.mapped().gone_at, id});
    store_->owner_gone(id);
}

void Hub::stood_still(Deadline from, Deadline until) {
    for (const auto& [gone_at, id] : std::set(owners_away_)) {
        const Deadline since = owners_.at(id).away_since;
        const Deadline begin = std::max(from, since);
        if (begin < until) set_owner_away(id, since, gone_at + (until - begin));
    }
}

void Hub::end_restore(Deadline now) {
    store_->end_restore();
    for (const std::uint64_t owner : store_->owners())
        set_owner_away(
            owner, now,
            now + std::max<std::chrono::milliseconds>(options_.owner_limit, kRestartLimit));
}

}  // namespace dtrun
