#pragma once

#include "base/loop/asio.h"
#include "base/result.h"
#include "worker/ranks/rank_process.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace dtrun::ranks {

class Supervisor;

/// What has come of a command that ran beside the ranks.
struct HelperEnd {
    std::optional<int> status;  ///< as of waitpid(); nothing: it was killed at the limit
    std::string out;            ///< its standard output, the first bytes
    std::string err;            ///< its standard error, the last 4 KiB or more
};

/// Runs a command to its end as a helper of `processes`, without standard input; at the limit it is killed,
/// and its process group with it. It never waits for us to read.
/// \param out_bytes_max  of its standard output that are kept
/// Errc: internal (it could not be started)
asio::awaitable<Result<HelperEnd>> run_helper(Supervisor& processes, RankCommand command,
                                              std::chrono::milliseconds limit,
                                              std::size_t out_bytes_max);

/// ": " and the last line of a text that says something, or nothing.
std::string last_words(std::string_view text);

}  // namespace dtrun::ranks
