#pragma once

#include "worker/stores/job_store.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace dtrun::stores {

/// What a session has asked of a JobStore, the client waits for no reply of, and the store has not
/// confirmed. Several may be under way together, but no more than a limit.
///
/// Thread: one. Lifetime: `store` outlives it; with it the confirmations are forgotten.
class UnconfirmedRequests {
public:
    /// \param was_full  is_full() until this came
    using Confirmed = std::function<void(const StoreReply& reply, bool was_full)>;
    /// \param confirmed  called for each request, from within ask() or later
    UnconfirmedRequests(JobStore& store, Confirmed confirmed);
    ~UnconfirmedRequests();
    UnconfirmedRequests(const UnconfirmedRequests&) = delete;
    UnconfirmedRequests& operator=(const UnconfirmedRequests&) = delete;

    /// \param bytes  that the request counts for: those on the wire
    void ask(const StoreRequest& request, std::size_t bytes);
    /// Nothing more is to be asked before a confirmation; after 48 requests, or 4 MiB.
    bool is_full() const;

private:
    struct Unconfirmed {
        std::uint64_t serial = 0;
        JobStore::Ticket ticket = 0;
        std::size_t bytes = 0;
    };
    void answered(std::uint64_t serial, const StoreReply& reply);

    JobStore& store_;
    const Confirmed confirmed_;
    std::vector<Unconfirmed> requests_;
    std::size_t bytes_ = 0;
    std::uint64_t last_serial_ = 0;
    std::uint64_t at_once_ = 0;  ///< confirmed by the call of JobStore::ask() that is not over
};

}  // namespace dtrun::stores
