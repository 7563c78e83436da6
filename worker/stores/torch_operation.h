#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/exchange/store.h"
#include "worker/stores/tcp_store_input.h"
#include "worker/stores/tcp_store_output.h"
#include "worker/stores/unconfirmed_requests.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace dtrun::stores {

/// What is asked of a JobStore on behalf of a client of torch's. A key of torch's is kept there as
/// "torch/k" and the key, and what holds who waits at a BARRIER as "torch/b" and the key.
///
/// One object is kept for all questions of a session, for its memory.
///
/// Thread: one. Lifetime: what request() views must be there until the store was asked.
class StoreQuery {
public:
    static constexpr std::string_view kKeys = "torch/k";
    static constexpr std::string_view kBarriers = "torch/b";

    /// A new question, without anything else. \return request(), for what has no key before it
    StoreRequest& begin(Op op);
    /// The question has this one key.
    StoreRequest& begin(Op op, std::string_view prefix, std::string_view key);
    /// Its keys are the fields of the request that was found; if it adds something, keys and values take turns.
    StoreRequest& begin(Op op, const TcpStoreInput& input);

    const StoreRequest& request() const { return request_; }

private:
    StoreRequest request_;
    Bytes keys_;  ///< with their prefixes
};

/// What a client waits for.
struct TorchWaiting {
    std::string_view key{};  ///< the first one
    std::size_t keys = 1;
    bool barrier = false;
    bool pop = false;
    std::optional<std::uint32_t> for_rank{};  ///< the highest one of which a key is waited for
    Deadline since{};
};

/// One request of torch's that has a reply: what a JobStore is asked for it, question after question,
/// and what the client is told of the answers. Asks nothing by itself.
///
/// Thread: one. Lifetime: the parts outlive it.
class TorchOperation {
public:
    /// What an operation works with.
    struct Parts {
        const TcpStoreInput& input;  ///< in which its request was found
        StoreQuery& query;           ///< where it puts what is to be asked
        UnconfirmedRequests& aside;  ///< asks what the client hears nothing of
        TcpStoreOutput& out;
    };
    enum class Next : std::uint8_t {
        ask,       ///< there is a question, which is answered at once
        ask_wait,  ///< there is one, which is answered when something happens
        done,      ///< there is none, and the client has its reply
    };

    /// The operation of the request that was found.
    /// \param waited_for_it  of a pop: its client has just waited for an item
    static std::unique_ptr<TorchOperation> make(const Parts& parts, bool waited_for_it);

    virtual ~TorchOperation() = default;
    TorchOperation(const TorchOperation&) = delete;
    TorchOperation& operator=(const TorchOperation&) = delete;

    /// First, and after each answer with which it is not done.
    virtual Next next() = 0;
    const StoreRequest& asked() const { return parts_.query.request(); }  ///< by next()
    /// An answer that is not to end the session. \return whether the client has its reply now.
    /// Errc: invalid_input (the connection is to be closed)
    virtual Result<bool> take(const StoreReply& reply) = 0;

    /// Whether the client may cancel it. Then its request is not looked at after the first next().
    virtual bool can_be_cancelled() const { return false; }
    /// Whether a question may be refused without that being the client's fault.
    virtual bool can_be_refused() const { return false; }
    /// After ask_wait. The key is valid as long as the operation, and its request if it cannot be
    /// cancelled.
    virtual TorchWaiting waiting() const { return {}; }

protected:
    explicit TorchOperation(const Parts& parts) : parts_(parts) {}

    const TorchRequest& request() const { return parts_.input.request(); }
    std::string_view field(std::size_t index) const { return parts_.input.field(index); }
    /// The question is about the request's first key.
    StoreRequest& query(Op op);
    TcpStoreOutput& out() const { return parts_.out; }

    const Parts parts_;
};

}  // namespace dtrun::stores
