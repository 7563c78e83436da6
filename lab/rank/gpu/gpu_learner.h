#pragma once

#include "lab/rank/gpu/gpu_place.h"
#include "lab/rank/learner.h"

namespace dtrun::lab::rank {

/// Computes on a GPU: all images are copied there once, and of a step only the numbers of its images
/// go there, and nothing comes back. Weights and gradients are in memory of the GPU.
/// \param place  outlives the learners
MakeLearner learner_on_gpu(const GpuPlace& place);

}  // namespace dtrun::lab::rank
