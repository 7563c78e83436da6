#include "collectives/nccl/codec_cuda.h"

#include "collectives/codec/numbers.h"

#include <cuda_runtime_api.h>

// One warp for each block of kBlock values. A lane has eight of them: four at 4 * lane, and four in
// the other half of the block, so that what a warp loads and stores at once lies together. Every
// sum and product is rounded by itself (__fmul_rn and so on are never fused), as on the CPU.

namespace dtrun::collectives {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kThreads = 256;
constexpr unsigned kEach = kBlock / kWarp;  ///< values of a lane
constexpr unsigned kFour = 4;
constexpr unsigned kHalfBlock = kBlock / 2;
static_assert(kEach == 2 * kFour);

DTRUN_NUMBER bool is_e4m3(Format format) {
    return format == Format::e4m3 || format == Format::e4m3_unscaled;
}
DTRUN_NUMBER std::size_t scale_bytes(Format format) {
    return has_scale(format) ? sizeof(float) : 0;
}
DTRUN_NUMBER std::size_t block_bytes(Format format) {
    return scale_bytes(format) + value_bytes(format) * kBlock;
}

/// Where a lane's values are in an array.
struct Place {
    std::size_t block;
    unsigned lane;
    unsigned count;  ///< values of the block

    /// Of the first of four values, `half` 0 or 1.
    __device__ unsigned at(unsigned half) const { return half * kHalfBlock + lane * kFour; }
    __device__ bool whole() const { return count == kBlock; }
};

/// \return false if this warp has nothing to do
__device__ bool find_place(std::size_t count, Place& place) {
    place.block = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
    place.lane = threadIdx.x % kWarp;
    const std::size_t first = place.block * kBlock;
    if (first >= count) return false;
    place.count = count - first < kBlock ? static_cast<unsigned>(count - first) : kBlock;
    return true;
}

__device__ bool aligned(const void* p, unsigned to) {
    return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

// ---- arrays of floats --------------------------------------------------------------------------

/// \param values  of the whole array; what is missing in the last block is 0
__device__ void load_values(const float* values, const Place& place, float (&x)[kEach]) {
    const float* const block = values + place.block * kBlock;
    for (unsigned half = 0; half < 2; half++) {
        const unsigned at = place.at(half);
        if (place.whole() && aligned(values, sizeof(float4))) {
            const float4 four = *reinterpret_cast<const float4*>(block + at);
            x[half * kFour + 0] = four.x;
            x[half * kFour + 1] = four.y;
            x[half * kFour + 2] = four.z;
            x[half * kFour + 3] = four.w;
        } else {
            for (unsigned k = 0; k < kFour; k++) {
                x[half * kFour + k] = at + k < place.count ? block[at + k] : 0.0f;
            }
        }
    }
}

__device__ void store_values(float* values, const Place& place, const float (&x)[kEach]) {
    float* const block = values + place.block * kBlock;
    for (unsigned half = 0; half < 2; half++) {
        const unsigned at = place.at(half);
        const float* const four = x + half * kFour;
        if (place.whole() && aligned(values, sizeof(float4))) {
            *reinterpret_cast<float4*>(block + at) =
                make_float4(four[0], four[1], four[2], four[3]);
        } else {
            for (unsigned k = 0; k < kFour; k++) {
                if (at + k < place.count) block[at + k] = four[k];
            }
        }
    }
}

// ---- arrays of codes ---------------------------------------------------------------------------

/// \param codes  of the block
template <Format format>
__device__ void load_codes(const unsigned char* codes, const Place& place,
                           std::uint32_t (&x)[kEach]) {
    constexpr unsigned bytes = value_bytes(format);
    for (unsigned half = 0; half < 2; half++) {
        const unsigned at = place.at(half);
        const unsigned char* const from = codes + at * bytes;
        std::uint32_t* const four = x + half * kFour;
        if (place.whole() && aligned(codes, bytes * kFour)) {
            if constexpr (bytes == 2) {
                const uint2 words = *reinterpret_cast<const uint2*>(from);
                four[0] = words.x & 0xffff;
                four[1] = words.x >> 16;
                four[2] = words.y & 0xffff;
                four[3] = words.y >> 16;
            } else {
                const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(from);
                for (unsigned k = 0; k < kFour; k++) four[k] = word >> 8 * k & 0xff;
            }
        } else {
            for (unsigned k = 0; k < kFour; k++) {
                four[k] = 0;
                if (at + k >= place.count) continue;
                for (unsigned b = 0; b < bytes; b++) four[k] |= from[k * bytes + b] << 8 * b;
            }
        }
    }
}

/// \param codes  of the block
template <Format format>
__device__ void store_codes(unsigned char* codes, const Place& place,
                            const std::uint32_t (&x)[kEach]) {
    constexpr unsigned bytes = value_bytes(format);
    for (unsigned half = 0; half < 2; half++) {
        const unsigned at = place.at(half);
        unsigned char* const to = codes + at * bytes;
        const std::uint32_t* const four = x + half * kFour;
        if (place.whole() && aligned(codes, bytes * kFour)) {
            if constexpr (bytes == 2) {
                *reinterpret_cast<uint2*>(to) =
                    make_uint2(four[0] | four[1] << 16, four[2] | four[3] << 16);
            } else {
                *reinterpret_cast<std::uint32_t*>(to) = (four[0] & 0xff) | (four[1] & 0xff) << 8 |
                                                        (four[2] & 0xff) << 16 | four[3] << 24;
            }
        } else {
            for (unsigned k = 0; k < kFour; k++) {
                if (at + k >= place.count) continue;
                for (unsigned b = 0; b < bytes; b++) {
                    to[k * bytes + b] = static_cast<unsigned char>(four[k] >> 8 * b);
                }
            }
        }
    }
}

__device__ float load_scale(const unsigned char* p) {
    if (aligned(p, sizeof(float))) return *reinterpret_cast<const float*>(p);
    return float_of(p[0] | p[1] << 8 | p[2] << 16 | static_cast<std::uint32_t>(p[3]) << 24);
}

__device__ void store_scale(unsigned char* p, float scale) {
    if (aligned(p, sizeof(float))) {
        *reinterpret_cast<float*>(p) = scale;
        return;
    }
    for (unsigned b = 0; b < sizeof scale; b++) {
        p[b] = static_cast<unsigned char>(bits_of(scale) >> 8 * b);
    }
}

// ---- one value ---------------------------------------------------------------------------------

__device__ float float_of_half_fast(std::uint32_t half) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<unsigned short>(half)));
    return x;
}

