#include "worker/stores/tcp_store_session.h"

#include "rendezvous/msgpack.h"
#include "worker/stores/tcp_store_names.h"

#include <algorithm>
#include <cstring>

namespace dtrun::stores {
namespace {

constexpr std::string_view kKeys = "torch/k";
constexpr std::string_view kBarriers = "torch/b";

constexpr std::size_t kRoomBytesMin = 1u << 10;
constexpr std::size_t kInBytesMin = 2u << 10;
constexpr std::size_t kInBytesKept = 128u << 10;
constexpr std::size_t kOutBytesKept = 128u << 10;
constexpr std::size_t kOutBytesMax = 1u << 20;       // then nothing new is begun
constexpr std::size_t kBacklogBytesMax = 64u << 10;  // behind a request that is not answered
constexpr std::size_t kToldMax = 48;
constexpr std::size_t kToldBytesMax = 4u << 20;
constexpr std::uint64_t kPageKeys = 100'000;
constexpr std::uint64_t kPopHeldMs = 300'000;

// Replies of one byte.
constexpr char kReady = 0, kNotReady = 1;
constexpr char kStopWaiting = 0, kWaitCanceled = 1;
constexpr char kKeyUpdated = 0, kKeyCreated = 1, kKeyDeleted = 2;
constexpr char kCallbackRegistered = 3;

}  // namespace

TcpStoreSession::TcpStoreSession(JobStore& store, Hooks hooks)
    : store_(store), hooks_(std::move(hooks)), parser_(hooks_.has_idle_sibling) {}

TcpStoreSession::~TcpStoreSession() {
    for (const Told& told : told_) store_.forget(told.ticket);
    for (const auto& [serial, watch] : watches_) store_.forget(watch.ticket);
    if (stage_ == Stage::asked || stage_ == Stage::waiting) store_.forget(ticket_);
}

/// The buffer grows with what has come, not with what is announced.
std::span<char> TcpStoreSession::room() {
    const std::size_t kept = end_ - begin_;
    std::size_t wanted = in_bytes_;
    if (kept == 0 && in_bytes_ > kInBytesKept) wanted = 0;
    if (wanted - std::min(kept, wanted) < kRoomBytesMin) wanted = std::max(kInBytesMin, kept * 2);
    if (wanted != in_bytes_) {
        auto larger = std::make_unique_for_overwrite<char[]>(wanted);
        if (kept > 0) std::memcpy(larger.get(), in_.get() + begin_, kept);
        in_ = std::move(larger);
        in_bytes_ = wanted;
    } else if (in_bytes_ - end_ < kRoomBytesMin && begin_ > 0) {
        std::memmove(in_.get(), in_.get() + begin_, kept);
    } else {
        return {in_.get() + end_, in_bytes_ - end_};
    }
    begin_ = 0;
    end_ = kept;
    return {in_.get() + end_, in_bytes_ - end_};
}

void TcpStoreSession::received(std::size_t bytes) {
    end_ += bytes;
    has_spoken_ |= bytes > 0;
    run();
}

/// True also while a request is unanswered: we must see a client hang up, as it waits no more.
bool TcpStoreSession::wants_input() const {
    if (failure_ || !writable_ || out_.size() >= kOutBytesMax) return false;
    if (stage_ == Stage::none) return !told_too_much_;
    return end_ - begin_ < request_bytes_ + kBacklogBytesMax;
}

void TcpStoreSession::sent(std::size_t bytes) {
    if (bytes < out_.size()) {
        out_.erase(0, bytes);
        return;
    }
    if (out_.capacity() > kOutBytesKept)
        out_ = Bytes();
    else
        out_.clear();
    run();
}

void TcpStoreSession::set_writable(bool writable) {
    writable_ = writable;
    run();
}

void TcpStoreSession::reconsider() {
    if (parser_.undecided()) run();
}

std::optional<TcpStoreSession::Waiting> TcpStoreSession::waiting() const {
    if (stage_ != Stage::waiting) return {};
    return Waiting{wait_key_,           wait_keys_, op_ == TorchOp::barrier,
                   op_ == TorchOp::pop, wait_rank_, wait_since_};
}

void TcpStoreSession::fail_with(Errc code, std::string why) {
    if (failure_) return;
    failure_ = Error{code, std::move(why)};
}

/// Takes steps while there are any. A call from within a step returns at once: an answer that comes
/// while the store is asked changes the state, and the outer loop goes on from there.
void TcpStoreSession::run() {
    if (std::exchange(running_, true)) return;
    while (!failure_ && step()) {
    }
    running_ = false;
}

/// \return whether something was done
bool TcpStoreSession::step() {
    if (!writable_) return false;
    if (!to_watch_.empty()) {
        const std::uint64_t serial = to_watch_.back();
        to_watch_.pop_back();
        ask_watch(serial);
        return true;
    }
    if (stage_ == Stage::asked) return false;
    if (stage_ == Stage::waiting) return during_wait();
    if (out_.size() >= kOutBytesMax) return false;
    if (stage_ == Stage::to_ask) {
        ask_part();
        return true;
    }
    told_too_much_ = told_.size() >= kToldMax || told_bytes_ >= kToldBytesMax;
    if (told_too_much_ || !find_request()) return false;
    execute();
    return true;
}

bool TcpStoreSession::find_request() {
    if (request_bytes_ > 0) return true;
    if (begin_ == end_) return false;
    const auto found = parser_.next({in_.get() + begin_, end_ - begin_}, request_bytes_);
    if (!found) fail_with(found.error().code, found.error().message);
    return found.has_value() && request_bytes_ > 0;
}

void TcpStoreSession::consume() {
    begin_ += std::exchange(request_bytes_, 0);
}

std::string_view TcpStoreSession::field(std::size_t index) const {
    const TorchRequest::Field& at = parser_.request().fields[index];
    return {in_.get() + begin_ + at.at, at.bytes};
}

template <class T>
void TcpStoreSession::put(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out_.append(bytes, sizeof value);
}

void TcpStoreSession::put_bytes(std::string_view bytes) {
    put<std::uint64_t>(bytes.size());
    out_ += bytes;
}

void TcpStoreSession::new_request(Op op) {
    request_.op = op;
    request_.keys.clear();
    request_.values.clear();
    request_.expected.reset();
    request_.timeout_ms = 0;
}

void TcpStoreSession::take_key(std::string_view prefix, std::string_view key) {
    scratch_.assign(prefix);
    scratch_ += key;
    request_.keys.push_back(scratch_);
}

/// \param stride  2: keys and values take turns
void TcpStoreSession::take_keys(std::size_t stride) {
    const auto& fields = parser_.request().fields;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < fields.size(); i += stride) bytes += kKeys.size() + fields[i].bytes;
    scratch_.clear();
    scratch_.reserve(bytes);  // so that the views stay valid
    for (std::size_t i = 0; i < fields.size(); i += stride) {
        const std::size_t at = scratch_.size();
        scratch_ += kKeys;
        scratch_ += field(i);
        request_.keys.push_back(std::string_view(scratch_).substr(at));
        if (stride == 2) request_.values.push_back(field(i + 1));
    }
}

