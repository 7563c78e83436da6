#include "rendezvous/exchange_messages.h"
#include "worker/client/client.h"

#include <algorithm>

namespace dtrun::embedded {
namespace {

/// How long an answer may be late before we stop waiting for it, besides the time that a daemon's
/// lost connection has to come back.
constexpr std::int64_t kAnswerGraceMs = 10'000;

/// Writes the header into a request's frame, before which nobody knew its number.
void set_header(Bytes& frame, const RequestHeader& header) {
    const Bytes headers = encode_request(header, {});
    std::copy(headers.begin() + FrameHeader::kBytes, headers.end(),
              frame.begin() + FrameHeader::kBytes);
}

/// As the protocol has it; no limit for negative ones.
std::uint64_t wire_timeout(std::int64_t timeout_ms) {
    if (timeout_ms < 0) return kForeverMs;
    return std::min<std::uint64_t>(static_cast<std::uint64_t>(timeout_ms), kForeverMs - 1);
}

}  // namespace

/// Lets at most kChangesMax requests that change something be under way.
Outcome<void> Client::take_turn(Lock& lock, const Patience& patience) {
    if (changes_ < kChangesMax) {
        ++changes_;
        return {};
    }
    Waiter turn;
    turns_.push_back(&turn);
    const auto waited = connection_.wait(lock, turn, patience);
    if (!waited) std::erase(turns_, &turn);
    return waited;
}

void Client::give_turn() {
    if (turns_.empty()) {
        --changes_;
        return;
    }
    turns_.front()->finish();  // it is under way in our place
    turns_.pop_front();
}

Outcome<Bytes> Client::results_of(Call& call) const {
    PackReader results(call.results);
    switch (call.status) {
        case Status::ok:
            return std::move(call.results);
        case Status::not_found:
            return failure(DTRUN_NOT_FOUND, "no such key");
        case Status::timed_out:
            return failure(DTRUN_TIMED_OUT, "timed out");
        case Status::stale:
            return failure(DTRUN_STALE, "generation {} is over", generation());
        case Status::cancelled:
            return failure(DTRUN_CANCELLED, "cancelled");
        case Status::wrong_type:
            return failure(DTRUN_WRONG_TYPE, "the key holds something of another kind");
        case Status::refused:
            break;
    }
    const bool has_text = results.array() > 0;
    return failure(DTRUN_REFUSED, "{}", has_text ? results.bytes() : "refused");
}

Outcome<Bytes> Client::request(StoreRequest request, std::int64_t timeout_ms,
                               std::function<bool()> give_up) {
    if (!is_served()) return std::unexpected(unserved());
    request.timeout_ms = wire_timeout(timeout_ms);
    Call call;
    call.frame = encode_request({}, request, generation());
    if (call.frame.size() > FrameHeader::kPayloadBytesMax)
        return failure(DTRUN_REFUSED, "a request of {} bytes, more than {}", call.frame.size(),
                       FrameHeader::kPayloadBytesMax);
    const std::int64_t grace_ms =
        kAnswerGraceMs + (has_daemon() ? surroundings_.daemon->timeout_ms : 0);
    const Patience patience{timeout_ms < 0 ? Moment::max() : moment_after(timeout_ms + grace_ms),
                            std::move(give_up)};
    if (role_ == Role::helper) {
        const auto started = first_use_.ensure([&] { return start(patience); }, patience);
        if (!started) return std::unexpected(started.error());
    }

    const bool changes = changes_something(request.op);
    Lock lock = connection_.lock();
    if (changes)
        if (auto turn = take_turn(lock, patience); !turn) return std::unexpected(turn.error());
    lock.unlock();
    connection_.send_next([&] {
        call.id = ++last_id_;
        set_header(call.frame, header_for(call.id, request.op));
        calls_.push_back(&call);
        return std::string_view(call.frame);
    });
    lock.lock();
    const auto answered = connection_.wait(lock, call, patience);
    std::erase(calls_, &call);
    if (changes) give_turn();
    if (answered) return results_of(call);

    const bool closed = connection_.closed().has_value();
    lock.unlock();
    if (!closed) send_cancel(call.id);
    return std::unexpected(answered.error());
}

/// Makes the header of a new request; the lock is held.
RequestHeader Client::header_for(std::uint64_t id, Op op) const {
    const std::uint64_t lowest = calls_.empty() ? id : calls_.front()->id;
    return {client_id_, id, static_cast<std::uint32_t>(id - lowest), op};
}

/// Tells the other side that nobody waits for that request any more.
void Client::send_cancel(std::uint64_t id) {
    const StoreRequest cancel{.op = Op::cancel, .number = id};
    Bytes frame;
    connection_.send_next([&] {
        frame = encode_request(header_for(++last_id_, Op::cancel), cancel, generation());
        return std::string_view(frame);
    });
}

Outcome<std::vector<FenceEntry>> Client::result_of(FenceCall& call) {
    if (call.result.complete) return std::move(call.result.entries);
    return failure(DTRUN_CANCELLED, "fence '{}': {}", call.fence.name, call.result.why);
}

void Client::send_unfence(FenceCall& call, std::string why) {
    const Fence& fence = call.fence;
    Bytes frame;
    if (call.of_group) {
        call.of_group->why = std::move(why);
        frame = encode(*call.of_group);
    } else {
        frame = encode(Unfence{fence.generation, fence.name, fence.round, std::move(why)});
    }
    connection_.send(frame);
}

Outcome<std::vector<FenceEntry>> Client::fence(std::string_view name,
                                               std::optional<std::string_view> bytes,
                                               std::int64_t timeout_ms,
                                               std::function<bool()> give_up) {
    FenceCall call;
    Patience patience{moment_after(timeout_ms), std::move(give_up)};
    Lock lock = connection_.lock();
    const Place& place = standing_.place();
    const std::uint32_t rank = place.rank;
    call.fence.generation = generation();
    call.fence.name = name;
    call.fence.round = rounds_[call.fence.name]++;
    if (bytes) call.fence.entries.push_back({rank, Bytes(*bytes)});
    if (has_daemon() && !is_member())
        call.of_group =
            GroupFence{client_id_, place.job,        call.fence.name,    call.fence.round,
                       rank,       place.world_size, call.fence.entries, {}};
    lock.unlock();
    call.frame = call.of_group ? encode(*call.of_group) : encode(call.fence);
    connection_.send_next([&] {
        fences_.push_back(&call);
        return std::string_view(call.frame);
    });
    lock.lock();
    auto ended = connection_.wait(lock, call, patience);
    const bool timed_out = !ended && ended.error().code == DTRUN_TIMED_OUT;
    const bool interrupted = !ended && ended.error().code == DTRUN_CANCELLED;
    if (timed_out || interrupted) {
        const std::string why = timed_out ? fmt::format("rank {} waited {} ms", rank, timeout_ms)
                                          : fmt::format("rank {} was interrupted", rank);
        lock.unlock();
        send_unfence(call, why);
        lock.lock();
    }
    if (timed_out) {
        patience.deadline = now() + std::chrono::milliseconds(kAnswerGraceMs);
        ended = connection_.wait(lock, call, patience);
    }
    std::erase(fences_, &call);
    if (!ended) return failure(ended.error().code, "fence '{}': {}", name, ended.error().text);
    auto result = result_of(call);
    if (!result && timed_out) result.error().code = DTRUN_TIMED_OUT;
    return result;
}

Outcome<void> Client::progress(std::uint64_t step) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "only the rank's own process reports progress");
    if (!is_served()) return {};
    Lock lock = connection_.lock();
    if (connection_.closed()) return std::unexpected(*connection_.closed());
    if (has_daemon()) {  // goes with the next heartbeat
        progress_ = RankProgress{standing_.place().rank, step};
        return {};
    }
    const Bytes frame = encode(RankProgress{standing_.place().rank, step});
    lock.unlock();
    connection_.send(frame);
    return {};
}

}  // namespace dtrun::embedded
