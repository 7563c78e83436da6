#include "worker/client/requests.h"

#include <algorithm>
#include <utility>

namespace dtrun::embedded {
namespace {

/// Writes the header into a request's frame, before which nobody knew its number.
void set_header(Bytes& frame, const RequestHeader& header) {
    const Bytes headers = encode_request(header, {});
    std::copy(headers.begin() + FrameHeader::kBytes, headers.end(),
              frame.begin() + FrameHeader::kBytes);
}

}  // namespace

Outcome<Bytes> Requests::ask(Op op, Bytes frame, const Patience& patience) {
    Call call;
    call.frame = std::move(frame);
    call.has_turn = changes_something(op);
    Lock lock = connection_.lock();
    if (call.has_turn)
        if (auto turn = take_turn(lock, patience); !turn) return std::unexpected(turn.error());
    lock.unlock();
    connection_.send_next([&] {
        call.id = ++last_id_;
        set_header(call.frame, header_for(call.id, op));
        calls_.push_back(&call);
        return std::string_view(call.frame);
    });
    lock.lock();
    const auto answered = connection_.wait(lock, call, patience);
    std::erase(calls_, &call);
    give_turn(call);
    if (answered) return results_of(call);

    const bool closed = connection_.closed().has_value();
    lock.unlock();
    if (!closed) send_cancel(call.id);
    return std::unexpected(answered.error());
}

Result<void> Requests::on_reply(std::string_view payload) {
    const auto reply = decode_reply(payload);
    if (!reply) return std::unexpected(reply.error());
    const auto call = std::ranges::lower_bound(calls_, reply->header.id, {}, &Call::id);
    if (call == calls_.end() || (*call)->id != reply->header.id || (*call)->done)
        return {};  // nobody waits for it any more
    (*call)->status = reply->header.status;
    (*call)->results = reply->results;
    (*call)->finish();
    give_turn(**call);
    return {};
}

void Requests::end_all(const Failure& why) {
    for (Call* call : calls_) {
        if (call->done) continue;
        call->failure = why;
        call->finish();
    }
}

void Requests::add_unanswered(std::vector<Bytes>& frames) const {
    for (const Call* call : calls_)
        if (!call->done) frames.push_back(call->frame);
}

/// Lets at most kChangesMax requests that change something be under way.
Outcome<void> Requests::take_turn(Lock& lock, const Patience& patience) {
    if (changes_ < kChangesMax) {
        ++changes_;
        return {};
    }
    Connection::Waiter turn;
    turns_.push_back(&turn);
    const auto waited = connection_.wait(lock, turn, patience);
    if (!waited) std::erase(turns_, &turn);
    return waited;
}

/// Done by who reads the answer, not by the caller: who reads may be waiting for a turn, and would
/// go on reading if it came later. A call that fails has an answer yet to come, which is read.
void Requests::give_turn(Call& call) {
    if (!std::exchange(call.has_turn, false)) return;
    if (turns_.empty()) {
        --changes_;
        return;
    }
    turns_.front()->finish();  // it is under way in our place
    turns_.pop_front();
}

Outcome<Bytes> Requests::results_of(Call& call) const {
    PackReader results(call.results);
    switch (call.status) {
        case Status::ok:
            return std::move(call.results);
        case Status::not_found:
            return failure(DTRUN_NOT_FOUND, "no such key");
        case Status::timed_out:
            return failure(DTRUN_TIMED_OUT, "timed out");
        case Status::stale:
            return failure(DTRUN_STALE, "generation {} is over", standing_.generation());
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

/// Makes the header of a new request; the lock is held.
RequestHeader Requests::header_for(std::uint64_t id, Op op) const {
    const std::uint64_t lowest = calls_.empty() ? id : calls_.front()->id;
    return {client_, id, static_cast<std::uint32_t>(id - lowest), op};
}

/// Tells the other side that nobody waits for that request any more.
void Requests::send_cancel(std::uint64_t id) {
    const StoreRequest cancel{.op = Op::cancel, .number = id};
    Bytes frame;
    connection_.send_next([&] {
        frame = encode_request(header_for(++last_id_, Op::cancel), cancel, standing_.generation());
        return std::string_view(frame);
    });
}

}  // namespace dtrun::embedded