/// To nearest even; not a NaN.
__device__ std::uint32_t half_of_fast(float x) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}

/// As in block_kernels.h.
template <class Small>
__device__ std::uint32_t rounded(std::uint32_t magnitude, Rounding rounding, std::uint32_t random) {
    const std::uint32_t exponent = max(magnitude & kInfinityBits, Small::kLeastNormalBits);
    const std::uint32_t above = (exponent - Small::kLeastNormalBits) >> Small::kShift;
    if (rounding == Rounding::nearest) {
        const std::uint32_t magic = exponent + (Small::kShift << 23);
        return bits_of(__fadd_rn(float_of(magnitude), float_of(magic))) - magic + above;
    }
    constexpr std::uint32_t unit = (127 + 127 + kRandomBits + Small::kMantissa) << 23;
    const std::uint32_t fixed =
        __float2uint_rz(__fmul_rn(float_of(magnitude), float_of(unit - exponent)));
    return ((fixed + random) >> kRandomBits) + above;
}

template <Format format>
__device__ std::uint32_t fp8_of(float x, Rounding rounding, std::uint32_t random) {
    const std::uint32_t sign = bits_of(x) >> 24 & 0x80;
    const std::uint32_t magnitude = bits_of(x) & kMagnitudeBits;
    if (!has_scale(format) && magnitude >= kInfinityBits) {
        return sign | (is_e4m3(format) || magnitude > kInfinityBits ? 0x7f : 0x7c);
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if (rounding == Rounding::nearest) {
        unsigned short pair;
        if constexpr (is_e4m3(format)) {
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        } else {
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        }
        return pair;
    }
#endif
    if constexpr (is_e4m3(format)) {
        return sign | rounded<E4M3>(min(magnitude, E4M3::kLargestBits), rounding, random);
    } else {
        return sign | rounded<E5M2>(min(magnitude, E5M2::kLargestBits), rounding, random);
    }
}

__device__ std::uint32_t int8_of(float x, Rounding rounding, std::uint32_t random) {
    if (rounding == Rounding::nearest) return static_cast<std::uint32_t>(__float2int_rn(x));
    const float magnitude = fminf(fabsf(x), 127.0f);
    const std::uint32_t fixed = __float2uint_rz(__fmul_rn(magnitude, 0x1p16f));
    const std::uint32_t code = (fixed + random) >> kRandomBits;
    return bits_of(x) >> 31 != 0 ? 0 - code : code;
}

template <Format format>
__device__ std::uint32_t code_of(float x, Rounding rounding, std::uint32_t random) {
    const std::uint32_t magnitude = bits_of(x) & kMagnitudeBits;
    if constexpr (format == Format::f16) {
        if (magnitude > kInfinityBits) return half_of(x);
        if (rounding == Rounding::nearest) return half_of_fast(x);
        const std::uint32_t code = rounded<Half>(magnitude, rounding, random);
        return min(code, 0x7c00u) | (bits_of(x) >> 16 & 0x8000);
    } else if constexpr (format == Format::bf16) {
        if (magnitude > kInfinityBits || rounding == Rounding::nearest) return bf16_of(x);
        return (bits_of(x) + random) >> 16;
    } else if constexpr (format == Format::int8) {
        return int8_of(x, rounding, random);
    } else {
        return fp8_of<format>(x, rounding, random);
    }
}

/// Without the scale, and of E4M3 divided by kE4M3Factor.
template <Format format>
__device__ float value_of(std::uint32_t code) {
    if constexpr (format == Format::f16) return float_of_half_fast(code);
    if constexpr (format == Format::bf16) return float_of(code << 16);
    if constexpr (format == Format::int8) return static_cast<float>(static_cast<signed char>(code));
    if constexpr (is_e4m3(format)) {
        return float_of_half_fast(half_of_e4m3(static_cast<std::uint8_t>(code)));
    }
    return float_of_half_fast(code << 8);
}

// ---- blocks ------------------------------------------------------------------------------------

/// \param in  of the block
template <Format format>
__device__ void decode_block(const unsigned char* in, const Place& place, float (&x)[kEach]) {
    std::uint32_t codes[kEach];
    load_codes<format>(in + scale_bytes(format), place, codes);
    float factor = 1.0f;
    if constexpr (has_scale(format)) {
        factor = load_scale(in);
        if (!is_finite(factor)) factor = float_of(kQuietNanBits);
    }
    if constexpr (is_e4m3(format)) factor = __fmul_rn(factor, kE4M3Factor);
    for (unsigned k = 0; k < kEach; k++) {
        x[k] = value_of<format>(codes[k]);
        if constexpr (has_scale(format) || is_e4m3(format)) x[k] = __fmul_rn(x[k], factor);
    }
}

__device__ std::uint32_t largest_of_block(const float (&x)[kEach]) {
    std::uint32_t most = 0;
    for (unsigned k = 0; k < kEach; k++) most = max(most, bits_of(x[k]) & kMagnitudeBits);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(~0u, most);
#else
    for (unsigned lanes = kWarp / 2; lanes > 0; lanes /= 2) {
        most = max(most, __shfl_xor_sync(~0u, most, lanes));
    }
    return most;
#endif
}

struct Random {
    Rounding rounding;
    std::uint64_t mixed_seed;
};

/// \param out  of the block
template <Format format>
__device__ void encode_block(const Random& random, const Place& place, const float (&x)[kEach],
                             unsigned char* out) {
    float inverse = 1.0f;
    bool finite = true;
    if constexpr (has_scale(format)) {
        const float scale = scale_of(format, largest_of_block(x));
        if (place.lane == 0) store_scale(out, scale);
        finite = is_finite(scale);
        inverse = inverse_of(scale);
    }
    BlockKey key{};
    if (random.rounding == Rounding::stochastic) {
        key = key_of_block(random.mixed_seed, place.block);
    }
    std::uint32_t codes[kEach];
    for (unsigned k = 0; k < kEach; k += 2) {
        const unsigned pair = (place.at(k / kFour) + k % kFour) / 2;
        std::uint32_t bits = 0;
        if (random.rounding == Rounding::stochastic) {
            bits = random_pair(key, key.start + pair * kPairStep);
        }
        for (unsigned i = 0; i < 2; i++) {
            const float value = has_scale(format) ? __fmul_rn(x[k + i], inverse) : x[k + i];
            const std::uint32_t code =
                code_of<format>(value, random.rounding, i == 0 ? bits & 0xffff : bits >> 16);
            codes[k + i] = finite ? code : 0;
        }
    }
    store_codes<format>(out + scale_bytes(format), place, codes);
}

// ---- kernels -----------------------------------------------------------------------------------

template <Format format>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(Random random, const float* values, std::size_t count, unsigned char* out,
                  float* error) {
    Place place;
    if (!find_place(count, place)) return;
    float x[kEach];
    load_values(values, place, x);
    unsigned char* const block = out + place.block * block_bytes(format);
    encode_block<format>(random, place, x, block);
    if (error == nullptr) return;
    __syncwarp();  // the scale is another lane's
    float back[kEach];
    float sum[kEach];
    decode_block<format>(block, place, back);
    load_values(error, place, sum);
    for (unsigned k = 0; k < kEach; k++) {
        sum[k] = __fadd_rn(sum[k], __fsub_rn(x[k], back[k]));
        if (!is_finite(sum[k])) sum[k] = 0.0f;
    }
    store_values(error, place, sum);
}

template <Format format>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const unsigned char* in, std::size_t count, float* values, bool add) {
    Place place;
    if (!find_place(count, place)) return;
    float x[kEach];
    float sum[kEach];
    if (add) load_values(values, place, sum);
    decode_block<format>(in + place.block * block_bytes(format), place, x);
    for (unsigned k = 0; add && k < kEach; k++) x[k] = __fadd_rn(sum[k], x[k]);
    store_values(values, place, x);
}