void TcpStoreSession::execute() {
    const TorchRequest& request = parser_.request();
    const bool waited_for_it = std::exchange(waited_for_one_, false) &&
                               request.op == TorchOp::pop && field(0) == wait_key_;
    switch (request.op) {
        case TorchOp::set:
            if (const auto rank = torch_init_rank(field(0)); rank && hooks_.is_rank)
                hooks_.is_rank(*rank);
            new_request(Op::set);
            return tell();
        case TorchOp::append:
            new_request(Op::append);
            return tell();
        case TorchOp::multi_set:
            new_request(Op::multi_set);
            return tell();
        case TorchOp::push:
            new_request(Op::push);
            return tell();
        case TorchOp::validate:
            return consume();
        case TorchOp::ping:
            pid_ = request.nonce;
            put(request.nonce);
            return consume();
        case TorchOp::cancel_wait:  // its WAIT was answered before this came
            put(kWaitCanceled);
            return consume();
        case TorchOp::watch:
            return add_watch();
        case TorchOp::wait:
            return execute_wait();
        case TorchOp::barrier:
            return execute_barrier();
        case TorchOp::pop:
            return execute_pop(waited_for_it);
        case TorchOp::get:
        case TorchOp::compare_set:
        case TorchOp::add:
        case TorchOp::check:
        case TorchOp::count:
        case TorchOp::erase:
        case TorchOp::multi_get:
        case TorchOp::length:
        case TorchOp::list:
            return start(request.op);
    }
}

/// What has no reply: request_ has the operation, the rest is in the bytes.
void TcpStoreSession::tell() {
    take_keys(2);
    ask_aside(request_bytes_);
    consume();
}

/// Asks request_, of whose answer the client hears nothing.
void TcpStoreSession::ask_aside(std::size_t bytes) {
    const std::uint64_t serial = ++last_serial_;
    told_at_once_ = 0;
    const JobStore::Ticket ticket =
        store_.ask(request_, [this, serial](const StoreReply& reply) { told(serial, reply); });
    if (told_at_once_ == serial) return;
    told_.push_back({serial, ticket, bytes});
    told_bytes_ += bytes;
}

