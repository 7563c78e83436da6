#include "rendezvous/exchange/hub.h"

#include "rendezvous/wire/msgpack.h"

#include <algorithm>

namespace dtrun {
namespace {

constexpr std::size_t kAnswersMax = 64;    // kept for each client
constexpr std::size_t kAnswerBytes = 128;  // approximate overhead of one
constexpr std::chrono::seconds kReturnLimit{60};
/// By then a connection that its client has replaced is noticed to be dead: no late requests come.
constexpr std::chrono::seconds kLateCopies{30};
StoreReply text_reply(Status status, std::string_view text) {
    StoreReply reply{status, {}};
    PackWriter out(reply.results);
    out.array(1);
    out.str(text);
    return reply;
}

StoreReply stale_reply(std::uint64_t generation) {
    StoreReply reply{Status::stale, {}};
    PackWriter out(reply.results);
    out.array(1);
    out.uint(generation);
    return reply;
}

}  // namespace

Hub::Hub(Outbox& outbox, HubOptions options, HubJournal* journal)
    : outbox_(outbox),
      options_(std::move(options)),
      journal_(journal),
      group_fences_(static_cast<GroupFences::Events&>(*this)) {
    make_store();
}

void Hub::make_store() {
    const auto answer = [this](Store::Token token, const StoreReply& reply) {
        answer_late(token, reply);
    };
    // Who watches has a revision of the generation before, and must not miss the same one here.
    const std::uint64_t last = store_ ? store_->revision() + 1 : options_.revision;
    store_ = std::make_unique<Store>(answer, journal_, options_.limits);
    store_->restore_revision(last);
}

void Hub::add_peer(PeerId peer, PeerKind kind, Rank rank) {
    peers_[peer] = Peer{kind, rank, {}, kReturnLimit, {}};
}

void Hub::set_return_limit(PeerId peer, std::chrono::milliseconds limit) {
    peers_.at(peer).return_limit = limit;
}

void Hub::set_group_client(PeerId peer, std::uint64_t client) {
    group_fences_.add_peer(peer, client);
}

void Hub::remove_peer(PeerId id, Deadline now, bool is_lost) {
    const auto peer = peers_.extract(id);
    if (peer.empty()) return;
    fences_.retract(id);
    std::erase_if(absent_, [id](const auto& rank) { return rank.second.peer == id; });
    group_fences_.remove_peer(id);
    std::vector<std::uint64_t> gone;
    for (const std::uint64_t name : peer.mapped().clients) {
        Client& client = clients_.at(name);
        for (const auto& [request, op] : client.waiting) store_->forget({name, request});
        client.waiting.clear();
        if (owners_.contains(name) && (is_lost || !options_.reconnects))
            gone.push_back(name);
        else if (owners_.contains(name))
            set_owner_away(name, now, now + options_.owner_limit);
        const auto limit = peer.mapped().return_limit;
        if (client.moved)
            set_away(name, client, now + std::max<std::chrono::milliseconds>(limit, kLateCopies));
        else if (!client.answers.empty())
            set_away(name, client, now + limit);
        else
            forget_client(name);
    }
    for (const std::uint64_t name : gone) owner_gone(name);
}

Result<void> Hub::from_peer(PeerId id, const FrameView& frame, Deadline now) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return {};
    switch (frame.type) {
        case FrameType::request:
            return on_request(id, frame.payload, now);
        case FrameType::fence:
            return on_fence(id, frame.payload);
        case FrameType::unfence:
            return on_unfence(id, frame.payload, now);
        case FrameType::group_fence: {
            const auto fence = decode<GroupFence>(frame.payload);
            if (!fence) return std::unexpected(fence.error());
            group_fences_.from_peer(id, *fence);
            return {};
        }
        case FrameType::gone:
            return on_gone(id, frame.payload, now);
        case FrameType::heartbeat: {
            const auto heartbeat = decode<Heartbeat>(frame.payload);
            if (!heartbeat) return std::unexpected(heartbeat.error());
            if (peer->second.kind == PeerKind::subtree) peer->second.progress = *heartbeat;
            return {};
        }
        case FrameType::progress: {
            const auto progress = decode<RankProgress>(frame.payload);
            if (!progress) return std::unexpected(progress.error());
            const bool is_rank = peer->second.kind == PeerKind::rank;
            const Rank rank = is_rank ? peer->second.rank : progress->rank;
            if (rank == kNoRank) return {};
            peer->second.progress = Heartbeat{1, {rank, progress->step}, progress->step};
            return {};
        }
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

Result<void> Hub::on_gone(PeerId peer, std::string_view payload, Deadline now) {
    const auto gone = decode<Gone>(payload);
    if (!gone) return std::unexpected(gone.error());
    const auto found = clients_.find(gone->client);
    if (found == clients_.end() || found->second.peer != peer) return {};
    Client& client = found->second;
    for (const auto& [request, op] : client.waiting) store_->forget({gone->client, request});
    client.waiting.clear();
    forget_answers(gone->client, client);
    peers_.at(peer).clients.erase(gone->client);
    owner_gone(gone->client);
    if (!client.moved) {
        forget_client(gone->client);
        return {};
    }
    client.gone = true;
    set_away(gone->client, client, now + kLateCopies);
    return {};
}

Result<void> Hub::on_request(PeerId peer, std::string_view payload, Deadline now) {
    const auto request = decode_request(payload);
    if (!request) return std::unexpected(request.error());
    const RequestHeader& header = request->header;
    if (has_asked(peer, *request)) return {};
    PackReader in(request->arguments);
    if (in.array() == 0) in.set_failed();
    const std::uint64_t generation = in.uint();
    if (!in.ok()) {
        answer(peer, header, text_reply(Status::refused, "malformed arguments"));
    } else if (generation != 0 && generation != this->generation()) {
        answer(peer, header, stale_reply(this->generation()));
    } else if (header.op == Op::status) {
        tell(peer, header, status_reply());
    } else if (header.op == Op::cancel) {
        cancel(peer, header, in);
    } else if (const auto asked = StoreRequest::decode(header.op, in); !asked) {
        answer(peer, header, text_reply(Status::refused, asked.error().message));
    } else if (header.op == Op::drop) {
        answer(peer, header, drop_reply());
    } else if (header.op == Op::own) {
        answer(peer, header, own(peer, header.client));
    } else if (const std::string unowned = owner_refusal(peer, *asked); !unowned.empty()) {
        answer(peer, header, text_reply(Status::refused, unowned));
    } else if (const auto refused = refusal(header.op, payload.size())) {
        tell(peer, header, *refused);
    } else if (auto reply = store_->ask({header.client, header.id}, *asked, now)) {
        answer(peer, header, std::move(*reply));
    } else {
        clients_.at(header.client).waiting[header.id] = header.op;
    }
    return {};
}

/// Whether this request is a repetition. Its kept answer is sent again, if there is one; else it
/// still waits in the store, or is a late copy whose answer the client has.
bool Hub::has_asked(PeerId peer, const RequestView& request) {
    const RequestHeader& header = request.header;
    Client& client = clients_[header.client];
    if (client.gone || (options_.reconnects && client.peer > peer)) return true;
    if (client.peer != peer) move_to(peer, header.client, client);
    if (!options_.reconnects) return client.waiting.contains(header.id);
    const std::uint64_t lowest = header.id - header.behind;
    if (!client.answers.empty() && client.answers.begin()->first < lowest) {
        if (journal_ != nullptr) journal_->answers_forgotten(header.client, lowest - 1);
        while (!client.answers.empty() && client.answers.begin()->first < lowest)
            forget_answer(client, client.answers.begin()->first);
    }
    const auto known = client.answers.find(header.id);
    if (known == client.answers.end()) return client.waiting.contains(header.id);
    if (was_taken(request, *known->second)) {
        if (journal_ != nullptr) journal_->answer_forgotten(header.client, header.id);
        forget_answer(client, header.id);
        return false;
    }
    // The repeated answer counts as the newest, so it is dropped last.
    std::erase(client.answered, header.id);
    client.answered.push_back(header.id);
    send_kept(peer, known->second);
    return true;
}

/// Records the connection over which a client asks, and is answered, from now on.
void Hub::move_to(PeerId peer, std::uint64_t id, Client& client) {
    if (client.peer) {
        client.moved = true;
        if (const auto old = peers_.find(*client.peer); old != peers_.end())
            old->second.clients.erase(id);
    }
    client.peer = peer;
    peers_.at(peer).clients.insert(id);
    set_away(id, client, std::nullopt);
}

void Hub::set_away(std::uint64_t id, Client& client, std::optional<Deadline> until) {
    if (client.away_until) away_.erase({*client.away_until, id});
    client.away_until = until;
    if (until) away_.emplace(*until, id);
}

void Hub::forget_client(std::uint64_t id) {
    const auto client = clients_.find(id);
    set_away(id, client->second, std::nullopt);
    forget_answers(id, client->second);
    clients_.erase(client);
}

void Hub::forget_answer(Client& client, std::uint64_t id) {
    const auto answer = client.answers.find(id);
    answer_bytes_ -= answer->second->size() + kAnswerBytes;
    client.answers.erase(answer);
    std::erase(client.answered, id);
    store_->count_besides(answer_bytes_);
}

void Hub::forget_answers(std::uint64_t id, Client& client) {
    if (client.answers.empty()) return;
    if (journal_ != nullptr) journal_->answers_forgotten(id, UINT64_MAX);
    while (!client.answers.empty()) forget_answer(client, client.answers.begin()->first);
}

void Hub::expire(Deadline now) {
    store_->expire(now);
    while (!owners_away_.empty() && owners_away_.begin()->first <= now)
        owner_gone(owners_away_.begin()->second);
    while (!away_.empty() && away_.begin()->first <= now) forget_client(away_.begin()->second);
    if (absent_look_ && *absent_look_ <= now) end_long_waits(now);
}

Deadline Hub::next_deadline() const {
    Deadline next = store_->next_deadline();
    if (!away_.empty()) next = std::min(next, away_.begin()->first);
    if (!owners_away_.empty()) next = std::min(next, owners_away_.begin()->first);
    return absent_look_ ? std::min(next, *absent_look_) : next;
}

StoreReply Hub::status_reply() const {
    if (!options_.status) return text_reply(Status::refused, "no status here");
    return text_reply(Status::ok, options_.status());
}

StoreReply Hub::drop_reply() const {
    if (!options_.drop)
        return text_reply(Status::refused, "only a job of `dtrun serve` can be dropped");
    return options_.drop();
}

std::optional<StoreReply> Hub::refusal(Op op, std::size_t bytes) const {
    if (!options_.refusal || !changes_something(op)) return std::nullopt;
    return options_.refusal(op, bytes);
}

/// Answers what changes nothing and tells of nothing that has changed: the answer is not kept, and does
/// not wait for the disk.
void Hub::tell(PeerId peer, const RequestHeader& header, const StoreReply& reply) {
    const Bytes frame = encode_reply({header.client, header.id, reply.status}, {});
    outbox_.tell_peer(peer, FrameType::reply, Bytes(payload_of(frame)) + reply.results);
}

void Hub::answer(PeerId peer, const RequestHeader& header, StoreReply reply) {
    const Bytes frame = encode_reply({header.client, header.id, reply.status}, {});
    const std::string_view reply_header = payload_of(frame);
    if (!options_.reconnects || !changes_something(header.op))
        return send_results(peer, reply_header, std::move(reply.results));
    const auto payload = std::make_shared<const Bytes>(Bytes(reply_header) + reply.results);
    if (journal_ != nullptr) journal_->answered(header.client, header.id, *payload);
    keep_answer(header.client, header.id, payload);
    send_kept(peer, payload);
}

void Hub::send_kept(PeerId peer, const SharedBytes& payload) {
    if (payload->size() < kSharedBytesMin)
        outbox_.to_peer(peer, FrameType::reply, *payload);
    else
        outbox_.share_with_peer(peer, FrameType::reply, "", payload);
}

/// Sends results. Many clients may ask for the same large value: one copy is shared by all peers to
/// which it is still being sent.
void Hub::send_results(PeerId peer, std::string_view reply_header, Bytes results) {
    if (results.size() < kSharedBytesMin)
        return outbox_.to_peer(peer, FrameType::reply, Bytes(reply_header) + results);
    SharedBytes shared = last_results_.lock();
    if (!shared || *shared != results) {
        shared = std::make_shared<const Bytes>(std::move(results));
        last_results_ = shared;
    }
    outbox_.share_with_peer(peer, FrameType::reply, reply_header, shared);
}

void Hub::keep_answer(std::uint64_t name, std::uint64_t id, SharedBytes payload) {
    Client& client = clients_[name];
    answer_bytes_ += payload->size() + kAnswerBytes;
    client.answers[id] = std::move(payload);
    client.answered.push_back(id);
    if (client.answered.size() > kAnswersMax) {
        const std::uint64_t oldest = client.answered.front();
        if (journal_ != nullptr) journal_->answer_forgotten(name, oldest);
        forget_answer(client, oldest);
    }
    store_->count_besides(answer_bytes_);
}

void Hub::answer_late(Store::Token token, const StoreReply& reply) {
    const auto [name, id] = token;
    const auto found = clients_.find(name);
    if (found == clients_.end()) return;
    const auto waiting = found->second.waiting.extract(id);
    if (!waiting.empty()) answer(*found->second.peer, {name, id, 0, waiting.mapped()}, reply);
}

void Hub::end_waits() {
    store_->answer_all(stale_reply(generation()));
}

void Hub::begin(std::uint64_t generation, std::uint32_t ranks) {
    if (this->generation() != 0) fail_fences("a new generation began");
    store_->answer_all(stale_reply(generation));
    restore_generation(generation, ranks);
    if (journal_ != nullptr) journal_->began(generation, store_->revision());
}

void Hub::restore_generation(std::uint64_t generation, std::uint32_t ranks) {
    make_store();
    // Disconnected clients are forgotten, as their answers were of the old generation. Clients that
    // are gone stay, so that late copies of their requests are recognised.
    std::erase_if(clients_, [](const auto& client) {
        return client.second.away_until && !client.second.gone;
    });
    std::erase_if(away_, [this](const auto& away) { return !clients_.contains(away.second); });
    for (auto& [id, client] : clients_) {
        client.waiting.clear();
        client.answers.clear();
        client.answered.clear();
    }
    answer_bytes_ = 0;
    completed_.clear();
    completed_order_.clear();
    completed_bytes_ = 0;
    fences_.begin(generation, ranks);
    fences_failed_ = false;
    absent_.clear();
    for (auto& [id, peer] : peers_) peer.progress = {};
}

void Hub::restore_answer(std::uint64_t name, std::uint64_t id, Bytes reply, Deadline now) {
    keep_answer(name, id, std::make_shared<const Bytes>(std::move(reply)));
    set_away(name, clients_.at(name), now + kReturnLimit);
}

void Hub::restore_fence(Fenced fenced) {
    if (fenced.complete) return remember_completed(fenced);
    fences_failed_ |= fenced.name.empty();
    fences_.end(fenced);
}

void Hub::restore_group(const GroupFences::Key& key, GroupFences::End end) {
    group_fences_.restore(key, std::move(end));
}

void Hub::group_told(PeerId peer, const Fenced& fenced) {
    outbox_.to_peer(peer, FrameType::fenced, payload_of(encode(fenced)));
}

void Hub::group_ended(const GroupFences::Key& key, const GroupFences::End& end) {
    if (journal_ != nullptr) journal_->group_ended(key, end);
}

void Hub::group_forgotten(const GroupFences::Key& key) {
    if (journal_ != nullptr) journal_->group_forgotten(key);
}

Heartbeat Hub::progress() const {
    ProgressSum sum;
    for (const auto& [id, peer] : peers_) sum.add(peer.progress);
    return sum.summary();
}

}  // namespace dtrun
