#pragma once

#include <chrono>

namespace dtrun {

/// Interval at which both ends of a connection between hosts send heartbeats.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{500};

/// Silence after which a peer is lost; --heartbeat-timeout changes it.
inline constexpr std::chrono::milliseconds kHeartbeatTimeout{3'000};

}  // namespace dtrun
