#pragma once

#include "collectives/backends/nccl/codec_blocks.cuh"
#include "collectives/backends/nccl/codec_cuda.h"

namespace dtrun::collectives::cuda {

/// \param before  nullptr, or errors that are added to the values; may be `error`
/// \param error   nullptr, or gets what coding has lost
template <Format format, Rounding rounding, bool aligned>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(std::uint64_t mixed_seed, const float* values, const float* before,
                  std::size_t count, unsigned char* out, float* error) {
    const Place place = find_place(count);
    float x[kEach];
    load_values<aligned>(values, place, x);
    if (before != nullptr) {
        float added[kEach];
        load_values<aligned>(before, place, added);
#pragma unroll
        for (unsigned k = 0; k < kEach; k++) x[k] = __fadd_rn(x[k], added[k]);
    }
    Codes<format> codes;
    encode_block<format, rounding, aligned>(mixed_seed, place, x, codes);
    store_block<format, aligned>(out + place.block * block_bytes(format), place, codes);
    if (error == nullptr) return;
    float back[kEach];
    decode_block<format>(codes, back);
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) x[k] = lost(x[k], back[k], 1.0f);
    store_values<aligned>(error, place, x);
}

template <Format format, bool aligned>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const unsigned char* in, std::size_t count, float* values) {
    const Place place = find_place(count);
    Codes<format> codes;
    load_block<format, aligned>(in + place.block * block_bytes(format), place, codes);
    float x[kEach];
    decode_block<format>(codes, x);
    store_values<aligned>(values, place, x);
}

__device__ inline void add_to(float (&sum)[kEach], const float (&x)[kEach]) {
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) sum[k] = __fadd_rn(sum[k], x[k]);
}

/// \param exact  the divisor is a power of two: a product with its inverse is rounded to the same bits
__device__ inline void divide_all(float (&sum)[kEach], float divisor, bool exact) {
    const float inverse = __fdiv_rn(1.0f, divisor);
#pragma unroll
    for (unsigned k = 0; k < kEach; k++)
        sum[k] = exact ? __fmul_rn(sum[k], inverse) : __fdiv_rn(sum[k], divisor);
}

/// This rank's own values of a block, which nobody has encoded.
template <bool aligned>
__device__ void load_own(const CudaChunk& chunk, const Place& place, float (&x)[kEach]) {
    load_values<aligned>(chunk.own, place, x);
    if (chunk.own_before == nullptr) return;
    float added[kEach];
    load_values<aligned>(chunk.own_before, place, added);
    add_to(x, added);
}

/// Adds up what all ranks have sent of a block, in their order. Several ranks' codes are loaded before
/// the first of them is added, so that the memory is kept busy.
template <Format format, bool aligned>
__device__ void sum_of_block(const CudaChunk& chunk, const Place& place, float (&sum)[kEach]) {
    constexpr unsigned at_once = !aligned ? 1 : value_bytes(format) == 1 ? 4 : 2;
    const auto* const encoded =
        reinterpret_cast<const unsigned char*>(chunk.encoded) + place.block * block_bytes(format);
    float x[kEach];
#pragma unroll
    for (float& value : sum) value = -0.0f;  // plus any value, also -0, is that value
    for (std::uint32_t rank = 0; rank < chunk.ranks;) {
        if (rank == chunk.own_rank) {
            load_own<aligned>(chunk, place, x);
            add_to(sum, x);
            rank++;
            continue;
        }
        const std::uint32_t end =
            rank < chunk.own_rank ? min(chunk.own_rank, chunk.ranks) : chunk.ranks;
        Codes<format> codes[at_once];
#pragma unroll
        for (unsigned i = 0; i < at_once; i++)
            if (rank + i < end)
                load_block<format, aligned>(encoded + (rank + i) * chunk.stride, place, codes[i]);
#pragma unroll
        for (unsigned i = 0; i < at_once; i++) {
            if (rank + i >= end) continue;
            decode_block<format>(codes[i], x);
            add_to(sum, x);
        }
        rank = min(rank + at_once, end);
    }
}

/// Three blocks of threads share a multiprocessor: with two, the memory waits.
template <Format format, Rounding rounding, bool aligned>
__global__ void __launch_bounds__(kThreads, 3)
    combine_kernel(std::uint64_t mixed_seed, const __grid_constant__ CudaChunk chunk,
                   unsigned char* out, float* error, float* values) {
    const Place place = find_place(chunk.count);
    float sum[kEach];
    sum_of_block<format, aligned>(chunk, place, sum);
    const auto divisor = static_cast<float>(chunk.divisor);
    if (chunk.divisor > 1) divide_all(sum, divisor, (chunk.divisor & (chunk.divisor - 1)) == 0);
    Codes<format> codes;
    encode_block<format, rounding, aligned>(mixed_seed, place, sum, codes);
    store_block<format, aligned>(out + place.block * block_bytes(format), place, codes);
    if (error == nullptr && values == nullptr) return;
    float back[kEach];
    decode_block<format>(codes, back);
    if (values != nullptr) store_values<aligned>(values, place, back);
    if (error == nullptr) return;
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) sum[k] = lost(sum[k], back[k], divisor);
    store_values<aligned>(error, place, sum);
}

// ---- segments ----------------------------------------------------------------------------------