template <Format format>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(Random random, CudaPiece piece, unsigned char* out, float* error,
                   float* values) {
    Place place;
    if (!find_place(piece.count, place)) return;
    const auto* const encoded =
        reinterpret_cast<const unsigned char*>(piece.encoded) + place.block * block_bytes(format);
    float sum[kEach] = {};
    for (std::uint32_t rank = 0; rank < piece.ranks; rank++) {
        float x[kEach];
        if (rank == piece.own_rank) {
            load_values(piece.own, place, x);
        } else {
            decode_block<format>(encoded + rank * piece.stride, place, x);
        }
        for (unsigned k = 0; k < kEach; k++) sum[k] = rank == 0 ? x[k] : __fadd_rn(sum[k], x[k]);
    }
    const auto divisor = static_cast<float>(piece.divisor);
    for (unsigned k = 0; piece.divisor > 1 && k < kEach; k++) sum[k] = __fdiv_rn(sum[k], divisor);
    unsigned char* const block = out + place.block * block_bytes(format);
    encode_block<format>(random, place, sum, block);
    if (error == nullptr && values == nullptr) return;
    __syncwarp();
    float back[kEach];
    decode_block<format>(block, place, back);
    if (values != nullptr) store_values(values, place, back);
    if (error == nullptr) return;
    float lost[kEach];
    load_values(error, place, lost);
    for (unsigned k = 0; k < kEach; k++) {
        lost[k] = __fadd_rn(lost[k], __fmul_rn(__fsub_rn(sum[k], back[k]), divisor));
        if (!is_finite(lost[k])) lost[k] = 0.0f;
    }
    store_values(error, place, lost);
}

