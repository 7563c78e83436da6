#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/message.h"

#include <cstdint>
#include <string>
#include <vector>

// Messages between a daemon and its jobs' members.

namespace dtrun {

/// A member offers slots for a daemon's job; the first frame of every connection, also after a
/// reconnect.
struct Enter {
    MemberId member{};             ///< random, never 0; the same after a reconnect
    std::uint64_t generation = 0;  ///< generation whose ranks it runs; 0: none
    std::uint64_t paused = 0;      ///< proposed generation that it has accepted; 0: none
    std::string job_name;
    std::string name;                         ///< of the host
    std::uint32_t slots = 0;                  ///< ranks that it can run; 0: it only uses the store
    std::uint32_t ranks_min = 0;              ///< of the job; 0: `slots` of the first member
    std::uint32_t ranks_max = 0;              ///< of the job; 0: as ranks_min
    std::uint32_t join_timeout_ms = 600'000;  ///< for ranks_min ranks to come together
    std::uint32_t last_call_ms = 2'000;       ///< for more of them, once there are ranks_min
    std::string address;                      ///< as Join's
    std::uint16_t free_port = 0;              ///< for MASTER_PORT, should it get rank 0
    std::vector<std::string> addresses;       ///< as Join's
    /// How long it tries to reconnect after its connection broke; its answers are kept that long.
    /// At most kReturnMsMax.
    std::uint32_t return_ms = 60'000;

    // Of the job, as its first member says.
    std::vector<std::uint32_t> allowed;          ///< numbers of ranks, ascending; empty: any
    std::uint32_t elastic_timeout_ms = 600'000;  ///< for ranks_min ranks to be there again
    std::uint32_t resets_max = kAny;             ///< how many generations may follow the first
    /// How many ranks may fail, after which all start again. kAny: whose rank fails leaves.
    std::uint32_t restarts_max = kAny;
    std::uint32_t node_rank = kAny;  ///< its place among those that enter; kAny: as they come

    static constexpr std::uint32_t kReturnMsMax = 86'400'000;
    static constexpr std::uint32_t kAny = UINT32_MAX;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("member", m.member), f("generation", m.generation), f("paused", m.paused);
        f("job_name", m.job_name), f("name", m.name), f("slots", m.slots);
        f("ranks_min", m.ranks_min), f("ranks_max", m.ranks_max);
        f("join_timeout_ms", m.join_timeout_ms), f("last_call_ms", m.last_call_ms);
        f("address", m.address), f("free_port", m.free_port), f("addresses", m.addresses);
        f("return_ms", m.return_ms);
        f("allowed", m.allowed), f("elastic_timeout_ms", m.elastic_timeout_ms);
        f("resets_max", m.resets_max), f("restarts_max", m.restarts_max);
        f("node_rank", m.node_rank);
    }
};

struct Propose {
    std::uint64_t generation = 0;  ///< the coming generation
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("why", m.why);
    }
};

struct Accept {
    std::uint64_t generation = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation);
    }
};

/// A rank has failed; the member stays, for the daemon to say what follows.
struct RankFailed {
    std::uint64_t generation = 0;  ///< whose rank it was
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("why", m.why);
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
