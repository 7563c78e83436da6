#pragma once

#include "rendezvous/message.h"

#include <cstdint>
#include <string>
#include <vector>

// How a member takes part in a job of a daemon.

namespace dtrun {

/// Slots that want to take part in a daemon's job; also the first frame after a lost connection.
struct Enter {
    std::uint64_t member = 0;      ///< random, never 0; who it is after a reconnect
    std::uint64_t generation = 0;  ///< whose ranks it runs; 0: none
    std::uint64_t paused = 0;      ///< that it has accepted, and waits for
    std::string job_name;
    std::string name;             ///< of the host
    std::uint32_t slots = 0;      ///< ranks that it can run; 0: only looks into the store
    std::uint32_t ranks_min = 0;  ///< of the job; 0: as many as `slots` of the first member
    std::uint32_t ranks_max = 0;  ///< of the job; 0: as ranks_min
    std::uint32_t join_timeout_ms = 600'000;  ///< for ranks_min ranks to come together
    std::uint32_t last_call_ms = 2'000;       ///< for more of them, once there are ranks_min
    std::string address;                      ///< as Join's
    std::uint16_t free_port = 0;              ///< for MASTER_PORT, should it get rank 0
    std::vector<std::string> addresses;       ///< as Join's
    /// For so long it tries to come back when its connection has broken; what it was answered last is
    /// kept until then. At most kReturnMsMax.
    std::uint32_t return_ms = 60'000;

    static constexpr std::uint32_t kReturnMsMax = 86'400'000;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("member", m.member), f("generation", m.generation), f("paused", m.paused);
        f("job_name", m.job_name), f("name", m.name), f("slots", m.slots);
        f("ranks_min", m.ranks_min), f("ranks_max", m.ranks_max);
        f("join_timeout_ms", m.join_timeout_ms), f("last_call_ms", m.last_call_ms);
        f("address", m.address), f("free_port", m.free_port), f("addresses", m.addresses);
        f("return_ms", m.return_ms);
    }
};

struct Propose {
    std::uint64_t generation = 0;  ///< that is coming
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

struct Leave {
    bool finished = false;  ///< every rank of it ended with 0: the job is done, not smaller
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("finished", m.finished), f("why", m.why);
    }
};

}  // namespace dtrun
