#include "lab/rank/operation.h"

#include <algorithm>

namespace dtrun::lab::rank {

Extent extent_of(CollectiveOp op, DType type, std::size_t bytes, std::uint32_t ranks) {
    const std::size_t all = bytes / bytes_of(type);
    const std::size_t part = all / ranks;
    const double others = static_cast<double>(ranks - 1) / ranks;
    Extent extent;
    switch (op) {
        case CollectiveOp::allreduce:
            extent = {all, all, all, 0, 2 * others};
            break;
        case CollectiveOp::reduce:
        case CollectiveOp::broadcast:
        case CollectiveOp::sendrecv:
            extent = {all, all, all, 0, 1};
            break;
        case CollectiveOp::allgather:
        case CollectiveOp::gather:
            extent = {part, part, part * ranks, 0, others};
            break;
        case CollectiveOp::reduce_scatter:
        case CollectiveOp::scatter:
            extent = {part, part * ranks, part, 0, others};
            break;
        case CollectiveOp::alltoall:
            extent = {part, part * ranks, part * ranks, 0, others};
            break;
        case CollectiveOp::barrier:
            break;
    }
    extent.bytes = std::max(extent.in, extent.out) * bytes_of(type);
    return extent;
}

std::size_t wire_bytes(const Extent& extent, std::optional<Format> format) {
    const std::size_t sent = format ? encoded_bytes(*format, extent.count) : extent.bytes;
    return static_cast<std::size_t>(static_cast<double>(sent) * extent.bus_factor);
}

}  // namespace dtrun::lab::rank
