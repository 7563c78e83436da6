#include "tests/collectives/nccl/codec_on_cpu.h"

#include "tests/collectives/nccl/cuda_on_cpu.h"

namespace dtrun::collectives::cuda {

template <class Kernel, class... Arguments>
void start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments);
int launched();

}  // namespace dtrun::collectives::cuda

#include "collectives/backends/nccl/codec_launch.cuh"

namespace dtrun::collectives::cuda {

template <class Kernel, class... Arguments>
void start(Kernel kernel, unsigned grid, void*, Arguments... arguments) {
    cuda_on_cpu::run_grid(grid, kThreads, [&] { kernel(arguments...); });
}

int launched() {
    return 0;
}

}  // namespace dtrun::collectives::cuda

namespace dtrun::collectives {

const CudaCodecs& codecs_on_cpu() {
    static constexpr CudaCodecs codecs = {
        CudaCodecs::kAbi, [] { return 0; }, cuda::encode,
        cuda::decode,     cuda::combine,    cuda::gather,
        cuda::scatter,    cuda::divide,     [](int) { return "no error"; },
    };
    return codecs;
}

}  // namespace dtrun::collectives
