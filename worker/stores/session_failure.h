#pragma once

#include "base/result.h"
#include "rendezvous/exchange/store.h"

#include <optional>

namespace dtrun::stores {

/// Why a session is over, if it is: the first reason counts, and the client is told nothing more.
///
/// Thread: one.
class SessionFailure {
public:
    const std::optional<Error>& error() const { return error_; }
    explicit operator bool() const { return error_.has_value(); }

    void set(Error why);
    /// Looks whether a reply of the store ends the session, which then has failed: closed, when the
    /// generation is over; invalid_input, when the store refused what the client had asked.
    /// \return whether the session is over, by this reply or before it
    bool is_over_after(const StoreReply& reply);

private:
    std::optional<Error> error_;
};

}  // namespace dtrun::stores
