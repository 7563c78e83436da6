#pragma once

#include "base/result.h"
#include "rendezvous/wire/msgpack.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace dtrun {

/// What a daemon's job waits for, or has come to without whoever is told. It is a part of the heartbeats that the daemon
/// sends to members of such jobs, which is why it is encoded apart from Heartbeat, of which everybody else knows nothing
/// more.
struct Gathering {
    std::uint32_t ready = 0;    ///< ranks that could run now, or do
    std::uint32_t needed = 0;   ///< for a generation to begin; 0: one runs
    bool is_first = false;      ///< no generation has begun yet
    std::uint32_t left_ms = 0;  ///< until the job is given up; 0: no limit

    bool operator==(const Gathering&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("ready", m.ready), f("needed", m.needed);
        f("first", m.is_first), f("left_ms", m.left_ms);
    }
};

/// A whole heartbeat of a daemon, to a member. \param timeout_ms  see Heartbeat
Bytes encode_heartbeat(std::uint32_t timeout_ms, const Gathering& gathering);
/// What a daemon's heartbeat says of the member's job, if anything. Errc: invalid_input
Result<std::optional<Gathering>> gathering_in(std::string_view heartbeat);

}  // namespace dtrun
