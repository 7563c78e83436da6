#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

// What the CUDA kernels of collectives/backends/nccl need, on a CPU, so that their arithmetic and their
// addresses are tested where there is no GPU. Kernels run thread by thread. A shuffle between the
// lanes of a warp stops all of them; then they begin again, and the shuffle gives what each of the
// others had. So a kernel may write nothing before its last shuffle.
//
// Instructions of one generation of GPUs, which stand behind __CUDA_ARCH__, are not tested by it.

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)

// NOLINTBEGIN: these names are CUDA's.
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    std::uint32_t x, y;
};
struct CudaIndex {
    unsigned x = 0;
};
inline thread_local CudaIndex threadIdx, blockIdx, gridDim;

inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
inline uint2 make_uint2(std::uint32_t x, std::uint32_t y) {
    return {x, y};
}
inline std::uint32_t max(std::uint32_t a, std::uint32_t b) {
    return std::max(a, b);
}
inline std::uint32_t min(std::uint32_t a, std::uint32_t b) {
    return std::min(a, b);
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline double __ddiv_rn(double a, double b) {
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return std::fmaf(a, b, c);
}
/// What does not fit becomes the nearest number that does, and a NaN 0.
inline int __float2int_rn(float x) {
    if (std::isnan(x)) return 0;
    if (std::fabs(x) >= 0x1p31F) return x < 0 ? std::numeric_limits<int>::min() : 0x7fff'ffff;
    return static_cast<int>(std::nearbyint(x));
}
inline std::uint32_t __float2uint_rz(float x) {
    if (!(x > 0)) return 0;
    return x >= 0x1p32F ? 0xffff'ffffu : static_cast<std::uint32_t>(x);
}
/// Bytes of a (0 to 3) and b (4 to 7), as the digits of `select` say, the lowest first.
inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t select) {
    const std::uint64_t both = static_cast<std::uint64_t>(b) << 32 | a;
    std::uint32_t bytes = 0;
    for (unsigned i = 0; i < 4; ++i)
        bytes |= static_cast<std::uint32_t>(both >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
    return bytes;
}
/// Loads what has to be aligned.
template <class T>
T __ldcs(const T* data) {
    assert(reinterpret_cast<std::uintptr_t>(data) % alignof(T) == 0);
    return *data;
}
// NOLINTEND

namespace cuda_on_cpu {

constexpr unsigned kWarp = 32;

/// Thrown by a lane that has to wait for the others.
struct Waits {};

struct Shuffles {
    std::vector<std::array<std::uint32_t, kWarp>> given;
    std::size_t known = 0;  ///< shuffles for which all lanes have given their values
    std::size_t next = 0;   ///< of the lane that runs
};
inline thread_local Shuffles shuffles;

/// Runs a kernel's threads of one warp, whose first thread is `first`.
template <class Kernel>
void run_warp(unsigned first, const Kernel& kernel) {
    shuffles = {};
    for (unsigned waiting = kWarp; waiting > 0; ++shuffles.known) {
        waiting = 0;
        for (unsigned lane = 0; lane < kWarp; ++lane) {
            threadIdx.x = first + lane;
            shuffles.next = 0;
            try {
                kernel();
            } catch (const Waits&) {
                ++waiting;
            }
        }
        assert(waiting == 0 || waiting == kWarp);  // else the warp would hang on a GPU
    }
}

template <class Kernel>
void run_grid(unsigned blocks, unsigned threads, const Kernel& kernel) {
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        for (unsigned first = 0; first < threads; first += kWarp) run_warp(first, kernel);
}

}  // namespace cuda_on_cpu

inline std::uint32_t __shfl_xor_sync(unsigned mask, std::uint32_t value, unsigned lanes) {
    using namespace cuda_on_cpu;
    assert(mask == ~0u);
    static_cast<void>(mask);
    const unsigned lane = threadIdx.x % kWarp;
    const std::size_t number = shuffles.next++;
    if (number < shuffles.known) return shuffles.given[number][lane ^ lanes];
    if (shuffles.given.size() == number) shuffles.given.emplace_back();
    shuffles.given[number][lane] = value;
    throw Waits();
}
