#include "worker/client/requests.h"

#include "base/ids.h"
#include "rendezvous/wire/exchange_messages.h"

#include <algorithm>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

const char* const kNoAnswer = "no answer in time";
constexpr std::chrono::seconds kLearningTime{2};
/// Of it, what is left to who has waited in a lane for as long as its answer may be late.
constexpr std::chrono::seconds kLateLearningTime{1};
/// The other side keeps the last answer of a lane that is idle. Beyond these the lane is given up.
constexpr std::size_t kIdleLanesMax = 16;
constexpr std::size_t kLeftMax = 64;
constexpr std::size_t kIdleBytesMax = 16u << 10;
/// The memory of results of this size is used again.
constexpr std::size_t kLargeResults = 128u << 10;

bool has_lane(Op op) {
    return may_wait(op) && changes_something(op);
}

/// Of a change of which nobody has said how it has ended.
Failure unheard(Failure why) {
    if (why.code == DTRUN_TIMED_OUT) why.text = kNoAnswer;
    if (why.code == DTRUN_CANCELLED) why = {DTRUN_TIMED_OUT, why.text + ", and no answer"};
    why.text += "; it may have been done";
    return why;
}

/// Writes the header into a request's frame, before which nobody knew its number.
void set_header(Bytes& frame, const RequestHeader& header) {
    const Bytes headers = encode_request(header, {});
    std::copy(headers.begin() + FrameHeader::kBytes, headers.end(),
              frame.begin() + FrameHeader::kBytes);
}

}  // namespace

Outcome<Bytes> Requests::ask(Op op, Bytes frame, const WaitContext& context, std::uint64_t owner) {
    const auto call = std::make_shared<Call>();
    call->op = op;
    call->owner = owner;
    call->frame = std::make_shared<Bytes>(std::move(frame));
    Lock lock = connection_.lock();
    begin(call);
    connection_.flush(lock);
    const auto waited = connection_.wait(lock, *call, context);
    if (!waited && !call->done) {
        give_up(call, waited.error(), context.deadline);
        connection_.flush(lock);
        if (!call->done) (void)connection_.wait(lock, *call, {call->limit, {}});
        if (!call->done) end_unheard(call);
        connection_.flush(lock);
    }
    lock.unlock();
    return results_of(*call);
}

std::optional<Outcome<Bytes>> Requests::ask_directly(Op op, Bytes& frame,
                                                     const WaitContext& context) {
    {
        const Lock lock = connection_.lock();
        if (!may_go_directly()) return std::nullopt;
    }
    if (!direct_store_.begin(context)) return std::nullopt;
    auto results = ask_in_turn(op, frame, context);
    direct_store_.end();
    return results;
}

/// What this thread has asked before, or another that it knows of, has an answer.
bool Requests::may_go_directly() const {
    const bool is_any_under_way = !calls_.empty() || !lanes_.empty() || !turns_.empty();
    return !is_any_under_way && !connection_.closed() && unheard_in_ != membership_.generation();
}

/// For who has the local store's turn.
std::optional<Outcome<Bytes>> Requests::ask_in_turn(Op op, Bytes& frame,
                                                    const WaitContext& context) {
    set_header(frame, direct_store_.next_header(op));
    if (const auto sent = direct_store_.send(frame, context); !sent) {
        direct_store_.give_up();  // which has a part of it
        if (sent.error().code == DTRUN_CLOSED) return std::nullopt;
        return std::unexpected(sent.error());
    }
    auto reply = direct_store_.receive(context);
    if (!reply && changes_something(op) && reply.error().code != DTRUN_CLOSED) {
        const WaitContext learning{std::min(context.deadline, now() + kLearningTime), {}};
        if (auto late = direct_store_.receive(learning)) reply = late;
    }
    const Lock lock = connection_.lock();
    if (reply) {
        Call call;
        call.op = op;
        take(*reply, call);
        return results_of(call);
    }
    Failure why = reply.error();
    if (why.code == DTRUN_CLOSED && connection_.closed()) why = *connection_.closed();
    const bool is_lost = why.code == DTRUN_CLOSED;
    // Not after a change that nobody has heard of: what is asked here from now on is done after it, by an agent perhaps not.
    if (is_lost) direct_store_.give_up();
    if (changes_something(op)) return std::unexpected(unheard(std::move(why)));
    if (is_lost && !connection_.closed()) return std::nullopt;
    if (why.code == DTRUN_TIMED_OUT) why.text = kNoAnswer;
    return std::unexpected(std::move(why));
}

