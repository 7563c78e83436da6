#include "worker/stores/pending_request.h"

#include <utility>

namespace dtrun::stores {

PendingRequest::PendingRequest(JobStore& store, SessionFailure& failure, TcpStoreInput& input,
                               std::function<void()> answered)
    : store_(store), failure_(failure), input_(input), answered_(std::move(answered)) {}

PendingRequest::~PendingRequest() {
    if (stage_ == Stage::asked || stage_ == Stage::waiting) store_.forget(ticket_);
}

void PendingRequest::start(std::unique_ptr<TorchOperation> operation) {
    operation_ = std::move(operation);
    stage_ = Stage::to_ask;
}

/// The answer may come within the call of the store, and be the last one.
void PendingRequest::ask() {
    const TorchOperation::Next next = operation_->next();
    if (next == TorchOperation::Next::done) return finish();
    stage_ = next == TorchOperation::Next::ask ? Stage::asked : Stage::waiting;
    if (stage_ == Stage::waiting) waits_since_ = Clock::now();
    const bool consumed_early = operation_->can_be_cancelled();
    const std::uint64_t serial = ++serial_;
    ticket_ = store_.ask(operation_->asked(),
                         [this, serial](const StoreReply& reply) { answered(serial, reply); });
    if (consumed_early) input_.consume();
}

void PendingRequest::answered(std::uint64_t serial, const StoreReply& reply) {
    const bool expected = stage_ == Stage::asked || stage_ == Stage::waiting;
    if (!expected || serial != serial_) return;  // cancelled
    take(reply);
    answered_();
}

void PendingRequest::take(const StoreReply& reply) {
    const bool may_be = reply.status == Status::refused && operation_->can_be_refused();
    if (!may_be && failure_.is_over_after(reply)) return;
    const auto done = operation_->take(reply);
    if (!done) return failure_.set(done.error());
    if (*done)
        finish();
    else
        stage_ = Stage::to_ask;
}

void PendingRequest::finish() {
    if (!operation_->can_be_cancelled()) input_.consume();
    operation_.reset();
    stage_ = Stage::none;
}

std::optional<TorchWaiting> PendingRequest::waiting() const {
    if (stage_ != Stage::waiting) return {};
    TorchWaiting waiting = operation_->waiting();
    waiting.since = waits_since_;
    return waiting;
}

void PendingRequest::cancel() {
    store_.forget(ticket_);
    operation_.reset();
    stage_ = Stage::none;
}

}  // namespace dtrun::stores
