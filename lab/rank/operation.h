#pragma once

#include "collectives/codec/codec.h"
#include "lab/names.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace dtrun::lab::rank {

/// How large the arrays of an operation are, in nccl-tests' terms (doc/PERFORMANCE.md there).
struct Extent {
    std::size_t count = 0;  ///< elements that the call is given: all, or of each rank's part
    std::size_t in = 0;     ///< elements of a rank's arrays
    std::size_t out = 0;
    std::size_t bytes = 0;  ///< of the whole array
    double bus_factor = 0;  ///< factor from bytes / time to bandwidth on the wires
};

/// \param bytes  the wanted size; rounded down to whole elements, as many for each rank
Extent extent_of(CollectiveOp op, DType type, std::size_t bytes, std::uint32_t ranks);

/// Bytes that each rank has to send at least, averaged over ranks: what a good algorithm sends.
std::size_t wire_bytes(const Extent& extent, std::optional<Format> format);

}  // namespace dtrun::lab::rank
