#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/job_policy.h"
#include "rendezvous/wire/message.h"

#include <cstdint>
#include <string>
#include <vector>

// Messages between a daemon and its jobs' members.

namespace dtrun {

/// A member offers slots for a daemon's job; the first frame of every connection, also after a
/// reconnect.
struct Enter {
    MemberId member{};        ///< random, never 0; the same after a reconnect
    bool again = false;       ///< it has been let in before
    std::uint64_t heard = 0;  ///< the last numbered frame of the daemon that it has
    std::string job_name;
    std::string name;         ///< of the host
    std::uint32_t slots = 0;  ///< ranks that it can run; 0: it only uses the store
    /// The job's, as its first member says. `ranks_min` 0: the slots of that one.
    JobPolicy policy;
    std::string address;                 ///< as Join's
    std::uint16_t free_port = 0;         ///< for MASTER_PORT, should it get rank 0
    std::vector<std::string> addresses;  ///< as Join's
    /// How long it tries to reconnect after its connection broke; its answers are kept that long.
    /// At most kReturnMsMax.
    std::uint32_t return_ms = 60'000;
    std::uint32_t node_rank = kAny;  ///< its place among those that enter; kAny: as they come

    static constexpr std::uint32_t kReturnMsMax = 86'400'000;
    static constexpr std::uint32_t kAny = UINT32_MAX;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("member", m.member), f("again", m.again), f("heard", m.heard);
        f("job_name", m.job_name), f("name", m.name), f("slots", m.slots);
        f("policy", m.policy);
        f("address", m.address), f("free_port", m.free_port), f("addresses", m.addresses);
        f("return_ms", m.return_ms), f("node_rank", m.node_rank);
    }
};

/// A frame that arrives once, whatever happens to connections, and to the daemon: who has sent it keeps it until the
/// other side has heard it, and sends it again on the next connection.
struct NumberedFrame {
    std::uint64_t number = 0;  ///< 1, 2, 3, …, for each direction
    std::string frame;         ///< with its header

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number), f("frame", m.frame);
    }
};

struct Heard {
    std::uint64_t number = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number);
    }
};

struct Leave {
    bool finished = false;  ///< all its ranks exited with 0: the job is ending, not shrinking
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("finished", m.finished), f("why", m.why);
    }
};

}  // namespace dtrun
