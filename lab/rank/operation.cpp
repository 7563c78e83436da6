#include "lab/rank/operation.h"

#include <algorithm>

namespace dtrun::lab::rank {

Extent extent_of(CollectiveOp op, DType type, std::size_t bytes, std::uint32_t ranks) {
    const std::size_t all = bytes / bytes_of(type);
    const std::size_t part = all / ranks;
    const double others = static_cast<double>(ranks - 1) / ranks;
    const collectives::OperationRow& row = row_of(op);
    const bool in_parts = collectives::has_all_parts(row.in);
    const bool out_parts = collectives::has_all_parts(row.out);
    Extent extent;
    if (in_parts || out_parts)
        extent = {part, in_parts ? part * ranks : part, out_parts ? part * ranks : part, 0, others};
    else if (row.out != collectives::Extent::none)
        extent = {all, all, all, 0, row.reduces && !row.rooted ? 2 * others : 1};
    extent.bytes = std::max(extent.in, extent.out) * bytes_of(type);
    return extent;
}

std::size_t wire_bytes(const Extent& extent, std::optional<Format> format) {
    const std::size_t sent = format ? encoded_bytes(*format, extent.count) : extent.bytes;
    return static_cast<std::size_t>(static_cast<double>(sent) * extent.bus_factor);
}

}  // namespace dtrun::lab::rank
