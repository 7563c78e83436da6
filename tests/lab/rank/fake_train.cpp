#include "tests/collectives/nccl/cuda_on_cpu.h"
#include "tests/collectives/nccl/fake_gpu.h"

#include <cstdlib>
#include <tuple>
#include <type_traits>

namespace dtrun::lab::rank::cuda {

template <class Kernel, class... Arguments>
int start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments);

}  // namespace dtrun::lab::rank::cuda

#include "lab/rank/gpu/train_launch.cuh"

// libdtrun_train_cuda.so without a GPU: its own kernels, thread by thread, in the streams of the fake
// runtime. A kernel that is given memory of the host is refused. Settings of the environment:
//   FAKE_TRAIN_ERROR  what check() returns

extern "C" const char* cudaGetErrorString(int code);

namespace dtrun::lab::rank::cuda {
namespace {

constexpr int kIllegalAddress = 700;

template <class T>
bool is_legal(const T& argument) {
    if constexpr (std::is_pointer_v<T>)
        return argument == nullptr || fake::is_device_memory(argument, sizeof *argument);
    else if constexpr (std::is_same_v<T, Product>)
        return is_legal(argument.a.data) && is_legal(argument.b.data) && is_legal(argument.bias) &&
               is_legal(argument.out);
    else
        return true;
}

int check() {
    const char* const error = std::getenv("FAKE_TRAIN_ERROR");
    return error == nullptr ? 0 : std::atoi(error);
}

const char* text_of(int error) {
    return error == kIllegalAddress ? "an illegal memory access was encountered"
                                    : cudaGetErrorString(error);
}

constexpr TrainKernels kKernels = kernels_with(check, text_of);

}  // namespace

template <class Kernel, class... Arguments>
int start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments) {
    if (!(is_legal(arguments) && ...)) return kIllegalAddress;
    fake::stream_of(stream).enqueue(
        [=] { cuda_on_cpu::run_grid(grid, kThreads, [&] { kernel(arguments...); }); });
    return 0;
}

}  // namespace dtrun::lab::rank::cuda

const dtrun::lab::rank::TrainKernels* dtrun_train_cuda() {
    return &dtrun::lab::rank::cuda::kKernels;
}
