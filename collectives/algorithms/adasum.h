#pragma once

#include "base/result.h"
#include "collectives/group.h"
#include "collectives/types.h"

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

/// Adaptive sum of a tensor over all ranks (Maleki et al., "Scaling distributed training with
/// adaptive summation", 2020): of two gradients, what they have in common is averaged and the rest
/// is added,
///   (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b,
/// and of more than two, pairs first, then pairs of pairs. Ranks beyond the largest power of two
/// are first combined with rank 0, 1, ...
///
/// By vector halving and distance doubling: each rank combines ever smaller parts of ever more
/// ranks' gradients and sends about as much as in a ring. Dot products are those of whole tensors,
/// in f64; halves are combined as f32. Identical bits on every rank.
/// \param in    may be `out`
/// \param type  floating point
/// Errc: invalid_input (type); and those of Group
Result<void> adasum_allreduce(Group& group, std::uint32_t rank, std::uint32_t size, const void* in,
                              void* out, std::size_t count, DType type);

}  // namespace dtrun::collectives
