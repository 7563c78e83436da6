#include "worker/client/requests.h"

#include "base/ids.h"
#include "rendezvous/wire/exchange_messages.h"

#include <algorithm>
#include <utility>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

const char* const kNoAnswer = "no answer in time";
constexpr std::chrono::seconds kLearningTime{2};
/// Of it, what is left to a pop that has waited for its answer for as long as it may be late.
constexpr std::chrono::seconds kLateLearningTime{1};
constexpr std::chrono::seconds kCancelTime{1};
/// The other side keeps the last answer of a lane that is idle. Beyond these the lane is given up.
constexpr std::size_t kIdleLanesMax = 16;
constexpr std::size_t kLeftMax = 64;
constexpr std::size_t kIdleBytesMax = 16u << 10;

/// Writes the header into a request's frame, before which nobody knew its number.
void set_header(Bytes& frame, const RequestHeader& header) {
    const Bytes headers = encode_request(header, {});
    std::copy(headers.begin() + FrameHeader::kBytes, headers.end(),
              frame.begin() + FrameHeader::kBytes);
}

}  // namespace

Outcome<Bytes> Requests::ask(Op op, Bytes frame, const WaitContext& context) {
    Call call;
    call.op = op;
    call.frame = std::move(frame);
    Lock lock = connection_.lock();
    if (op == Op::pop) {
        take_lane(call);
    } else if (changes_something(op)) {
        if (auto turn = take_turn(lock, context); !turn) return std::unexpected(turn.error());
        call.has_turn = true;
    }
    auto answered = send_and_wait(lock, call, context);
    const bool in_doubt = !answered && !call.done && call.was_sent;
    if (in_doubt && changes_something(op))
        answered = learn(lock, call, context, std::move(answered.error()));
    if (in_doubt && !answered && answered.error().code == DTRUN_TIMED_OUT && !changes_something(op))
        answered.error().text = kNoAnswer;
    const bool is_left = in_doubt && !changes_something(op) && !connection_.closed();
    const bool lane_ends = !end(call);
    lock.unlock();
    if (is_left) send_cancel(call.id, answered.error().code == DTRUN_CANCELLED);
    if (lane_ends) (void)connection_.send(encode(Gone{call.lane.client}), {now(), {}});
    if (answered) return results_of(call);
    return std::unexpected(answered.error());
}

/// With the lock, which is let go meanwhile.
Outcome<void> Requests::send_and_wait(Lock& lock, Call& call, const WaitContext& context) {
    lock.unlock();
    auto sent = connection_.send_next(
        [&] {
            set_header(call.frame, header_for(call));
            if (call.op == Op::pop)
                pops_.emplace(call.lane.client, &call);
            else
                calls_.push_back(&call);
            call.was_sent = connection_.is_open();
            return std::string_view(call.frame);
        },
        context);
    lock.lock();
    if (!sent && !call.done) return sent;
    return connection_.wait(lock, call, context);
}

/// Finds out how a change has ended for which we wait no longer.
/// \param why  we do not
Outcome<void> Requests::learn(Lock& lock, Call& call, const WaitContext& context, Failure why) {
    const bool is_pop = call.op == Op::pop;
    Moment end = now() + kLearningTime;
    if (context.deadline != Moment::max())
        end = std::min(end, context.deadline + (is_pop ? kLateLearningTime : 0s));
    if (is_pop && !connection_.closed()) {
        const StoreRequest cancel{.op = Op::cancel, .number = call.id};
        call.cancel = encode_request({call.lane.client, ++call.lane.last_id, 1, Op::cancel}, cancel,
                                     membership_.generation());
        const Bytes frame = call.cancel;
        lock.unlock();
        (void)connection_.send(frame, {end, {}});
        lock.lock();
    }
    const auto told = connection_.wait(lock, call, {end, {}});
    if (told && call.status != Status::cancelled) return {};
    if (told && why.code == DTRUN_TIMED_OUT) why.text.clear();  // as if the store had said so
    if (told) return std::unexpected(std::move(why));
    if (call.failure) return told;
    if (told.error().code == DTRUN_CLOSED) why = told.error();
    if (why.code == DTRUN_TIMED_OUT) why.text = kNoAnswer;
    if (why.code == DTRUN_CANCELLED) why = {DTRUN_TIMED_OUT, "interrupted, and no answer"};
    why.text += "; it may have been done";
    return std::unexpected(std::move(why));
}

