#pragma once

#include "base/asio.h"
#include "base/deadline.h"
#include "base/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun {

/// Threads for name look-ups, which the system has no other way to wait for.
using Pool = asio::thread_pool;

/// Numeric addresses of a name. What is late has nothing left to say, so the pool may wait for it.
/// Errc: not_found, unreachable (no name server), timed_out, cancelled
asio::awaitable<Result<std::vector<asio::ip::address>>> look_up(Pool& pool, std::string name,
                                                                Deadline deadline);

/// Tries one address after the other; the message is about the last one, and names port but not host.
/// \param addresses  at least one
/// Errc: unreachable, timed_out, cancelled
asio::awaitable<Result<tcp::socket>> connect_any(std::vector<asio::ip::address> addresses,
                                                 std::uint16_t port, Deadline deadline);

}  // namespace dtrun