Outcome<std::uint64_t> Requests::submit(const Submission& submission, Bytes frame) {
    const auto call = std::make_shared<Call>();
    call->op = submission.op;
    call->owner = submission.owner;
    call->submission = submission;
    call->frame = std::make_shared<Bytes>(std::move(frame));
    Lock lock = connection_.lock();
    if (connection_.closed()) return std::unexpected(*connection_.closed());
    connection_.expect_others();
    call->number = ++last_number_;
    submitted_.emplace(call->number, call);
    set_limit(*call, submission.limit);
    begin(call);
    show();
    submission.more ? connection_.flush_if_much(lock) : connection_.flush(lock);
    return call->number;
}

Outcome<Requests::Completion> Requests::complete(const WaitContext& context) {
    Lock lock = connection_.lock();
    connection_.expect_others();
    const auto has_finished = [this] { return !finished_.empty(); };
    for (;;) {
        if (!has_finished()) connection_.flush(lock);
        if (first_limit() <= now()) {
            // Who stood still meanwhile reads what has come before it gives anything up.
            while (connection_.read_pending(lock)) {
            }
            end_late();
            connection_.flush(lock);
        }
        if (has_finished()) {
            Completion completion = take_finished();
            connection_.flush_if_much(lock);
            return completion;
        }
        show();  // a limit that has passed may have been of one that has ended before
        const Moment limit = first_limit();
        const auto has_changed = [&] { return has_finished() || first_limit() < limit; };
        const WaitContext until{std::min(context.deadline, limit), context.give_up};
        const auto waited = connection_.wait_until(lock, has_changed, until);
        if (waited) continue;
        if (waited.error().code != DTRUN_TIMED_OUT || context.over())
            return std::unexpected(waited.error());
    }
}

bool Requests::cancel(std::uint64_t number) {
    Lock lock = connection_.lock();
    const auto found = submitted_.find(number);
    if (found == submitted_.end()) return false;
    const CallPtr call = found->second;
    if (!call->given_up) give_up(call, {DTRUN_CANCELLED, "cancelled"}, call->limit);
    show();
    connection_.flush(lock);
    return true;
}

/// Sends it, or has it wait for its turn.
void Requests::begin(const CallPtr& call) {
    if (has_lane(call->op))
        take_lane(*call);
    else if (changes_something(call->op) && changes_ >= kChangesMax)
        return turns_.push_back(call);
    send(call);
}

void Requests::send(const CallPtr& call) {
    call->has_turn = changes_something(call->op) && !has_lane(call->op);
    if (call->has_turn) ++changes_;
    if (call->owner != 0 && !own_) {
        Call own;
        own.op = Op::own;
        own_ = std::make_shared<Bytes>(
            encode_request(header_for(own), StoreRequest{.op = Op::own}, 0));
        connection_.queue(own_);
    }
    set_header(*call->frame, header_for(*call));
    if (has_lane(call->op))
        lanes_.emplace(call->lane.client, call);
    else
        calls_.emplace(call->id, call);
    call->was_sent = connection_.is_open() && !connection_.closed();
    connection_.queue(call->frame);
}

/// The one that waits longest goes in its place.
void Requests::give_turn(Call& call) {
    if (!std::exchange(call.has_turn, false)) return;
    --changes_;
    if (turns_.empty()) return;
    const CallPtr next = turns_.front();
    turns_.pop_front();
    send(next);
}

void Requests::take_lane(Call& call) {
    if (idle_.empty()) {
        call.lane.client = random_id();
        return;
    }
    call.lane = idle_.back();
    idle_.pop_back();
}

