#pragma once

#include <chrono>

namespace dtrun {

/// Interval at which both ends of a connection between hosts send heartbeats while something is going on.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{500};

/// The same where all is calm: nothing but time passes, and every peer was heard a moment ago. A peer that misses one is
/// asked twice more before it has been silent for kHeartbeatTimeout.
inline constexpr std::chrono::milliseconds kCalmHeartbeatInterval{1'250};

/// Of a head all of whose ranks are on its own machine, while nothing is going on: there the end of a process closes its
/// connections at once, so that nobody is lost for being silent, and beats tell next to nothing.
inline constexpr std::chrono::milliseconds kStillHeartbeatInterval{10'000};

/// Silence after which a peer is lost; --heartbeat-timeout changes it.
inline constexpr std::chrono::milliseconds kHeartbeatTimeout{3'000};

}  // namespace dtrun
