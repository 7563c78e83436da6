#pragma once

#include "collectives/backends/nccl/codec_cuda.h"

namespace dtrun::collectives {

/// The CUDA kernels, compiled for this CPU, on the host's memory. Streams are not looked at.
const CudaCodecs& codecs_on_cpu();

}  // namespace dtrun::collectives
