#pragma once

#include "worker/stores/job_store.h"

#include <cstddef>
#include <functional>
#include <utility>

namespace dtrun::stores {

/// What a session has asked of a JobStore, the client waits for no reply of, and the store has not
/// confirmed. Several may be under way together, but no more than a limit.
///
/// Thread: one. Lifetime: `store` outlives it; with it the confirmations are forgotten.
class UnconfirmedRequests {
public:
    /// \param was_full  is_full() until this came
    using Confirmed = std::function<void(const StoreReply& reply, bool was_full)>;
    /// \param confirmed  called for each request, later
    UnconfirmedRequests(JobStore& store, Confirmed confirmed)
        : queries_(store), confirmed_(std::move(confirmed)) {}

    /// \param bytes  that the request counts for: those on the wire
    void ask(const StoreRequest& request, std::size_t bytes) {
        bytes_ += bytes;
        queries_.ask(request, [this, bytes](const StoreReply& reply) {
            const bool was_full = is_full(queries_.size() + 1);
            bytes_ -= bytes;
            confirmed_(reply, was_full);
        });
    }
    /// Nothing more is to be asked before a confirmation; after 48 requests, or 4 MiB.
    bool is_full() const { return is_full(queries_.size()); }

private:
    static constexpr std::size_t kRequestsMax = 48;
    static constexpr std::size_t kBytesMax = 4u << 20;

    bool is_full(std::size_t requests) const {
        return requests >= kRequestsMax || bytes_ >= kBytesMax;
    }

    PendingQueries queries_;
    const Confirmed confirmed_;
    std::size_t bytes_ = 0;
};

}  // namespace dtrun::stores
