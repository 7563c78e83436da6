#include <cuda_runtime_api.h>

namespace dtrun::lab::rank::cuda {

template <class Kernel, class... Arguments>
int start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments);

}  // namespace dtrun::lab::rank::cuda

#include "lab/rank/gpu/train_launch.cuh"

// libdtrun_train_cuda.so: the kernels, on a GPU.

namespace dtrun::lab::rank::cuda {

template <class Kernel, class... Arguments>
int start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments) {
    kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
    return cudaGetLastError();
}

namespace {

int check() {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, descend_kernel);
    if (error != cudaSuccess) cudaGetLastError();  // which would be taken for that of a launch
    return error;
}

const char* text_of(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}

constexpr TrainKernels kKernels = kernels_with(check, text_of);

}  // namespace
}  // namespace dtrun::lab::rank::cuda

const dtrun::lab::rank::TrainKernels* dtrun_train_cuda() {
    return &dtrun::lab::rank::cuda::kKernels;
}
