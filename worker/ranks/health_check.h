#pragma once

#include "base/loop/asio.h"
#include "base/result.h"
#include "worker/ranks/rank_process.h"

#include <chrono>

namespace dtrun::ranks {

class Supervisor;

/// Runs a command that says whether this host can be used, as a helper of `processes`; it has no standard
/// input, and what it prints is not shown.
/// Errc: internal (it has not ended with 0, or cannot be started), timed_out (it was killed at the limit);
/// the message quotes the last line of its standard error
asio::awaitable<Result<void>> check_health(Supervisor& processes, RankCommand command,
                                           std::chrono::seconds limit);

}  // namespace dtrun::ranks