void TcpStoreSession::told(std::uint64_t serial, const StoreReply& reply) {
    const auto at = std::ranges::find(told_, serial, &Told::serial);
    if (at == told_.end()) {
        told_at_once_ = serial;
    } else {
        told_bytes_ -= at->bytes;
        told_.erase(at);
    }
    if (!is_refused(reply) && reply.status == Status::wrong_type)
        fail_with(Errc::invalid_input, "a queue was used as a value, or a value as a queue");
    if (running_ || (!told_too_much_ && !failure_)) return;
    run();
    hooks_.changed();
}

void TcpStoreSession::start(TorchOp op) {
    op_ = op;
    part_ = 0;
    next_ = 0;
    stage_ = Stage::to_ask;
}

void TcpStoreSession::finish() {
    // A wait's bytes are gone already: CANCEL_WAIT may stand behind them.
    if (op_ != TorchOp::wait && op_ != TorchOp::barrier) consume();
    stage_ = Stage::none;
}

void TcpStoreSession::execute_wait() {
    const auto& fields = parser_.request().fields;
    wait_keys_ = fields.size();
    wait_key_ = fields.empty() ? std::string_view() : field(0);
    wait_rank_.reset();
    for (std::size_t i = 0; i < fields.size(); ++i)
        if (const auto rank = torch_init_rank(field(i)))
            wait_rank_ = std::max(wait_rank_.value_or(0), *rank);
    start(TorchOp::wait);
}

void TcpStoreSession::execute_barrier() {
    wait_key_ = field(0);
    wait_keys_ = 1;
    wait_rank_.reset();
    barrier_size_ = parser_.request().number;
    start(TorchOp::barrier);
    consume();
}

/// Carries out a pop. A blocking pop is a WAIT and then this; another client may have taken the
/// item in between: this one then waits for the next, as its caller wanted to.
void TcpStoreSession::execute_pop(bool waited_for_it) {
    start(TorchOp::pop);
    part_ = waited_for_it;
    wait_keys_ = 1;
    wait_rank_.reset();
}

/// \return whether something was done
bool TcpStoreSession::during_wait() {
    if (op_ == TorchOp::pop || !find_request()) return false;
    const TorchDialect dialect = parser_.dialect();
    if (parser_.request().op == TorchOp::cancel_wait) {
        give_up_waiting();
        consume();
        put(kWaitCanceled);
        return true;
    }
    // Clients older than CANCEL_WAIT end a wait by just sending another request.
    if (dialect != TorchDialect::legacy && dialect != TorchDialect::legacy_a) return false;
    give_up_waiting();
    return true;
}

void TcpStoreSession::give_up_waiting() {
    store_.forget(ticket_);
    stage_ = Stage::none;
}

/// Asks request_, for the client to be answered.
void TcpStoreSession::ask(Stage stage) {
    stage_ = stage;
    const std::uint64_t serial = ++last_serial_;
    serial_ = serial;
    if (stage == Stage::waiting) wait_since_ = Clock::now();
    ticket_ =
        store_.ask(request_, [this, serial](const StoreReply& reply) { answered(serial, reply); });
}

void TcpStoreSession::ask_part() {
    switch (op_) {
        case TorchOp::get:
            new_request(Op::get);
            take_key(kKeys, field(0));
            return ask(Stage::asked);
        case TorchOp::add:
            new_request(Op::add);
            take_key(kKeys, field(0));
            request_.delta = parser_.request().number;
            return ask(Stage::asked);
        case TorchOp::check:
            new_request(Op::check);
            take_keys(1);
            return ask(Stage::asked);
        case TorchOp::wait:
            new_request(Op::wait);
            take_keys(1);
            request_.timeout_ms = kForeverMs;
            ask(Stage::waiting);
            return consume();
        case TorchOp::erase:
            if (parser_.dialect() == TorchDialect::modern) {
                new_request(Op::erase);
                take_key(kBarriers, field(0));
                ask_aside(0);
            }
            new_request(Op::erase);
            take_key(kKeys, field(0));
            return ask(Stage::asked);
        case TorchOp::length:
            new_request(Op::length);
            take_key(kKeys, field(0));
            return ask(Stage::asked);
        case TorchOp::pop:
            new_request(Op::pop);
            take_key(kKeys, field(0));
            request_.timeout_ms = part_ == 0 ? 0 : kPopHeldMs;
            return ask(part_ == 0 ? Stage::asked : Stage::waiting);
        case TorchOp::compare_set:
            return ask_compare_set();
        case TorchOp::multi_get:
            return ask_multi_get();
        case TorchOp::count:
        case TorchOp::list:
            return ask_page();
        case TorchOp::barrier:
            return ask_barrier();
        default:
            return finish();
    }
}

