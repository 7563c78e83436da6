#pragma once

#include "lab/rank/memory.h"
#include "lab/rank/operation.h"
#include "lab/rank/rank_comm.h"
#include "lab/rank/timing.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::lab::rank {

struct SweepOptions {
    std::vector<CollectiveOp> ops;
    std::vector<std::size_t> sizes;  ///< bytes
    std::vector<DType> dtypes;
    std::vector<std::optional<Format>> formats;  ///< none: uncompressed
    std::optional<std::size_t> iters;            ///< none: 20, or as many as `seconds` has room for
    std::size_t warmup = 5;  ///< iterations before an operation's sizes, with the largest
    double seconds = 0;      ///< of one size; 0: no limit
    bool check = true;
    bool in_place = false;  ///< measured in place, too
    bool compress_auto =
        false;  ///< only where the library would: between hosts, where it is faster
};

/// One measurement.
struct Row {
    CollectiveOp op;
    DType type;
    std::optional<Format> format;
    Extent extent;
    std::size_t iters;
    Times us;  ///< of the slowest rank of each iteration
    bool in_place = false;
    std::uint64_t wrong = 0;  ///< elements, on all ranks
    double rel_err = 0;       ///< relative L2 error of all ranks' results
};

/// How often an operation is to be repeated.
/// \param seconds_each  of one iteration; a guess
std::size_t plan_iterations(std::optional<std::size_t> wanted, double seconds, double seconds_each);

/// Whether a combination can be measured: only sums of f32 are compressed, and one rank sends
/// nothing.
bool makes_sense(CollectiveOp op, DType type, std::optional<Format> format, std::uint32_t ranks);

/// Whether an operation's result can lie where its input is, or is a part of it. A broadcast always
/// does, and is not measured twice.
bool has_in_place(CollectiveOp op);

/// Measures every combination that makes sense; sizes that are too small for an element of each rank
/// are left out.
/// \param told     called on every rank with the same rows, but for rounding
/// \param refused  called on every rank with the reason why the backend does not have a combination
/// Errc: those of the communicator; internal (out of memory)
Result<void> sweep(const SweepOptions& options, const Comm& comm, const MemoryKind& memory,
                   const std::function<void(const Row&)>& told,
                   const std::function<void(const Error&)>& refused);

}  // namespace dtrun::lab::rank
