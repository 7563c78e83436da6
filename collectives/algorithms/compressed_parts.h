#pragma once

#include "base/result.h"
#include "collectives/compression.h"
#include "collectives/group.h"
#include "collectives/host/host_group.h"
#include "collectives/topology.h"

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

/// Reduce-scatter of f32, f16 or bf16 that travel in fewer bits: hosts add up their ranks' values in memory, and send
/// each rank what it gets, encoded once. A rank's own host's values are not rounded.
/// \param count        of each rank's part
/// \param reduce       sum or average
/// \param compression  with `error`: of size * count values, this rank's whole array
/// \param call         see CompressedAllreduce::run()
/// Errc: invalid_input (reduce); and those of Group
Result<void> compressed_reduce_scatter(Group& group, const Topology& topology, HostGroup* host,
                                       const void* in, void* out, std::size_t count, DType type,
                                       Reduce reduce, const Compression& compression,
                                       std::uint64_t call);

/// Allgather of f32, f16 or bf16 that travel in fewer bits, each rank's encoded once. All ranks get the same bits, and
/// so does the one whose part it is.
/// \param count        of each rank's part
/// \param compression  with `error`: of `count` values
Result<void> compressed_allgather(Group& group, const Topology& topology, const void* in, void* out,
                                  std::size_t count, DType type, const Compression& compression,
                                  std::uint64_t call);

}  // namespace dtrun::collectives