void TcpStoreSession::answered(std::uint64_t serial, const StoreReply& reply) {
    const bool expected = stage_ == Stage::asked || stage_ == Stage::waiting;
    if (!expected || serial != serial_) return;  // cancelled
    take_answer(reply);
    if (running_) return;
    run();
    hooks_.changed();
}

/// Whether the store would not do it at all; then this connection is over.
bool TcpStoreSession::is_refused(const StoreReply& reply) {
    if (reply.status == Status::stale) {
        fail_with(Errc::closed, "the generation is over");
    } else if (reply.status == Status::refused) {
        PackReader in(reply.results);
        in.array();
        fail_with(Errc::invalid_input, fmt::format("refused: {}", in.bytes()));
    }
    return failure_.has_value();
}

void TcpStoreSession::take_answer(const StoreReply& reply) {
    if (op_ == TorchOp::multi_get) return take_multi_get(reply);
    if (is_refused(reply)) return;
    if (op_ == TorchOp::compare_set) return take_compare_set(reply);
    if (op_ == TorchOp::count || op_ == TorchOp::list) return take_page(reply);
    if (op_ == TorchOp::barrier) return take_barrier(reply);
    if (op_ == TorchOp::pop) return take_pop(reply);
    const bool ok = reply.status == Status::ok;
    PackReader in(reply.results);
    in.array();
    switch (op_) {
        case TorchOp::get:
            put_bytes(ok ? in.bytes() : std::string_view());
            break;
        case TorchOp::add:
            if (!ok)
                return fail_with(Errc::invalid_input, fmt::format("add to {}, which is no number",
                                                                  shown_torch_key(field(0))));
            put(in.integer());
            break;
        case TorchOp::check:
            put(in.boolean() ? kReady : kNotReady);
            break;
        case TorchOp::erase:
            put<std::int64_t>(in.boolean());
            break;
        case TorchOp::length:
            put<std::int64_t>(ok ? in.integer() : 0);
            break;
        case TorchOp::wait:
            put(kStopWaiting);
            waited_for_one_ = wait_keys_ == 1;
            break;
        default:
            break;
    }
    finish();
}

/// Nothing expected means that the key is missing, or empty: the store compares with one of these
/// at a time.
void TcpStoreSession::ask_compare_set() {
    new_request(Op::compare_set);
    take_key(kKeys, field(0));
    if (!field(1).empty() || part_ == 1) request_.expected = field(1);
    request_.values.push_back(field(2));
    ask(Stage::asked);
}

void TcpStoreSession::take_compare_set(const StoreReply& reply) {
    if (reply.status == Status::wrong_type)
        return fail_with(Errc::invalid_input, fmt::format("compare_set of {}, which is a queue",
                                                          shown_torch_key(field(0))));
    PackReader in(reply.results);
    in.array();
    const bool was_set = in.boolean();
    const bool missing = in.nil();
    const std::string_view now = missing ? std::string_view() : in.bytes();
    if (!was_set && field(1).empty() && now.empty()) {
        part_ = missing ? 0 : 1;
        stage_ = Stage::to_ask;
        return;
    }
    if (was_set)
        put_bytes(field(2));
    else
        put_bytes(missing ? field(1) : now);
    finish();
}

/// All at once; where one is missing, or they are too many for one reply, one after the other.
void TcpStoreSession::ask_multi_get() {
    const std::size_t keys = parser_.request().fields.size();
    if (next_ == keys) return finish();
    if (part_ == 0) {
        new_request(Op::multi_get);
        take_keys(1);
    } else {
        new_request(Op::get);
        take_key(kKeys, field(next_));
    }
    ask(Stage::asked);
}

void TcpStoreSession::take_multi_get(const StoreReply& reply) {
    if (reply.status == Status::stale) {
        is_refused(reply);
        return;
    }
    const bool ok = reply.status == Status::ok;
    PackReader in(reply.results);
    in.array();
    if (part_ == 1) {
        put_bytes(ok ? in.bytes() : std::string_view());
        ++next_;
        stage_ = Stage::to_ask;
        return;
    }
    if (!ok) {
        part_ = 1;
        stage_ = Stage::to_ask;
        return;
    }
    for (std::uint32_t left = in.array(); left > 0; --left) put_bytes(in.bytes());
    finish();
}

