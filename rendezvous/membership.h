#pragma once

#include "rendezvous/messages.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrun {

/// What is fixed about a static job before any host has joined.
struct JobPlan {
    std::vector<std::vector<RankSlot>> hosts;  ///< [host] its ranks, in order of local_rank
    std::uint32_t world_size = 0;
};

/// A host's answer, and the connection that it came over.
struct Arrival {
    Join join;
    std::string peer_address;  ///< the host's end of the connection, as the server sees it; numeric
    std::string server_address;  ///< the server's end
};

/// Who belongs to a job: a pure state machine, events in, decisions out. No sockets, no clock.
///
/// A static job is one whose smallest and largest size are the same: its first generation begins
/// when every host has joined, and a host that is lost afterwards cannot come back.
class Membership {
public:
    enum class Verdict {
        accepted,   ///< joined; others are missing
        complete,   ///< joined as the last one: a generation begins, see assignments()
        duplicate,  ///< this host has joined already, or had and was lost
        unknown,    ///< no such host in this job
    };

    explicit Membership(JobPlan plan);

    Verdict join(Arrival arrival);
    /// \return whether the host was a member
    bool lost(std::uint32_t host);

    std::uint64_t generation() const { return generation_; }  ///< 0 until the first one begins
    std::vector<std::uint32_t> missing() const;               ///< hosts that have not joined yet
    const std::optional<Arrival>& arrival(std::uint32_t host) const { return arrivals_[host]; }

    /// [host] what its ranks are told; only once a generation has begun.
    std::vector<Assign> assignments() const;

private:
    std::string master_address() const;

    JobPlan plan_;
    std::vector<std::optional<Arrival>> arrivals_;
    std::vector<bool> gone_;
    std::uint32_t joined_ = 0;
    std::uint64_t generation_ = 0;
};

}  // namespace dtrun
