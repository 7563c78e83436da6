#include "worker/stores/tcp_store_session.h"

#include "worker/stores/tcp_store_names.h"

#include <utility>

namespace dtrun::stores {
namespace {

constexpr std::size_t kBacklogBytesMax = 64u << 10;  // behind a request that is not answered

constexpr char kWaitCanceled = 1;  // a reply

}  // namespace

TcpStoreSession::TcpStoreSession(JobStore& store, Hooks hooks)
    : store_(store),
      hooks_(std::move(hooks)),
      input_(hooks_.has_idle_sibling),
      watches_(store, failure_, output_, [this] { answered(); }),
      unconfirmed_(
          store, [this](const StoreReply& reply, bool was_full) { confirmed(reply, was_full); }) {}

void TcpStoreSession::received(std::size_t bytes) {
    input_.received(bytes);
    run();
}

/// True also while a request is unanswered: we must see a client hang up, as it waits no more.
bool TcpStoreSession::wants_input() const {
    if (failure_ || !writable_ || output_.is_full()) return false;
    if (!operation_) return !unconfirmed_.is_full();
    return input_.backlog_bytes() < kBacklogBytesMax;
}

void TcpStoreSession::sent(std::size_t bytes) {
    output_.sent(bytes);
    if (output_.empty()) run();
}

void TcpStoreSession::set_writable(bool writable) {
    writable_ = writable;
    run();
}

void TcpStoreSession::reconsider() {
    if (input_.undecided()) run();
}

/// Takes steps while there are any.
void TcpStoreSession::run() {
    while (!failure_ && step()) {
    }
}

/// Goes on after an answer of the store.
void TcpStoreSession::answered() {
    run();
    hooks_.changed();
}

/// \return whether something was done
bool TcpStoreSession::step() {
    if (!writable_) return false;
    if (watches_.ask_next()) return true;
    if (query_) return may_wait_ && during_wait();
    if (output_.is_full()) return false;
    if (operation_) {
        ask();
        return true;
    }
    if (unconfirmed_.is_full() || !find_request()) return false;
    execute();
    return true;
}

bool TcpStoreSession::find_request() {
    const auto found = input_.find();
    if (!found) failure_.set(found.error());
    return found && *found;
}

void TcpStoreSession::execute() {
    const TorchRequest& request = input_.request();
    const auto waited_for = std::exchange(waited_for_, std::nullopt);
    switch (request.op) {
        case TorchOp::set:
            if (const auto rank = torch_init_rank(input_.field(0)); rank && hooks_.is_rank)
                hooks_.is_rank(*rank);
            return tell(Op::set);
        case TorchOp::append:
            return tell(Op::append);
        case TorchOp::multi_set:
            return tell(Op::multi_set);
        case TorchOp::push:
            return tell(Op::push);
        case TorchOp::validate:
            return input_.consume();
        case TorchOp::ping:
            pid_ = request.nonce;
            output_.put(request.nonce);
            return input_.consume();
        case TorchOp::cancel_wait:  // its WAIT was answered before this came
            output_.put(kWaitCanceled);
            return input_.consume();
        case TorchOp::watch:
            if (const auto added = watches_.add(input_.field(0)); !added)
                return failure_.set(added.error());
            return input_.consume();
        case TorchOp::wait:
            if (request.fields.size() == 1) waited_for_ = input_.field(0);
            break;
        default:
            break;
    }
    const bool waited_for_it =
        request.op == TorchOp::pop && waited_for && *waited_for == input_.field(0);
    const TorchOperation::Parts parts{input_, store_query_, unconfirmed_, output_};
    operation_ = TorchOperation::make(parts, waited_for_it);
}

/// Puts the operation's next question to the store. One that the client may cancel is consumed before its
/// answer, as CANCEL_WAIT may stand behind it.
void TcpStoreSession::ask() {
    const TorchOperation::Next next = operation_->next();
    if (next == TorchOperation::Next::done) return finish();
    may_wait_ = next == TorchOperation::Next::ask_wait;
    if (may_wait_) waits_since_ = Clock::now();
    query_ = store_.ask(operation_->asked(), [this](const StoreReply& reply) {
        query_.answered();
        take(reply);
        answered();
    });
    if (operation_->can_be_cancelled()) input_.consume();
}

void TcpStoreSession::take(const StoreReply& reply) {
    const bool may_be = reply.status == Status::refused && operation_->can_be_refused();
    if (!may_be && failure_.is_over_after(reply)) return;
    const auto done = operation_->take(reply);
    if (!done) return failure_.set(done.error());
    if (*done) finish();
}

void TcpStoreSession::finish() {
    if (!operation_->can_be_cancelled()) input_.consume();
    operation_.reset();
}

std::optional<TorchWaiting> TcpStoreSession::waiting() const {
    if (!query_ || !may_wait_) return {};
    TorchWaiting waiting = operation_->waiting();
    waiting.since = waits_since_;
    return waiting;
}

/// \return whether something was done
bool TcpStoreSession::during_wait() {
    if (!operation_->can_be_cancelled() || !find_request()) return false;
    const bool cancelled = input_.request().op == TorchOp::cancel_wait;
    const TorchDialect dialect = input_.dialect();
    // Clients older than CANCEL_WAIT end a wait by just sending another request.
    const bool ended = dialect == TorchDialect::legacy || dialect == TorchDialect::legacy_a;
    if (!cancelled && !ended) return false;
    query_.forget();
    operation_.reset();
    waited_for_.reset();
    if (!cancelled) return true;
    input_.consume();
    output_.put(kWaitCanceled);
    return true;
}

/// Asks what has no reply: the keys and values of the request.
void TcpStoreSession::tell(Op op) {
    unconfirmed_.ask(store_query_.begin(op, input_), input_.request_bytes());
    input_.consume();
}

void TcpStoreSession::confirmed(const StoreReply& reply, bool was_full) {
    if (!failure_.is_over_after(reply) && reply.status == Status::wrong_type)
        failure_.set({Errc::invalid_input, "a queue was used as a value, or a value as a queue"});
    if (was_full || failure_) answered();
}

}  // namespace dtrun::stores
