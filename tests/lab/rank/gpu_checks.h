#pragma once

#include "lab/rank/learner.h"

#include <functional>
#include <string>
#include <vector>

namespace dtrun::lab::rank {

/// How far a learner on a GPU is from the processor's.
struct LearnerDistance {
    double loss = 0;       ///< relative
    double gradients = 0;  ///< of the worst tensor: norm of the difference over that of the tensor
    double weights = 0;    ///< the same, after steps of descent
    std::size_t told_apart =
        0;  ///< test images that one tells right and the other does not, at least
};

/// Copies an array of the learner's memory to the host.
using CopyToHost = std::function<Result<void>(void* to, const void* from, std::size_t bytes)>;

/// Lets two learners take the same steps with batches of several sizes.
/// \param batch  the largest
Result<LearnerDistance> compare_learners(const LearnerSpec& spec, const MakeLearner& on_gpu,
                                         const CopyToHost& copy, std::size_t steps);

}  // namespace dtrun::lab::rank
