#pragma once

#include <chrono>

namespace dtrun {

/// Both ends of a connection between hosts send a heartbeat so often.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{500};

}  // namespace dtrun
