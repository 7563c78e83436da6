#pragma once

#include "base/clock.h"
#include "worker/stores/job_store.h"
#include "worker/stores/session_failure.h"
#include "worker/stores/torch_operation.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace dtrun::stores {

/// The one request of a client that has a reply, from its start until that is in the output: puts
/// its questions to the store, one after the other, and consumes it in the input when it is done. One
/// that the client may cancel is consumed before its answer, as CANCEL_WAIT may stand behind it.
///
/// Thread: one. Lifetime: `store`, `failure` and `input` outlive it; with it the store forgets the
/// question.
class PendingRequest {
public:
    enum class Stage : std::uint8_t {
        none,     ///< there is no such request
        to_ask,   ///< the store is to be asked
        asked,    ///< nothing else is done before the answer
        waiting,  ///< as long as it takes
    };

    /// \param answered  called after each answer: there may be output, a failure, another question
    PendingRequest(JobStore& store, SessionFailure& failure, TcpStoreInput& input,
                   std::function<void()> answered);
    ~PendingRequest();
    PendingRequest(const PendingRequest&) = delete;
    PendingRequest& operator=(const PendingRequest&) = delete;

    Stage stage() const { return stage_; }
    /// \param operation  of the request that was found; only while there is none
    void start(std::unique_ptr<TorchOperation> operation);
    /// Asks the store. Only at Stage::to_ask.
    void ask();

    /// What the client waits for, at Stage::waiting. Valid until something else is done here.
    std::optional<TorchWaiting> waiting() const;
    /// Whether the client may cancel it, at Stage::waiting.
    bool can_be_cancelled() const { return operation_->can_be_cancelled(); }
    /// There is none any more, and the client gets no reply. Only at Stage::waiting.
    void cancel();

private:
    void answered(std::uint64_t serial, const StoreReply& reply);
    void take(const StoreReply& reply);
    void finish();

    JobStore& store_;
    SessionFailure& failure_;
    TcpStoreInput& input_;
    const std::function<void()> answered_;
    Stage stage_ = Stage::none;
    std::unique_ptr<TorchOperation> operation_;  ///< unless Stage::none
    JobStore::Ticket ticket_ = 0;
    std::uint64_t serial_ = 0;  ///< of the last question
    Deadline waits_since_{};
};

}  // namespace dtrun::stores
