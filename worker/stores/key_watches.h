#pragma once

#include "base/result.h"
#include "worker/stores/job_store.h"
#include "worker/stores/session_failure.h"
#include "worker/stores/tcp_store_output.h"

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::stores {

/// The keys that a client watches (WATCH_KEY). The client is told that a watch has begun, and then
/// of each change what the value was and is.
///
/// Thread: one. Lifetime: `store`, `failure` and `out` outlive it; with it the watches end.
class KeyWatches {
public:
    /// \param answered  called after each answer of the store: there may be output, a failure, and
    ///                  something for ask_next()
    KeyWatches(JobStore& store, SessionFailure& failure, TcpStoreOutput& out,
               std::function<void()> answered);

    /// The key is watched once ask_next() is called. Errc: invalid_input (too many)
    Result<void> add(std::string_view key);
    /// Asks the store for the next change of a key, unless it was asked for all of them.
    /// \return whether it asked
    bool ask_next();

private:
    struct Watch {
        std::string key;                          ///< as on the wire
        std::optional<std::uint64_t> revision{};  ///< that the client knows
        std::optional<std::string> value{};
        PendingQuery query{};
    };
    void changed(Watch& watch, const StoreReply& reply);
    void tell(const Watch& watch, const std::optional<std::string>& now);

    JobStore& store_;
    SessionFailure& failure_;
    TcpStoreOutput& out_;
    const std::function<void()> answered_;
    std::list<Watch> watches_;
    std::vector<Watch*> to_ask_;
};

}  // namespace dtrun::stores
