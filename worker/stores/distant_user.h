#pragma once

#include "base/loop/peer_user.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dtrun::stores {

/// Finds the user to whom a connection from another host of the job belongs. That host's agent knows, and is
/// asked through the job's store, which has a queue for each address.
///
/// Thread: one. Lifetime: `store` outlives it.
class DistantUsers {
public:
    using Told = std::function<void(PeerUser)>;

    explicit DistantUsers(JobStore& store) : store_(store) {}

    /// Answers other hosts' questions about connections from `address`, which is numeric and of this machine.
    /// To be called once in each generation of the store.
    void answer_for(const std::string& address);

    /// \param there, here  the ends of a connection from another host of the job to this one
    /// \param told  called later, unless the generation ends first; unknown if nobody answers
    void ask(const tcp::endpoint& there, const tcp::endpoint& here, Told told);

private:
    void answer(const std::string& address, std::string_view question);

    JobStore& store_;
    std::uint64_t questions_ = 0;
};

}  // namespace dtrun::stores