/// Segments of one launch, and where they begin in what they are gathered in: as many as fit into
/// the arguments of a kernel.
constexpr unsigned kSegmentsMax = 64;
struct Segments {
    Segment of[kSegmentsMax];
    std::size_t begin[kSegmentsMax];
};

/// blockIdx.y is the segment.
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ Segments segments, float* values, float* errors) {
    const Segment segment = segments.of[blockIdx.y];
    const std::size_t begin = segments.begin[blockIdx.y];
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
         i < segment.count; i += step) {
        float value = segment.in[i];
        if (segment.error != nullptr) value = __fadd_rn(value, segment.error[i]);
        values[begin + i] = value;
        if (errors != nullptr) errors[begin + i] = 0.0f;
    }
}

__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const __grid_constant__ Segments segments, const float* values,
                   const float* errors) {
    const Segment segment = segments.of[blockIdx.y];
    const std::size_t begin = segments.begin[blockIdx.y];
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
         i < segment.count; i += step) {
        segment.out[i] = values[begin + i];
        if (segment.error != nullptr) segment.error[i] = errors[begin + i];
    }
}

template <class T>
__device__ T quotient(T value, std::uint32_t divisor) {
    return static_cast<T>(static_cast<long long>(value) / static_cast<long long>(divisor));
}
__device__ float quotient(float value, std::uint32_t divisor) {
    return __fdiv_rn(value, static_cast<float>(divisor));
}
__device__ double quotient(double value, std::uint32_t divisor) {
    return __ddiv_rn(value, static_cast<double>(divisor));
}

