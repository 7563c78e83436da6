#pragma once

#include "rendezvous/exchange/store.h"
#include "worker/stores/tcp_store_input.h"

#include <cstddef>
#include <string_view>

namespace dtrun::stores {

/// What is asked of a JobStore on behalf of a client of torch's. A key of torch's is kept there as
/// "torch/k" and the key, and what holds who waits at a BARRIER as "torch/b" and the key.
///
/// One object is kept for all questions of a session, for its memory.
///
/// Thread: one. Lifetime: what request() views must be there until the store was asked.
class TorchQuestion {
public:
    static constexpr std::string_view kKeys = "torch/k";
    static constexpr std::string_view kBarriers = "torch/b";

    /// A new question, without anything else. \return request(), for what has no key before it
    StoreRequest& begin(Op op);
    /// The question has this one key.
    StoreRequest& begin(Op op, std::string_view prefix, std::string_view key);
    /// Its keys are the fields of the request that was found.
    StoreRequest& begin_with_keys(Op op, const TcpStoreInput& input);
    /// The same, where keys and values take turns.
    StoreRequest& begin_with_pairs(Op op, const TcpStoreInput& input);

    const StoreRequest& request() const { return request_; }

private:
    void take_keys(const TcpStoreInput& input, std::size_t stride);

    StoreRequest request_;
    Bytes keys_;  ///< with their prefixes
};

}  // namespace dtrun::stores
