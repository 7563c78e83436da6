#pragma once

#include "lab/rank/memory.h"
#include "lab/rank/rank_comm.h"

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace dtrun::lab::rank {

/// How messages between two ranks are measured. The names are OSU's: osu_latency and osu_bw.
struct PairsOptions {
    static constexpr std::size_t kLatencyBytes = 4;
    static constexpr std::size_t kBandwidthBytes = 1u << 20;
    static constexpr std::size_t kWindow = 16;  ///< messages of bandwidth before an answer

    std::size_t iters = 2'000;  ///< round trips at most; windows: a tenth of it
    double seconds = 0.1;       ///< of each direction of a pair, for each of the two measurements
};

/// One direction between two ranks.
struct PairTimes {
    std::uint32_t from = 0, to = 0;
    double latency_us = 0;  ///< half of the median round trip
    double bandwidth_GBps = 0;
};

/// All pairs (a, b) with a < b, in order.
std::vector<std::pair<std::uint32_t, std::uint32_t>> all_pairs(std::uint32_t ranks);

/// Measures every pair of ranks in both directions, one pair after the other; ranks that have no
/// part in it wait in the job's store, so that they take neither network nor processors.
/// \param told  called on every rank with the same times
/// Errc: invalid_input (a single rank); those of the communicator; internal (out of memory)
Result<void> measure_pairs(const PairsOptions& options, const RankGroup& group, const Comm& comm,
                           const MemoryKind& kind,
                           const std::function<void(const PairTimes&)>& told);

}  // namespace dtrun::lab::rank
