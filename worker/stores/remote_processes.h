#pragma once

#include "base/loop/peer_user.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::stores {

/// Finds the user to whom a connection from another host of the job belongs. That host's agent knows, and is
/// asked through the job's store, which has a queue for each address.
///
/// Thread: one. Lifetime: `store` outlives it.
class RemoteProcesses {
public:
    using Told = std::function<void(PeerUser)>;

    explicit RemoteProcesses(JobStore& store) : queries_(store) {}

    /// The store is about to begin a generation: who has asked in the one before is not told any more.
    void begin() { queries_.forget_all(); }

    /// Answers other hosts' questions about connections from `address`, which is numeric and of this machine.
    /// To be called once in each generation of the store.
    void answer_for(const std::string& address);

    /// \param there, here  the ends of a connection from another host of the job to this one
    /// \param told  called later, unless the generation ends first; unknown if nobody answers
    void ask(const tcp::endpoint& there, const tcp::endpoint& here, Told told);

private:
    void answer(const std::string& address, std::string_view question);
    void push(const std::string& key, std::string_view value);
    using Take = std::function<void(std::optional<std::string>)>;
    void pop(const std::string& key, std::uint64_t timeout_ms, Take take);

    PendingQueries queries_;
    std::uint64_t questions_ = 0;
};

}  // namespace dtrun::stores
