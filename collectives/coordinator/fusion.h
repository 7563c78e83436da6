#pragma once

#include "collectives/coordinator/negotiator.h"

#include <cstddef>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// A tensor of a response.
struct FusedTensor {
    std::size_t response;
    std::size_t tensor;
};

/// What is done in one go: tensors of allreduces that are reduced together, or one response.
struct Batch {
    std::vector<FusedTensor> parts;  ///< of allreduces; empty: `response` is something else
    std::size_t response = 0;
};

/// Puts allreduces of the same type, reduction and compression together, up to a size, whatever is
/// between them. The same on all ranks.
/// \param bytes_max  of a batch; a tensor that is larger goes alone
std::vector<Batch> plan_batches(std::span<const Response> responses, std::size_t bytes_max);

}  // namespace dtrun::collectives
