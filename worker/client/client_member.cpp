// A process that is a member of a daemon's job by itself: it is spoken to as an agent with one rank.

#include "worker/client/client.h"

namespace dtrun::embedded {
namespace {

constexpr SlotIndex kPlace{0};

}  // namespace

void Client::subscribe_member() {
    router_.on(FrameType::numbered, [this](std::string_view payload) { return numbered(payload); });
    router_.on<Heard>(this, &Client::heard);
    orders_.on<Assign>(this, &Client::assigned);
    orders_.on<Prepare>(this, &Client::prepared);
    orders_.on<Notify>(this, &Client::notified);
    orders_.on<QueryCommit>(this, &Client::ready_to_commit);
    orders_.on<ResetConnections>(this, &Client::connections_reset);
    orders_.on<Pause>(this, &Client::paused);
    orders_.on<EndRanks>(this, &Client::dismissed);
    orders_.on<Stop>(this, &Client::stopped);
}

Result<void> Client::numbered(std::string_view payload) {
    const auto done = member_.on_numbered(
        payload, [this](const FrameView& frame) { return orders_.route(frame); });
    keep_alive_->send_soon();
    return done;
}

Result<void> Client::heard(const Heard& heard) {
    const auto done = member_.on_heard(heard);
    keep_alive_->send_soon();
    return done;
}

void Client::say(const Bytes& frame) {
    member_.say(frame);
    keep_alive_->send_soon();
}

Result<void> Client::assigned(const Assign& assign) {
    const auto is_new = membership_.assign(assign);
    if (!is_new) return std::unexpected(is_new.error());
    if (!*is_new) return {};
    fences_.begin(generation());
    events_.begin(generation());
    say(encode(RejoinStatus{kPlace, RejoinState::supports_rejoin}));
    say(encode(RejoinStatus{kPlace, RejoinState::rendezvoused}));
    connection_.changed();
    return {};
}

/// A process that takes part needs no time to start.
void Client::prepared(const Prepare&) {
    say(encode(RejoinStatus{kPlace, RejoinState::held_at_start}));
}

void Client::notified(const Notify& notice) {
    if (notice.generation <= generation()) return;
    changes_.note({generation(), notice.generation, notice.reason, 0, notice.stop_step});
    add_event({RankEvent::Kind::membership, notice.generation, 0, "hosts change", notice.reason});
}

void Client::ready_to_commit(const QueryCommit& query_commit) {
    say(encode(ReadyToCommit{query_commit.number}));
}

void Client::connections_reset(const ResetConnections& reset_connections) {
    if (reset_connections.world && reset_connections.generation == generation())
        event_came({RankEvent::Kind::membership, generation() + 1, 0,
                    "a rank of this generation is lost", ChangeReason::lost});
}

void Client::paused(Pause pause) {
    if (generation() == 0) return say(encode(Paused{pause.generation}));  // it runs nothing yet
    pausing_ = pause.generation;
    changes_.note({generation(), pause.generation, ChangeReason::restarted, 0, 0});
    add_event({RankEvent::Kind::membership, pause.generation, 0, std::move(pause.why),
               ChangeReason::restarted});
}

void Client::dismissed(const EndRanks&) {
    stopped({.why = "this process has not asked for its place in time"});
}

}  // namespace dtrun::embedded