/// Keeps the lane for others if nothing more can come over it; else the other side is told that it has ended.
void Requests::end_lane(Call& call, bool is_answered) {
    // Of the last ones without an answer, in case the other side did not hear that they were given up: a new
    // connection says so again, or they would still take what is pushed.
    const Bytes last = is_answered ? encode(Gone{call.lane.client}) : end_of_lane(call);
    if (!is_answered && call.cancel) {
        left_.push_back(*call.cancel + last);
        if (left_.size() > kLeftMax) left_.pop_front();
    }
    const bool is_idle = is_answered || !call.was_sent;
    if (is_idle && idle_.size() < kIdleLanesMax && call.results.size() <= kIdleBytesMax)
        idle_.push_back(call.lane);
    else
        connection_.queue(std::make_shared<Bytes>(last));
}

/// What one that was cancelled, and has no answer, may have given to its owner is given back.
Bytes Requests::end_of_lane(Call& call) const {
    const Bytes gone = encode(Gone{call.lane.client});
    if (!call.cancel || call.owner == 0) return gone;
    const StoreRequest take_back{.op = Op::cancel, .number = call.id, .owner = call.owner};
    return encode_request({call.lane.client, ++call.lane.last_id, 2, {}}, take_back, 0) + gone;
}

void Requests::finish(const CallPtr& call, bool is_answered) {
    if (call->id == 0) {
        std::erase(turns_, call);
    } else if (has_lane(call->op)) {
        lanes_.erase(call->lane.client);
        end_lane(*call, is_answered);
    } else {
        calls_.erase(call->id);
    }
    const bool is_done = is_answered && !call->failure && call->status == Status::ok;
    if (is_done) call->frame.reset();  // only what is said of failures needs it
    if (call->number != 0) {
        set_limit(*call, Moment::max());
        submitted_.erase(call->number);
        finished_.push_back(call);
        connection_.changed();
        show();
    }
    call->finish();
    give_turn(*call);
}

void Requests::fail(const CallPtr& call, Failure why) {
    if (call->was_sent && changes_something(call->op)) unheard_in_ = membership_.generation();
    call->failure = std::move(why);
    finish(call, false);
}

/// Nobody waits for it any more. It ends, or is asked until its limit how it has ended.
/// \param deadline  of who has waited
void Requests::give_up(const CallPtr& call, Failure why, Moment deadline) {
    const bool is_closed = connection_.closed().has_value();
    if (!call->was_sent || !changes_something(call->op)) {
        if (call->was_sent && why.code == DTRUN_TIMED_OUT) why.text = kNoAnswer;
        if (call->was_sent && !is_closed) connection_.queue(cancel_frame(*call));
        return fail(call, std::move(why));
    }
    call->given_up = std::move(why);
    if (is_closed) return end_unheard(call);
    Moment limit = now() + kLearningTime;
    if (deadline != Moment::max())
        limit = std::min(limit, deadline + (has_lane(call->op) ? kLateLearningTime : 0s));
    set_limit(*call, limit);
    if (!has_lane(call->op)) return;  // it is done soon
    call->cancel = cancel_frame(*call);
    connection_.queue(call->cancel);
}

/// Nobody has said how it has ended.
void Requests::end_unheard(const CallPtr& call) {
    const auto& closed = connection_.closed();
    const bool is_closed = closed && closed->code == DTRUN_CLOSED;
    fail(call, unheard(is_closed ? *closed : *call->given_up));
}

/// Of those that were submitted.
void Requests::end_late() {
    while (!limits_.empty() && limits_.begin()->first <= now()) {
        const CallPtr call = submitted_.at(limits_.begin()->second);
        if (call->given_up)
            end_unheard(call);
        else
            give_up(call, {DTRUN_TIMED_OUT, "timed out"}, call->limit);
    }
}

Moment Requests::first_limit() const {
    return limits_.empty() ? Moment::max() : limits_.begin()->first;
}

void Requests::set_limit(Call& call, Moment limit) {
    const bool was_submitted = call.number != 0;
    if (was_submitted && call.limit != Moment::max()) limits_.erase({call.limit, call.number});
    call.limit = limit;
    if (!was_submitted || limit == Moment::max()) return;
    const bool is_first = limit < first_limit();
    limits_.emplace(limit, call.number);
    if (is_first) connection_.changed();  // who completes waits until then
}

/// Tells who polls.
void Requests::show() {
    events_.show_requests(!finished_.empty(), first_limit());
}

Requests::Completion Requests::take_finished() {
    const CallPtr call = finished_.front();
    finished_.pop_front();
    show();
    return {call->number, call->submission, call->frame, results_of(*call)};
}

