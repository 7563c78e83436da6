#include <cuda_runtime_api.h>

namespace dtrun::collectives::cuda {

template <class Kernel, class... Arguments>
void start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments);
int launched();

}  // namespace dtrun::collectives::cuda

#include "collectives/backends/nccl/codec_launch.cuh"

// libdtrun_codec_cuda.so: the kernels, on a GPU.

namespace dtrun::collectives::cuda {

template <class Kernel, class... Arguments>
void start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments) {
    kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
}

int launched() {
    return cudaGetLastError();
}

namespace {

int check() {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, gather_kernel);
    if (error != cudaSuccess) cudaGetLastError();  // which would be taken for that of a launch
    return error;
}

const char* text_of(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}

constexpr CudaCodecs kCodecs = {
    CudaCodecs::kAbi, check, encode, decode, combine, gather, scatter, divide, text_of,
};

}  // namespace
}  // namespace dtrun::collectives::cuda

const dtrun::collectives::CudaCodecs* dtrun_codec_cuda() {
    return &dtrun::collectives::cuda::kCodecs;
}