struct HalfWord {
    std::uint16_t bits;
};
struct BFloatWord {
    std::uint16_t bits;
};
__device__ HalfWord quotient(HalfWord value, std::uint32_t divisor) {
    const float x = quotient(float_of_half_fast(value.bits), divisor);
    return {half_of(x)};
}
__device__ BFloatWord quotient(BFloatWord value, std::uint32_t divisor) {
    return {bf16_of(quotient(float_of_bf16(value.bits), divisor))};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    divide_kernel(T* data, std::size_t count, std::uint32_t divisor) {
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
         i += step) {
        data[i] = quotient(data[i], divisor);
    }
}

// ---- launching ---------------------------------------------------------------------------------

template <Format format>
struct Tag {
    static constexpr Format kFormat = format;
};

/// Calls use(Tag<format>()) and says whether the launch went well.
template <class Use>
int launch(Format format, std::size_t count, Use&& use) {
    if (count == 0) return cudaSuccess;
    switch (format) {
#define DTRUN_FORMAT(format, ...)   \
    case Format::format:            \
        use(Tag<Format::format>()); \
        break;
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
    }
    return cudaGetLastError();
}

unsigned grid_of(std::size_t count) {
    constexpr std::size_t each = kThreads / kWarp * kBlock;
    return static_cast<unsigned>((count + each - 1) / each);
}

int encode_cuda(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                std::size_t count, std::byte* out, float* error, void* stream) {
    const Random random{rounding, mix64(seed)};
    return launch(format, count, [&](auto tag) {
        encode_kernel<decltype(tag)::kFormat>
            <<<grid_of(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
                random, values, count, reinterpret_cast<unsigned char*>(out), error);
    });
}

int decode_either(Format format, const std::byte* in, std::size_t count, float* values, bool add,
                  void* stream) {
    return launch(format, count, [&](auto tag) {
        decode_kernel<decltype(tag)::kFormat>
            <<<grid_of(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
                reinterpret_cast<const unsigned char*>(in), count, values, add);
    });
}

int decode_cuda(Format format, const std::byte* in, std::size_t count, float* values,
                void* stream) {
    return decode_either(format, in, count, values, false, stream);
}

int decode_add_cuda(Format format, const std::byte* in, std::size_t count, float* sums,
                    void* stream) {
    return decode_either(format, in, count, sums, true, stream);
}

