#pragma once

#include "base/result.h"
#include "collectives/codec/codec.h"
#include "collectives/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dtrun::lab::rank {

using collectives::DType;
using collectives::Format;

/// What is measured. Reductions are sums, roots are rank 0.
enum class Op : std::uint8_t {
    allreduce,
    allgather,
    reduce_scatter,
    reduce,
    broadcast,
    gather,
    scatter,
    alltoall,
    sendrecv,  ///< every rank sends to the next and receives from the one before it
    barrier,
};
inline constexpr std::array kOps{Op::allreduce, Op::allgather, Op::reduce_scatter, Op::reduce,
                                 Op::broadcast, Op::gather,    Op::scatter,        Op::alltoall,
                                 Op::sendrecv,  Op::barrier};

std::string_view name_of(Op op);
/// '-' and '_' are the same. Errc: invalid_input
Result<Op> parse_op(std::string_view name);
Result<DType> parse_dtype(std::string_view name);

/// How large the arrays of an operation are, in nccl-tests' terms (doc/PERFORMANCE.md there).
struct Extent {
    std::size_t count = 0;  ///< elements that the call is given: all, or of each rank's part
    std::size_t in = 0;     ///< elements of a rank's arrays
    std::size_t out = 0;
    std::size_t bytes = 0;  ///< of the whole array
    double bus_factor = 0;  ///< by which bandwidth on the wires is higher than bytes / time
};

/// \param bytes  asked for; rounded down to whole elements that all ranks have as many of
Extent extent_of(Op op, DType type, std::size_t bytes, std::uint32_t ranks);

/// Bytes that each rank has to send at least, averaged over ranks: what a good algorithm sends.
std::size_t wire_bytes(const Extent& extent, std::optional<Format> format);

}  // namespace dtrun::lab::rank
