#pragma once

#include "rendezvous/exchange/store.h"

#include <cstdint>
#include <functional>

namespace dtrun::stores {

/// A job's keys and values in its current generation, as the servers of foreign protocols see them:
/// the same requests and replies, whether the store is in this process or at the other end of the
/// tree.
///
/// Thread: one.
class JobStore {
public:
    using Answer = std::function<void(const StoreReply&)>;
    using Ticket = std::uint64_t;

    virtual ~JobStore() = default;

    /// Does `request` after all that were asked before it. `request` is not looked at after the call.
    /// \param answer  called once, from within this call or later, unless forget() comes first; it may
    ///                ask again
    virtual Ticket ask(const StoreRequest& request, Answer answer) = 0;

    /// Nobody wants that answer any more; what waits for it ends. Idempotent.
    virtual void forget(Ticket ticket) = 0;
};

}  // namespace dtrun::stores
