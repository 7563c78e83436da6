#include "rendezvous/exchange_messages.h"
#include "worker/client/client.h"

#include <algorithm>
#include <array>

namespace dtrun::embedded {
namespace {

/// How long an answer may be late before we stop waiting for it, besides the time that a daemon's
/// lost connection has to come back.
constexpr std::int64_t kAnswerGraceMs = 10'000;
constexpr std::size_t kHeaderBytes = FrameHeader::kBytes + RequestHeader::kBytes;

/// Writes both headers into the space in front of the arguments.
void put_headers(Bytes& frame, const RequestHeader& request) {
    const Bytes headers = encode_request(request, {});
    std::ranges::copy(headers, frame.begin());
    const auto payload_bytes = static_cast<std::uint32_t>(frame.size() - FrameHeader::kBytes);
    std::ranges::copy(encode_header({FrameType::request, payload_bytes}), frame.begin());
}

}  // namespace

Bytes Client::start_request() {
    return Bytes(kHeaderBytes, '\0');
}

/// Lets at most kChangesMax requests that change something be under way.
Outcome<void> Client::take_turn(Lock& lock, const Patience& patience) {
    if (changes_ < kChangesMax) {
        ++changes_;
        return {};
    }
    Waiter turn;
    turns_.push_back(&turn);
    const auto waited = wait(lock, turn, patience);
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

Outcome<Bytes> Client::request(Op op, Bytes arguments, std::int64_t timeout_ms,
                               std::function<bool()> give_up) {
    if (!is_served()) return std::unexpected(unserved());
    if (arguments.size() > FrameHeader::kPayloadBytesMax)
        return failure(DTRUN_REFUSED, "a request of {} bytes, more than {}", arguments.size(),
                       FrameHeader::kPayloadBytesMax);
    const std::int64_t grace_ms =
        kAnswerGraceMs + (has_daemon() ? surroundings_.daemon->timeout_ms : 0);
    const Patience patience{timeout_ms < 0 ? Moment::max() : moment_after(timeout_ms + grace_ms),
                            std::move(give_up)};
    if (auto started = ensure_started(patience); !started) return std::unexpected(started.error());

    Call call;
    call.frame = std::move(arguments);
    const bool changes = changes_something(op);
    Lock lock(mutex_);
    if (changes)
        if (auto turn = take_turn(lock, patience); !turn) return std::unexpected(turn.error());
    lock.unlock();
    {
        const std::lock_guard sending(send_mutex_);
        lock.lock();
        call.id = ++last_id_;
        const std::uint64_t lowest = calls_.empty() ? call.id : calls_.front()->id;
        put_headers(call.frame,
                    {client_id_, call.id, static_cast<std::uint32_t>(call.id - lowest), op});
        calls_.push_back(&call);
        const bool connected = connected_;
        lock.unlock();
        if (connected) (void)socket_.send(call.frame);  // a broken one is found by who receives
    }
    lock.lock();
    const auto answered = wait(lock, call, patience);
    std::erase(calls_, &call);
    if (changes) give_turn();
    if (answered) return results_of(call);

    const bool closed = closed_.has_value();
    lock.unlock();
    if (!closed) send_cancel(call.id);
    return std::unexpected(answered.error());
}

/// Nobody waits for that request any more.
void Client::send_cancel(std::uint64_t id) {
    Bytes frame = start_request();
    PackWriter writer(frame);
    writer.array(2);
    writer.uint(generation());
    writer.uint(id);
    const std::lock_guard sending(send_mutex_);
    {
        const Lock lock(mutex_);
        const std::uint64_t own = ++last_id_;
        const std::uint64_t lowest = calls_.empty() ? own : calls_.front()->id;
        put_headers(frame, {client_id_, own, static_cast<std::uint32_t>(own - lowest), Op::cancel});
    }
    send_if_connected(frame);
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
    const std::lock_guard sending(send_mutex_);
    send_if_connected(frame);
}

Outcome<std::vector<FenceEntry>> Client::fence(std::string_view name,
                                               std::optional<std::string_view> bytes,
                                               std::int64_t timeout_ms,
                                               std::function<bool()> give_up) {
    FenceCall call;
    Patience patience{moment_after(timeout_ms), std::move(give_up)};
    Lock lock(mutex_);
    const std::uint32_t rank = place_.rank;
    call.fence.generation = generation_;
    call.fence.name = name;
    call.fence.round = rounds_[call.fence.name]++;
    if (bytes) call.fence.entries.push_back({rank, Bytes(*bytes)});
    if (has_daemon() && !is_member())
        call.of_group =
            GroupFence{client_id_, place_.job,        call.fence.name,    call.fence.round,
                       rank,       place_.world_size, call.fence.entries, {}};
    lock.unlock();
    call.frame = call.of_group ? encode(*call.of_group) : encode(call.fence);
    {
        const std::lock_guard sending(send_mutex_);
        lock.lock();
        fences_.push_back(&call);
        lock.unlock();
        send_if_connected(call.frame);
    }
    lock.lock();
    auto ended = wait(lock, call, patience);
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
        ended = wait(lock, call, patience);
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
    Lock lock(mutex_);
    if (closed_) return std::unexpected(*closed_);
    if (has_daemon()) {  // goes with the next heartbeat
        progress_ = RankProgress{place_.rank, step};
        return {};
    }
    const Bytes frame = encode(RankProgress{place_.rank, step});
    lock.unlock();
    const std::lock_guard sending(send_mutex_);
    send_if_connected(frame);
    return {};
}

}  // namespace dtrun::embedded
