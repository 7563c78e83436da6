#pragma once

#include "collectives/group.h"
#include "collectives/types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// Values of another type, which stand for those of an array while they are reduced.
struct StandIn {
    DType type;
    /// \param out  elements of `type`, which do not overlap `in`
    void (*put)(const void* in, void* out, std::size_t count);
    void (*take)(const void* in, void* out, std::size_t count);
};

/// What averages of `type` are added up in, so that they have room: an average of numbers that fit is
/// one that fits, but the sum of them is not. nullptr: sums have room, or there is no larger type.
const StandIn* average_stand_in(DType type);

/// Integers in the order of floating-point numbers, with NaN where it wins, for libraries whose own
/// min and max lose NaNs.
/// \return nullptr: integers, and other reductions than min and max, need none
const StandIn* ordered_stand_in(DType type, Reduce reduce);

/// Elements of an array to reduce; `in` and `out` may be the same.
struct Reduced {
    const void* in;
    void* out;
    std::size_t count;
};

// Operations of a group on arrays in host memory, of stand-ins instead of their elements, which are of
// `type`. They call the group some times one after the other, each time for a few MiB.

/// Where stand-ins lie, kept for the next call: to get such memory anew takes as long as to reduce it.
using StandInRoom = std::vector<std::byte>;

/// Reduces arrays that lie anywhere as one.
Result<void> allreduce_by(const StandIn& stand_in, Group& group, StandInRoom& kept,
                          std::span<const Reduced> arrays, DType type, Reduce reduce);
/// Any operation that reduces. \param rank, size  of the group
Result<void> run_by(const StandIn& stand_in, Group& group, StandInRoom& kept, std::uint32_t rank,
                    std::uint32_t size, const Operation& what);

}  // namespace dtrun::collectives