/// \return false: its lane is given up, which the other side is to be told
bool Requests::end(Call& call) {
    give_turn(call);
    if (call.op != Op::pop) {
        std::erase(calls_, &call);
        return true;
    }
    pops_.erase(call.lane.client);
    const bool is_answered = !call.was_sent || (call.done && !call.failure);
    if (!call.done && !call.cancel.empty()) keep_end(call);
    if (!is_answered || idle_.size() >= kIdleLanesMax || call.results.size() > kIdleBytesMax)
        return false;
    idle_.push_back(call.lane);
    return true;
}

/// Of the last pops that had no answer, in case the other side did not hear that they were given up: a new
/// connection says so again, or they would still take what is pushed.
void Requests::keep_end(const Call& call) {
    left_.push_back(call.cancel + encode(Gone{call.lane.client}));
    if (left_.size() > kLeftMax) left_.pop_front();
}

void Requests::take_lane(Call& call) {
    if (idle_.empty()) {
        call.lane.client = random_id();
        return;
    }
    call.lane = idle_.back();
    idle_.pop_back();
}

Result<void> Requests::on_reply(std::string_view payload) {
    const auto reply = decode_reply(payload);
    if (!reply) return std::unexpected(reply.error());
    Call* const call = find(reply->header);
    if (call == nullptr || call->done) return {};  // nobody waits for it any more
    call->status = reply->header.status;
    call->results = reply->results;
    call->finish();
    give_turn(*call);
    return {};
}

Requests::Call* Requests::find(const ReplyHeader& reply) const {
    if (reply.client == client_) {
        const auto call = std::ranges::lower_bound(calls_, reply.id, {}, &Call::id);
        return call != calls_.end() && (*call)->id == reply.id ? *call : nullptr;
    }
    const auto pop = pops_.find(reply.client);
    return pop != pops_.end() && pop->second->id == reply.id ? pop->second : nullptr;
}

void Requests::end_all(const Failure& why) {
    const auto end_one = [&](Call* call) {
        if (call->done) return;
        call->failure = why;
        call->finish();
    };
    for (Call* call : calls_) end_one(call);
    for (const auto& [client, call] : pops_) end_one(call);
}

void Requests::add_unanswered(std::vector<Bytes>& frames) const {
    const auto add = [&](Call* call) {
        if (call->done) return;
        call->was_sent = true;
        frames.push_back(call->frame);
        if (!call->cancel.empty()) frames.push_back(call->cancel);
    };
    for (Call* call : calls_) add(call);
    for (const auto& [client, call] : pops_) add(call);
    for (const Bytes& end : left_) frames.push_back(end);
}

void Requests::add_gone(std::vector<Bytes>& frames) const {
    frames.push_back(encode(Gone{client_}));
    for (const Lane& lane : idle_) frames.push_back(encode(Gone{lane.client}));
    for (const auto& [client, call] : pops_) frames.push_back(encode(Gone{client}));
}

/// Lets at most kChangesMax requests that change something be under way.
Outcome<void> Requests::take_turn(Lock& lock, const WaitContext& context) {
    if (changes_ < kChangesMax) {
        ++changes_;
        return {};
    }
    ServerConnection::Waiter turn;
    turns_.push_back(&turn);
    const auto waited = connection_.wait(lock, turn, context);
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
            return std::unexpected(Failure{DTRUN_TIMED_OUT, {}});
        case Status::stale:
            return failure(DTRUN_STALE, "generation {} is over", membership_.generation());
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

/// Numbers a new request.
RequestHeader Requests::header_for(Call& call) {
    if (call.op == Op::pop) {
        call.id = ++call.lane.last_id;
        return {call.lane.client, call.id, 0, call.op};
    }
    call.id = ++last_id_;
    const std::uint64_t lowest = calls_.empty() ? call.id : calls_.front()->id;
    return {client_, call.id, static_cast<std::uint32_t>(call.id - lowest), call.op};
}

/// Tells the other side that nobody waits for that request any more: of one whose time is over it knows.
void Requests::send_cancel(std::uint64_t id, bool was_interrupted) {
    const StoreRequest cancel{.op = Op::cancel, .number = id};
    Call call;
    call.op = Op::cancel;
    (void)connection_.send_next(
        [&] {
            call.frame = encode_request(header_for(call), cancel, membership_.generation());
            return std::string_view(call.frame);
        },
        {now() + (was_interrupted ? kCancelTime : 0s), {}});
}

}  // namespace dtrun::embedded