/// As many segments as fit into the arguments of a kernel, cut into tiles: each block of threads has
/// one, whatever lengths the segments have.
constexpr unsigned kSegmentsMax = 64;
constexpr unsigned kTileEach = 16;  ///< values of a thread
constexpr std::size_t kTile = kThreads * kTileEach;
struct SegmentTable {
    CudaSegment of[kSegmentsMax];
    unsigned tiles[kSegmentsMax + 1];  ///< of all segments before each
    unsigned number;
};

/// The segment of this block of threads, and where in it the block begins.
__device__ inline unsigned find_segment(const SegmentTable& segments, std::size_t& begin) {
    unsigned low = 0;
    for (unsigned high = segments.number; high - low > 1;) {
        const unsigned middle = (low + high) / 2;
        (segments.tiles[middle] <= blockIdx.x ? low : high) = middle;
    }
    begin = (blockIdx.x - segments.tiles[low]) * kTile;
    return low;
}

__device__ inline bool all_aligned(const void* a, const void* b, const void* c, const void* d) {
    const auto bits = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                      reinterpret_cast<std::uintptr_t>(c) | reinterpret_cast<std::uintptr_t>(d);
    return bits % sizeof(float4) == 0;
}

/// out[i] = a[i] + b[i] of a tile. \param b  may be nullptr \param count  up to kTile
__device__ inline void add_tile(const float* __restrict__ a, const float* __restrict__ b,
                                float* __restrict__ out, std::size_t count) {
    if (count == kTile && all_aligned(a, b, out, nullptr)) {
#pragma unroll
        for (unsigned turn = 0; turn < kTileEach / kFour; turn++) {
            const unsigned i = turn * kThreads + threadIdx.x;
            float4 x = __ldcs(reinterpret_cast<const float4*>(a) + i);
            if (b != nullptr) {
                const float4 y = __ldcs(reinterpret_cast<const float4*>(b) + i);
                x = make_float4(__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y), __fadd_rn(x.z, y.z),
                                __fadd_rn(x.w, y.w));
            }
            reinterpret_cast<float4*>(out)[i] = x;
        }
        return;
    }
#pragma unroll 8
    for (unsigned turn = 0; turn < kTileEach; turn++) {
        const unsigned i = turn * kThreads + threadIdx.x;
        if (i < count) out[i] = b != nullptr ? __fadd_rn(a[i], b[i]) : a[i];
    }
}

static __global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ SegmentTable segments, float* values) {
    std::size_t begin = 0;
    const CudaSegment& one = segments.of[find_segment(segments, begin)];
    const std::size_t left = one.segment.count - begin;
    if (one.segment.in == nullptr) {
        for (std::size_t i = threadIdx.x; i < left && i < kTile; i += kThreads)
            values[one.begin + begin + i] = 0.0f;
        return;
    }
    add_tile(one.segment.in + begin,
             one.segment.error == nullptr ? nullptr : one.segment.error + begin,
             values + one.begin + begin, left < kTile ? left : kTile);
}

static __global__ void __launch_bounds__(kThreads)
    scatter_kernel(const __grid_constant__ SegmentTable segments, const float* values,
                   const float* errors) {
    std::size_t begin = 0;
    const CudaSegment& one = segments.of[find_segment(segments, begin)];
    const std::size_t left = one.segment.count - begin;
    const std::size_t count = left < kTile ? left : kTile;
    if (one.segment.out == nullptr) return;
    add_tile(values + one.begin + begin, nullptr, one.segment.out + begin, count);
    if (one.segment.error != nullptr)
        add_tile(errors + one.begin + begin, nullptr, one.segment.error + begin, count);
}

// ---- division ----------------------------------------------------------------------------------

template <class T>
__device__ T quotient(T value, std::uint32_t divisor) {
    return static_cast<T>(static_cast<long long>(value) / static_cast<long long>(divisor));
}
__device__ inline float quotient(float value, std::uint32_t divisor) {
    return __fdiv_rn(value, static_cast<float>(divisor));
}
__device__ inline double quotient(double value, std::uint32_t divisor) {
    return __ddiv_rn(value, static_cast<double>(divisor));
}

struct HalfWord {
    std::uint16_t bits;
};
struct BFloatWord {
    std::uint16_t bits;
};
__device__ inline HalfWord quotient(HalfWord value, std::uint32_t divisor) {
    return {half_of(quotient(float_of_half_fast(value.bits), divisor))};
}
__device__ inline BFloatWord quotient(BFloatWord value, std::uint32_t divisor) {
    return {bf16_of(quotient(float_of_bf16(value.bits), divisor))};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    divide_kernel(T* data, std::size_t count, std::uint32_t divisor) {
    constexpr unsigned at_once = 4;
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads * at_once;
    std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads * at_once + threadIdx.x;
    for (; i < count; i += step) {
        T some[at_once] = {};
#pragma unroll
        for (unsigned k = 0; k < at_once; k++)
            if (i + k * kThreads < count) some[k] = data[i + k * kThreads];
#pragma unroll
        for (unsigned k = 0; k < at_once; k++)
            if (i + k * kThreads < count) data[i + k * kThreads] = quotient(some[k], divisor);
    }
}

}  // namespace dtrun::collectives::cuda
