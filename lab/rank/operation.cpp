#include "lab/rank/operation.h"

#include <algorithm>
#include <string>

namespace dtrun::lab::rank {

std::string_view name_of(Op op) {
    switch (op) {
        case Op::allreduce:
            return "allreduce";
        case Op::allgather:
            return "allgather";
        case Op::reduce_scatter:
            return "reduce_scatter";
        case Op::reduce:
            return "reduce";
        case Op::broadcast:
            return "broadcast";
        case Op::gather:
            return "gather";
        case Op::scatter:
            return "scatter";
        case Op::alltoall:
            return "alltoall";
        case Op::sendrecv:
            return "sendrecv";
        case Op::barrier:
            break;
    }
    return "barrier";
}

Result<Op> parse_op(std::string_view name) {
    std::string wanted(name);
    std::ranges::replace(wanted, '-', '_');
    std::string known;
    for (const Op op : kOps) {
        if (wanted == name_of(op)) return op;
        (known += known.empty() ? "" : ", ") += name_of(op);
    }
    return fail(Errc::invalid_input, "no operation \"{}\": {}", name, known);
}

Result<DType> parse_dtype(std::string_view name) {
    std::string known;
    for (std::size_t i = 0; i < collectives::kDTypes; ++i) {
        const auto type = static_cast<DType>(i);
        if (name == name_of(type)) return type;
        (known += known.empty() ? "" : ", ") += name_of(type);
    }
    return fail(Errc::invalid_input, "no type \"{}\": {}", name, known);
}

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
