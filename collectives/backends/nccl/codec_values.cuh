#pragma once

#include "collectives/codec/numbers.h"

// Conversions of one value on a GPU, with the bits of those on a CPU. Every sum and product is
// rounded by itself (__fmul_rn and so on are never fused), except where it says __fmaf_rn.
//
// What is under __CUDA_ARCH__ are instructions of a GPU in place of several; without it the same is
// computed, so that tests can compile these files for a CPU (tests/collectives/nccl/cuda_on_cpu.h).
namespace dtrun::collectives::cuda {

DTRUN_NUMBER bool is_e4m3(Format format) {
    return format == Format::e4m3 || format == Format::e4m3_unscaled;
}
DTRUN_NUMBER std::size_t scale_bytes(Format format) {
    return has_scale(format) ? sizeof(float) : 0;
}
DTRUN_NUMBER std::size_t block_bytes(Format format) {
    return scale_bytes(format) + value_bytes(format) * kBlock;
}

__device__ inline float float_of_half_fast(std::uint32_t half) {
#if defined(__CUDA_ARCH__)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<unsigned short>(half)));
    return x;
#else
    return float_of_half(static_cast<std::uint16_t>(half));
#endif
}

/// To nearest even; not a NaN.
__device__ inline std::uint32_t half_of_fast(float x) {
#if defined(__CUDA_ARCH__)
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    return half_of(x);
#endif
}

/// largest / largest_of(format), rounded as a division is: a product and two fused corrections are
/// exact for every float whose quotient is a normal number (all of them were tried), and scales are.
template <Format format>
__device__ float quotient_of_largest(float largest) {
    constexpr float by = largest_of(format);
    constexpr float inverse = 1.0f / by;
    const float near = __fmul_rn(largest, inverse);
    return __fmaf_rn(__fmaf_rn(-by, near, largest), inverse, near);
}

/// scale_of() of numbers.h.
template <Format format>
__device__ float block_scale(std::uint32_t largest_bits) {
    if (largest_bits > kInfinityBits) return float_of(kQuietNanBits);
    if (largest_bits == kInfinityBits || largest_bits == 0) return float_of(largest_bits);
    const float scale = quotient_of_largest<format>(float_of(largest_bits));
    if (bits_of(scale) < kLeastScaleBits) return float_of(kLeastScaleBits);
    return is_finite(__fmul_rn(scale, largest_of(format))) ? scale : float_of(bits_of(scale) - 1);
}

/// As in block_kernels.h.
template <class Small, Rounding rounding>
__device__ std::uint32_t rounded(std::uint32_t magnitude, std::uint32_t random) {
    const std::uint32_t exponent = max(magnitude & kInfinityBits, Small::kLeastNormalBits);
    const std::uint32_t above = (exponent - Small::kLeastNormalBits) >> Small::kShift;
    if constexpr (rounding == Rounding::nearest) {
        const std::uint32_t magic = exponent + (Small::kShift << 23);
        return bits_of(__fadd_rn(float_of(magnitude), float_of(magic))) - magic + above;
    }
    constexpr std::uint32_t unit = (127 + 127 + kRandomBits + Small::kMantissa) << 23;
    const std::uint32_t fixed =
        __float2uint_rz(__fmul_rn(float_of(magnitude), float_of(unit - exponent)));
    return ((fixed + random) >> kRandomBits) + above;
}

template <Format format, Rounding rounding>
__device__ std::uint32_t fp8_of(float x, std::uint32_t random) {
    const std::uint32_t sign = bits_of(x) >> 24 & 0x80;
    const std::uint32_t magnitude = bits_of(x) & kMagnitudeBits;
    if (!has_scale(format) && magnitude >= kInfinityBits) {
        return sign | (is_e4m3(format) || magnitude > kInfinityBits ? 0x7f : 0x7c);
    }
    if constexpr (is_e4m3(format)) {
        return sign | rounded<E4M3, rounding>(min(magnitude, E4M3::kLargestBits), random);
    } else {
        return sign | rounded<E5M2, rounding>(min(magnitude, E5M2::kLargestBits), random);
    }
}

template <Rounding rounding>
__device__ std::uint32_t int8_of(float x, std::uint32_t random) {
    if constexpr (rounding == Rounding::nearest) {
        return static_cast<std::uint32_t>(__float2int_rn(x));
    }
    const float magnitude = fminf(fabsf(x), 127.0f);
    const std::uint32_t fixed = __float2uint_rz(__fmul_rn(magnitude, 0x1p16f));
    const std::uint32_t code = (fixed + random) >> kRandomBits;
    return bits_of(x) >> 31 != 0 ? 0 - code : code;
}

/// What is above the code's bits is for who stores it to cut off.
template <Format format, Rounding rounding>
__device__ std::uint32_t code_of(float x, std::uint32_t random) {
    const std::uint32_t magnitude = bits_of(x) & kMagnitudeBits;
    if constexpr (format == Format::f16) {
        if (magnitude > kInfinityBits) return half_of(x);
        if constexpr (rounding == Rounding::nearest) return half_of_fast(x);
        const std::uint32_t code = rounded<Half, rounding>(magnitude, random);
        return min(code, 0x7c00u) | (bits_of(x) >> 16 & 0x8000);
    } else if constexpr (format == Format::bf16) {
        if (magnitude > kInfinityBits || rounding == Rounding::nearest) return bf16_of(x);
        return (bits_of(x) + random) >> 16;
    } else if constexpr (format == Format::int8) {
        return int8_of<rounding>(x, random);
    } else {
        return fp8_of<format, rounding>(x, random);
    }
}

/// Codes of two values. \param random  16 bits for each, the lower ones for the first
template <Format format, Rounding rounding>
__device__ void code_pair(float first, float second, std::uint32_t random, std::uint32_t* codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    // One instruction codes both; unscaled infinities and NaNs are no matter of it.
    if constexpr (has_scale(format) && format != Format::int8 && rounding == Rounding::nearest) {
        unsigned short pair;
        if constexpr (is_e4m3(format)) {
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
        } else {
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
        }
        codes[0] = pair & 0xff;
        codes[1] = pair >> 8;
        return;
    }
#endif
    codes[0] = code_of<format, rounding>(first, random & 0xffff);
    codes[1] = code_of<format, rounding>(second, random >> 16);
}

/// Whether an instruction makes floats of two codes of E4M3. Otherwise they pass for halves, with values that
/// are kE4M3Factor times smaller.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
constexpr bool kDecodesE4M3 = true;
#else
constexpr bool kDecodesE4M3 = false;
#endif

/// Values of two codes that lie one behind the other, the first in the lower bits; before they are multiplied
/// by factor_of().
template <Format format>
__device__ void value_pair(std::uint32_t codes, float* values) {
    if constexpr (format == Format::f16) {
        values[0] = float_of_half_fast(codes & 0xffff);
        values[1] = float_of_half_fast(codes >> 16);
    } else if constexpr (format == Format::bf16) {
        values[0] = float_of(codes << 16);
        values[1] = float_of(codes & 0xffff'0000);
    } else if constexpr (format == Format::int8) {
        values[0] = static_cast<float>(static_cast<signed char>(codes & 0xff));
        values[1] = static_cast<float>(static_cast<signed char>(codes >> 8 & 0xff));
    } else if constexpr (is_e4m3(format) && kDecodesE4M3) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        std::uint32_t halves;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
            : "=r"(halves)
            : "h"(static_cast<unsigned short>(codes)));
        values[0] = float_of_half_fast(halves & 0xffff);
        values[1] = float_of_half_fast(halves >> 16);
#endif
    } else if constexpr (is_e4m3(format)) {
        values[0] = float_of_half_fast(half_of_e4m3(static_cast<std::uint8_t>(codes)));
        values[1] = float_of_half_fast(half_of_e4m3(static_cast<std::uint8_t>(codes >> 8)));
    } else {
        values[0] = float_of_half_fast(codes << 8 & 0xff00);
        values[1] = float_of_half_fast(codes & 0xff00);
    }
}

/// Whether value_pair() gives the values themselves.
template <Format format>
__device__ constexpr bool has_factor() {
    return has_scale(format) || (is_e4m3(format) && !kDecodesE4M3);
}

/// What value_pair() of a block's codes is multiplied by.
template <Format format>
__device__ float factor_of(float scale) {
    float factor = 1.0f;
    if constexpr (has_scale(format)) factor = is_finite(scale) ? scale : float_of(kQuietNanBits);
    if constexpr (is_e4m3(format) && !kDecodesE4M3) factor = __fmul_rn(factor, kE4M3Factor);
    return factor;
}

}  // namespace dtrun::collectives::cuda
