#include "worker/stores/relayed_store.h"

#include "base/ids.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/msgpack.h"

namespace dtrun::stores {
namespace {

constexpr std::size_t kChangingMax = 64;  // under way, for each client
/// What a frame holds besides keys and values: headers, and a few bytes around each.
constexpr std::size_t kAround = 64u << 10;

/// Whether the root could read the frame of a request: it would end our host's link for a larger one.
bool fits_a_frame(const StoreRequest& request) {
    std::size_t bytes = kAround + request.after.size();
    for (const std::string_view key : request.keys) bytes += key.size() + 8;
    for (const std::string_view value : request.values) bytes += value.size() + 8;
    if (request.expected) bytes += request.expected->size();
    return bytes <= FrameHeader::kPayloadBytesMax;
}

StoreReply too_large() {
    StoreReply reply{Status::refused, {}};
    PackWriter out(reply.results);
    out.array(1);
    out.str("the request is too large");
    return reply;
}

}  // namespace

RelayedStore::Client& RelayedStore::client_for(Op op, std::uint64_t& client_id) {
    for (auto& [id, client] : clients_) {
        if (changes_something(op) && client.changing >= kChangingMax) continue;
        client_id = id;
        return client;
    }
    client_id = random_id();
    return clients_[client_id];
}

JobStore::Ticket RelayedStore::start(const StoreRequest& request, Answer answer) {
    const Ticket ticket = ++last_ticket_;
    if (!fits_a_frame(request)) {
        pending_.emplace(ticket, Pending{0, 0, request.op, std::move(answer)});
        refuse_later(ticket);
        return ticket;
    }
    std::uint64_t client_id = 0;
    Client& client = client_for(request.op, client_id);
    send(ticket, client_id, client, request, std::move(answer));
    return ticket;
}

void RelayedStore::send(Ticket ticket, std::uint64_t client_id, Client& client,
                        const StoreRequest& request, Answer answer) {
    RequestHeader header;
    header.client = client_id;
    header.id = ++client.last_id;
    client.unanswered.emplace(header.id, ticket);
    client.changing += changes_something(request.op);
    header.behind = static_cast<std::uint32_t>(header.id - client.unanswered.begin()->first);
    pending_.emplace(ticket, Pending{client_id, header.id, request.op, std::move(answer)});
    const Bytes frame = encode_request(header, request, generation_);
    send_(FrameType::request, payload_of(frame));
}

void RelayedStore::refuse_later(Ticket ticket) {
    asio::post(executor_, [this, ticket, alive = std::weak_ptr(alive_)] {
        if (alive.expired()) return;
        const auto asked = pending_.extract(ticket);
        if (!asked.empty()) asked.mapped().answer(too_large());
    });
}

/// The reply may be under way already: the number stays in use until it comes.
void RelayedStore::forget(Ticket ticket) {
    const auto asked = pending_.find(ticket);
    if (asked == pending_.end() || !asked->second.answer) return;
    if (asked->second.client == 0) return void(pending_.erase(asked));
    asked->second.answer = nullptr;
    const std::uint64_t client_id = asked->second.client;
    const StoreRequest cancel{.op = Op::cancel, .number = asked->second.id};
    send(++last_ticket_, client_id, clients_.at(client_id), cancel, nullptr);
}

Result<void> RelayedStore::on_reply(std::string_view payload) {
    const auto reply = decode_reply(payload);
    if (!reply) return std::unexpected(reply.error());
    const auto client = clients_.find(reply->header.client);
    if (client == clients_.end()) return {};  // of a generation before
    const auto unanswered = client->second.unanswered.find(reply->header.id);
    if (unanswered == client->second.unanswered.end()) return {};
    auto asked = pending_.extract(unanswered->second);
    client->second.unanswered.erase(unanswered);
    client->second.changing -= changes_something(asked.mapped().op);
    if (!asked.mapped().answer) return {};
    const StoreReply answer{reply->header.status, Bytes(reply->results)};
    asked.mapped().answer(answer);
    return {};
}

void RelayedStore::begin(std::uint64_t generation) {
    for (const auto& [id, client] : clients_) {
        Bytes frame = encode(Gone{id});
        send_(FrameType::gone, payload_of(frame));
    }
    clients_.clear();
    pending_.clear();
    generation_ = generation;
}

}  // namespace dtrun::stores
