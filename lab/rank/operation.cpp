#include "lab/rank/operation.h"

#include <algorithm>

namespace dtrun::lab::rank {

Extent extent_of(Op op, DType type, std::size_t bytes, std::uint32_t ranks) {
    const std::size_t all = bytes / bytes_of(type);
    const std::size_t part = all / ranks;
    const double others = static_cast<double>(ranks - 1) / ranks;
    Extent extent;
    switch (op) {
        case Op::allreduce:
            extent = {all, all, all, 0, 2 * others};
            break;
        case Op::reduce:
        case Op::broadcast:
        case Op::sendrecv:
            extent = {all, all, all, 0, 1};
            break;
        case Op::allgather:
        case Op::gather:
            extent = {part, part, part * ranks, 0, others};
            break;
        case Op::reduce_scatter:
        case Op::scatter:
            extent = {part, part * ranks, part, 0, others};
            break;
        case Op::alltoall:
            extent = {part, part * ranks, part * ranks, 0, others};
            break;
        case Op::barrier:
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