int combine_cuda(Format format, Rounding rounding, std::uint64_t seed, const CudaPiece& piece,
                 std::byte* out, float* error, float* values, void* stream) {
    const Random random{rounding, mix64(seed)};
    return launch(format, piece.count, [&](auto tag) {
        combine_kernel<decltype(tag)::kFormat>
            <<<grid_of(piece.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
                random, piece, reinterpret_cast<unsigned char*>(out), error, values);
    });
}

/// Calls use(grid, segments) for as many segments at a time as a kernel takes.
template <class Use>
int launch_segments(const Segment* segments, std::size_t number, Use&& use) {
    constexpr std::size_t each = 4 * kThreads;  // values of a block of threads
    constexpr std::size_t grid_max = 4096;
    std::size_t begin = 0;
    for (std::size_t next = 0; next < number;) {
        Segments some{};
        unsigned taken = 0;
        std::size_t longest = 0;
        for (; next < number && taken < kSegmentsMax; next++) {
            const std::size_t count = segments[next].count;
            if (count == 0) continue;
            some.of[taken] = segments[next];
            some.begin[taken++] = begin;
            begin += count;
            if (count > longest) longest = count;
        }
        if (taken == 0) break;
        const std::size_t blocks = (longest + each - 1) / each;
        use(dim3(static_cast<unsigned>(blocks < grid_max ? blocks : grid_max), taken), some);
        if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

int gather_cuda(const Segment* segments, std::size_t number, float* values, float* errors,
                void* stream) {
    return launch_segments(segments, number, [&](dim3 grid, const Segments& some) {
        gather_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(some, values,
                                                                                errors);
    });
}

int scatter_cuda(const Segment* segments, std::size_t number, const float* values,
                 const float* errors, void* stream) {
    return launch_segments(segments, number, [&](dim3 grid, const Segments& some) {
        scatter_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(some, values,
                                                                                 errors);
    });
}

int check_cuda() {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, gather_kernel);
    if (error != cudaSuccess) cudaGetLastError();  // which would be taken for that of a launch
    return error;
}

template <class T>
void divide_as(void* data, std::size_t count, std::uint32_t divisor, cudaStream_t stream) {
    constexpr std::size_t grid_max = 65'536;
    const std::size_t grid = (count + kThreads - 1) / kThreads;
    divide_kernel<<<static_cast<unsigned>(grid < grid_max ? grid : grid_max), kThreads, 0,
                    stream>>>(static_cast<T*>(data), count, divisor);
}

int divide_cuda(void* data, std::size_t count, DType type, std::uint32_t divisor, void* stream) {
    if (count == 0 || divisor <= 1) return cudaSuccess;
    const auto on = static_cast<cudaStream_t>(stream);
    switch (type) {
        case DType::f32:
            divide_as<float>(data, count, divisor, on);
            break;
        case DType::f64:
            divide_as<double>(data, count, divisor, on);
            break;
        case DType::f16:
            divide_as<HalfWord>(data, count, divisor, on);
            break;
        case DType::bf16:
            divide_as<BFloatWord>(data, count, divisor, on);
            break;
        case DType::i8:
            divide_as<signed char>(data, count, divisor, on);
            break;
        case DType::u8:
            divide_as<unsigned char>(data, count, divisor, on);
            break;
        case DType::i32:
            divide_as<std::int32_t>(data, count, divisor, on);
            break;
        case DType::i64:
            divide_as<std::int64_t>(data, count, divisor, on);
            break;
    }
    return cudaGetLastError();
}

const char* text_of(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}

constexpr CudaCodecs kCodecs = {
    CudaCodecs::kAbi, check_cuda,  encode_cuda,  decode_cuda, decode_add_cuda,
    combine_cuda,     gather_cuda, scatter_cuda, divide_cuda, text_of,
};

}  // namespace
}  // namespace dtrun::collectives

const dtrun::collectives::CudaCodecs* dtrun_codec_cuda() {
    return &dtrun::collectives::kCodecs;
}
