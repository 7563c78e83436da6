#pragma once

#include "base/result.h"

#include <chrono>
#include <cstdint>

namespace dtrun::transport {

/// Whether a host that could not be logged into may be there later (--wait-for-hosts).
bool may_come(Errc code);

/// What a host is to be ready with that has refused so.
const char* awaited(Errc code);

/// How long a host is tried, and which option says so.
struct Patience {
    std::chrono::milliseconds connect_timeout{};  ///< one that hangs up before anything was said
    std::chrono::milliseconds wait_for_hosts{};   ///< one that is not there yet
};

/// Why a host was given up, with how long it was tried. Errc: unreachable in place of one for which it was tried again
/// \param was_awaited  it was not there at first
Error given_up(Error why, const Patience& patience, bool was_awaited);

/// From a log-in that has failed to the next one: from 50 ms on, each twice as long, up to `last`; of many hosts not to all
/// at the same moment.
/// \param attempt  that has failed, from 0 on
/// \param host     another number for each
std::chrono::milliseconds pause_before(unsigned attempt, std::uint32_t host,
                                       std::chrono::milliseconds last);

/// Between log-ins to a host that may come, at most: a thousand of them that boot are not to keep this machine busy.
inline constexpr std::chrono::milliseconds kLastLongPause{5'000};

}  // namespace dtrun::transport
