#pragma once

#include <chrono>

namespace dtrun {

/// Both ends of a connection between hosts send a heartbeat so often.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{500};

/// A peer that has been silent for so long is lost, unless --heartbeat-timeout says otherwise.
inline constexpr std::chrono::milliseconds kHeartbeatTimeout{3'000};

}  // namespace dtrun