void TcpStoreSession::ask_page() {
    new_request(Op::list);
    request_.keys.push_back(kKeys);
    request_.after = keys_.empty() ? std::string_view() : std::string_view(keys_.back());
    request_.number = kPageKeys;
    ask(Stage::asked);
}

void TcpStoreSession::take_page(const StoreReply& reply) {
    PackReader in(reply.results);
    in.array();
    if (op_ == TorchOp::count) keys_.clear();
    std::uint32_t left = in.array();
    counted_ += left;
    keys_.reserve(keys_.size() + (op_ == TorchOp::list ? left : 1));
    for (; left > 0; --left) {
        const std::string_view key = in.bytes();
        if (op_ == TorchOp::list || left == 1) keys_.emplace_back(key);
    }
    if (in.boolean() && !keys_.empty()) {
        stage_ = Stage::to_ask;
        return;
    }
    put(static_cast<std::int64_t>(counted_));
    if (op_ == TorchOp::list)
        for (const std::string& key : keys_) put_bytes(std::string_view(key).substr(kKeys.size()));
    keys_ = {};
    counted_ = 0;
    finish();
}

/// Enters a barrier: the last client lets the others go, who wait for a key that torch's clients do
/// not know.
void TcpStoreSession::ask_barrier() {
    if (part_ == 0) {
        new_request(Op::add);
        take_key(kKeys, wait_key_);
        request_.delta = 1;
        return ask(Stage::asked);
    }
    if (part_ == 2) {
        new_request(Op::set);
        take_key(kBarriers, wait_key_);
        request_.values.push_back("1");
        ask_aside(0);
        put(kStopWaiting);
        return finish();
    }
    new_request(Op::wait);
    take_key(kBarriers, wait_key_);
    request_.timeout_ms = kForeverMs;
    ask(Stage::waiting);
}

void TcpStoreSession::take_barrier(const StoreReply& reply) {
    if (part_ == 1) {
        put(kStopWaiting);
        return finish();
    }
    if (reply.status != Status::ok)
        return fail_with(Errc::invalid_input,
                         fmt::format("barrier {}: the key has a value that is no number",
                                     shown_torch_key(wait_key_)));
    PackReader in(reply.results);
    in.array();
    part_ = in.integer() < barrier_size_ ? 1 : 2;
    stage_ = Stage::to_ask;
}

void TcpStoreSession::take_pop(const StoreReply& reply) {
    const bool ok = reply.status == Status::ok;
    put<std::int64_t>(ok);  // of the length before that, clients want to know whether it was 0
    if (ok) {
        PackReader in(reply.results);
        in.array();
        put_bytes(in.bytes());
    }
    finish();
}

void TcpStoreSession::add_watch() {
    constexpr std::size_t kWatchesMax = 1'024;
    if (watches_.size() == kWatchesMax)
        return fail_with(Errc::invalid_input,
                         fmt::format("more than {} watched keys", kWatchesMax));
    const std::uint64_t serial = ++last_serial_;
    watches_.emplace(serial, Watch{std::string(field(0))});
    to_watch_.push_back(serial);
    consume();
}

/// Watches a key. The first request is answered at once, as no key has the revision that it names.
void TcpStoreSession::ask_watch(std::uint64_t serial) {
    Watch& watch = watches_.at(serial);
    new_request(Op::watch);
    take_key(kKeys, watch.key);
    request_.number = watch.revision.value_or(~std::uint64_t{0});
    request_.timeout_ms = kForeverMs;
    watch.ticket =
        store_.ask(request_, [this, serial](const StoreReply& reply) { watched(serial, reply); });
}

void TcpStoreSession::watched(std::uint64_t serial, const StoreReply& reply) {
    Watch& watch = watches_.at(serial);
    if (!is_refused(reply)) {
        PackReader in(reply.results);
        in.array();
        const std::uint64_t revision = in.uint();
        std::optional<std::string> now;
        if (!in.nil()) now = in.bytes();
        if (!watch.revision) {
            put(kCallbackRegistered);
        } else if (now || watch.value) {
            put(!watch.value ? kKeyCreated : now ? kKeyUpdated : kKeyDeleted);
            put_bytes(watch.key);
            put_bytes(watch.value.value_or(""));
            put_bytes(now.value_or(""));
        }
        watch.revision = revision;
        watch.value = std::move(now);
        to_watch_.push_back(serial);
    }
    if (running_) return;
    run();
    hooks_.changed();
}

}  // namespace dtrun::stores