Result<void> Requests::on_reply(std::string_view payload) {
    const auto reply = decode_reply(payload);
    if (!reply) return std::unexpected(reply.error());
    const CallPtr call = find(reply->header);
    if (call == nullptr) return {};  // nobody waits for it any more
    take(*reply, *call);
    if (call->given_up && call->status == Status::cancelled) {
        call->failure = *call->given_up;
        if (call->failure->code == DTRUN_TIMED_OUT)
            call->failure->text.clear();  // as the store says it
    }
    finish(call, true);
    return {};
}

void Requests::take(const ReplyView& reply, Call& call) {
    call.status = reply.header.status;
    if (reply.results.size() >= kLargeResults)
        call.results = std::exchange(spare_, {});
    else if (!changes_something(call.op))
        spare_ = {};
    call.results = reply.results;
}

void Requests::reuse(Bytes results) {
    if (results.capacity() < kLargeResults) return;
    const Lock lock = connection_.lock();
    spare_ = std::move(results);
}

Requests::CallPtr Requests::find(const ReplyHeader& reply) const {
    if (reply.client == client_) {
        const auto call = calls_.find(reply.id);
        return call != calls_.end() ? call->second : nullptr;
    }
    const auto in_lane = lanes_.find(reply.client);
    return in_lane != lanes_.end() && in_lane->second->id == reply.id ? in_lane->second : nullptr;
}

void Requests::on_closed() {
    for (const auto& [number, call] : std::map(submitted_))
        give_up(call, *connection_.closed(), Moment::max());
}

void Requests::end_all(const Failure& why) {
    const std::deque<CallPtr> turns = std::exchange(turns_, {});
    std::vector<CallPtr> all(turns.begin(), turns.end());
    for (const auto& [id, call] : calls_) all.push_back(call);
    for (const auto& [client, call] : lanes_) all.push_back(call);
    for (const CallPtr& call : all) fail(call, why);
}

void Requests::add_unanswered(std::vector<Bytes>& frames) const {
    const auto add = [&](Call& call) {
        call.was_sent = true;
        frames.push_back(*call.frame);
        if (call.cancel) frames.push_back(*call.cancel);
    };
    if (own_) frames.push_back(*own_);
    for (const auto& [id, call] : calls_) add(*call);
    for (const auto& [client, call] : lanes_) add(*call);
    for (const Bytes& end : left_) frames.push_back(end);
}

void Requests::add_gone(std::vector<Bytes>& frames) const {
    frames.push_back(encode(Gone{client_}));
    for (const Lane& lane : idle_) frames.push_back(encode(Gone{lane.client}));
    for (const auto& [client, call] : lanes_) frames.push_back(encode(Gone{client}));
}

Outcome<Bytes> Requests::results_of(Call& call) const {
    if (call.failure) return std::unexpected(*call.failure);
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
            return failure(DTRUN_WRONG_TYPE, "{}",
                           call.op == Op::add ? "the key holds no number of 64 bits"
                                              : "the key holds something of another kind");
        case Status::refused:
            break;
    }
    const bool has_text = results.array() > 0;
    return failure(DTRUN_REFUSED, "{}", has_text ? results.bytes() : "refused");
}

/// Numbers a new request.
RequestHeader Requests::header_for(Call& call) {
    if (has_lane(call.op)) {
        call.id = ++call.lane.last_id;
        return {call.lane.client, call.id, 0, call.op};
    }
    call.id = ++last_id_;
    const std::uint64_t lowest = calls_.empty() ? call.id : calls_.begin()->first;
    return {client_, call.id, static_cast<std::uint32_t>(call.id - lowest), call.op};
}

/// Tells the other side that nobody waits for it any more.
std::shared_ptr<Bytes> Requests::cancel_frame(Call& call) {
    const StoreRequest cancel{.op = Op::cancel, .number = call.id};
    Call own;
    own.op = Op::cancel;
    const RequestHeader header = has_lane(call.op)
                                     ? RequestHeader{call.lane.client, ++call.lane.last_id, 1, {}}
                                     : header_for(own);
    return std::make_shared<Bytes>(encode_request(header, cancel, membership_.generation()));
}

}  // namespace dtrun::embedded
