#include "rendezvous/exchange_messages.h"
#include "rendezvous/member_messages.h"
#include "rendezvous/rank_messages.h"
#include "worker/client/client.h"

#include <algorithm>

namespace dtrun::embedded {
namespace {

Place place_of(Welcome welcome) {
    return {.job = std::move(welcome.job),
            .host_name = std::move(welcome.host_name),
            .generation = welcome.generation,
            .rank = welcome.rank,
            .world_size = welcome.world_size,
            .local_rank = welcome.local_rank,
            .local_size = welcome.local_size,
            .cross_rank = welcome.cross_rank,
            .cross_size = welcome.cross_size,
            .node_rank = welcome.node_rank,
            .node_count = welcome.node_count};
}

}  // namespace

void Client::on_open(int socket) {
    events_.watch(socket);
    heard_ = now();
    answered_ = false;
}

void Client::on_bytes() {
    heard_ = now();
    answered_ = true;
}

/// Our thread reconnects to a daemon; any other connection is closed for good.
bool Client::on_lost() {
    events_.unwatch();
    if (answered_) lost_since_ = now();
    if (!has_daemon() || ending_) return false;
    tick_.notify_one();
    return true;
}

void Client::on_closed() {
    tick_.notify_one();
    events_.close();
}

Result<void> Client::on_frame(const FrameView& frame) {
    switch (frame.type) {
        case FrameType::reply:
            return on_reply(frame.payload);
        case FrameType::fenced:
            return on_fenced(frame.payload);
        case FrameType::heartbeat:
            return on_heartbeat(frame.payload);
        case FrameType::welcome:
            return on_welcome(frame.payload);
        case FrameType::event: {
            auto event = decode<Event>(frame.payload);
            if (!event) return std::unexpected(event.error());
            add_event(std::move(*event));
            return {};
        }
        case FrameType::assign:
            return on_assign(frame.payload);
        case FrameType::propose:
            return on_propose(frame.payload);
        case FrameType::stop:
            return on_stop(frame.payload);
        case FrameType::refuse: {
            const auto refuse = decode<Refuse>(frame.payload);
            if (!refuse) return std::unexpected(refuse.error());
            if (refuse->later && has_daemon()) {
                answered_ = false;  // as one that says nothing: try again in a while
                connection_.shut_down();
            } else {
                connection_.close({DTRUN_REFUSED, fmt::format("refused: {}", refuse->reason)});
            }
            return {};
        }
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

Result<void> Client::on_reply(std::string_view payload) {
    const auto reply = decode_reply(payload);
    if (!reply) return std::unexpected(reply.error());
    const auto call = std::ranges::lower_bound(calls_, reply->header.id, {}, &Call::id);
    if (call == calls_.end() || (*call)->id != reply->header.id || (*call)->done)
        return {};  // nobody waits for it any more
    (*call)->status = reply->header.status;
    (*call)->results = reply->results;
    (*call)->finish();
    return {};
}

Result<void> Client::on_fenced(std::string_view payload) {
    auto fenced = decode<Fenced>(payload);
    if (!fenced) return std::unexpected(fenced.error());
    const bool all = fenced->name.empty();  // a rank has ended
    for (FenceCall* call : fences_) {
        const Fence& fence = call->fence;
        if (call->done || fence.generation != fenced->generation) continue;
        if (!all && (fence.name != fenced->name || fence.round != fenced->round)) continue;
        if (all)
            call->result.why = fenced->why;
        else
            call->result = std::move(*fenced);
        call->finish();
        if (!all) break;
    }
    return {};
}

/// A daemon that was given another timeout tells its clients, so that both ends mean the same.
Result<void> Client::on_heartbeat(std::string_view payload) {
    const auto heartbeat = decode<Heartbeat>(payload);
    if (!heartbeat) return std::unexpected(heartbeat.error());
    if (heartbeat->timeout_ms != 0) silence_max_ = std::chrono::milliseconds(heartbeat->timeout_ms);
    return {};
}

Result<void> Client::on_welcome(std::string_view payload) {
    auto welcome = decode<Welcome>(payload);
    if (!welcome) return std::unexpected(welcome.error());
    if (role_ == Role::helper) {
        standing_.welcome();
    } else if (in_step()) {
        Place place = standing_.place();  // Slurm has said the rest
        place.generation = welcome->generation;
        standing_.welcome(std::move(place));
    } else {
        standing_.welcome(place_of(std::move(*welcome)));
    }
    connection_.changed();
    return {};
}

Result<void> Client::on_assign(std::string_view payload) {
    const auto assign = decode<Assign>(payload);
    if (!assign) return std::unexpected(assign.error());
    if (!is_member()) return {};
    const auto is_new = standing_.assign(*assign);
    if (!is_new) return std::unexpected(is_new.error());
    if (!*is_new) return {};
    rounds_.clear();
    events_.begin(generation());
    for (FenceCall* call : fences_) {
        if (call->done || call->fence.generation >= generation()) continue;
        call->failure = {DTRUN_STALE, fmt::format("generation {} is over", call->fence.generation)};
        call->finish();
    }
    connection_.changed();
    return {};
}

Result<void> Client::on_propose(std::string_view payload) {
    auto propose = decode<Propose>(payload);
    if (!propose) return std::unexpected(propose.error());
    if (standing_.propose(propose->generation))
        add_event({Event::Kind::membership, propose->generation, 0, std::move(propose->why)});
    return {};
}

Result<void> Client::on_stop(std::string_view payload) {
    auto stop = decode<Stop>(payload);
    if (!stop) return std::unexpected(stop.error());
    if (ending_) return {};
    ending_ = true;
    add_event({Event::Kind::shutdown, generation(), stop->grace_ms, std::move(stop->why)});
    return {};
}

void Client::add_event(Event event) {
    events_.add(std::move(event));
    connection_.changed();
}

}  // namespace dtrun::embedded
