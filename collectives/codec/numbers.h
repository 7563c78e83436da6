#pragma once

// Conversions of one number, and random bits. Everything else is made of these or agrees with them
// bit by bit: vector kernels, CUDA kernels, reductions.
//
// Functions are static: files that include this are compiled for different processors, and the
// linker must not keep one file's version for all.

#include "collectives/codec/format.h"

#include <cstdint>

#if defined(__CUDACC__)
#define DTRUN_NUMBER __host__ __device__ static inline constexpr
#else
#define DTRUN_NUMBER static inline constexpr
#endif

namespace dtrun::collectives {

inline constexpr std::uint32_t kMagnitudeBits = 0x7fff'ffff;
inline constexpr std::uint32_t kInfinityBits = 0x7f80'0000;  ///< and all bits of the exponent
inline constexpr std::uint32_t kQuietNanBits = 0x7fc0'0000;
/// The least scale of a block that is not all zero (f32's least normal number): its reciprocal
/// does not overflow, and products with it keep their precision.
inline constexpr std::uint32_t kLeastScaleBits = 0x0080'0000;
inline constexpr unsigned kRandomBits = 16;  ///< for one value that is rounded at random

/// Properties of a 16-bit or 8-bit float on which rounding depends.
template <unsigned mantissa_bits, unsigned exponent_bias, std::uint32_t largest_bits>
struct SmallFloat {
    static constexpr unsigned kMantissa = mantissa_bits;
    static constexpr unsigned kShift = 23 - mantissa_bits;
    static constexpr std::uint32_t kLeastNormalBits = (128 - exponent_bias) << 23;  ///< as an f32
    static constexpr std::uint32_t kLargestBits = largest_bits;                     ///< as an f32
};
using Half = SmallFloat<10, 15, 0x477f'e000>;  ///< 65,504
using E4M3 = SmallFloat<3, 7, 0x43e0'0000>;    ///< 448
using E5M2 = SmallFloat<2, 15, 0x4760'0000>;   ///< 57,344

DTRUN_NUMBER std::uint32_t bits_of(float value) {
    return __builtin_bit_cast(std::uint32_t, value);
}
DTRUN_NUMBER float float_of(std::uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}

DTRUN_NUMBER bool is_finite(float value) {
    return (bits_of(value) & kInfinityBits) != kInfinityBits;
}

/// The largest number of a format, to which a block's largest magnitude is scaled (formats.def).
DTRUN_NUMBER float largest_of(Format format) {
    switch (format) {
#define DTRUN_FORMAT(format, c_name, value, name, bits, block, largest, ...) \
    case Format::format:                                                     \
        return largest;
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
    }
    return 0;
}

DTRUN_NUMBER bool has_scale(Format format) {
    switch (format) {
#define DTRUN_FORMAT(format, c_name, value, name, bits, block, ...) \
    case Format::format:                                            \
        return block > 1;
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
    }
    return false;
}

DTRUN_NUMBER unsigned value_bytes(Format format) {
    switch (format) {
#define DTRUN_FORMAT(format, c_name, value, name, bits, ...) \
    case Format::format:                                     \
        return bits / 8;
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
    }
    return 0;
}

/// The scale of a block whose largest magnitude has these bits.
DTRUN_NUMBER float scale_of(Format format, std::uint32_t largest_bits) {
    if (largest_bits > kInfinityBits) return float_of(kQuietNanBits);
    if (largest_bits == kInfinityBits || largest_bits == 0) return float_of(largest_bits);
    const float scale = float_of(largest_bits) / largest_of(format);
    if (bits_of(scale) < kLeastScaleBits) return float_of(kLeastScaleBits);
    // With a scale that was rounded up, the largest floats would be decoded as infinity.
    return is_finite(scale * largest_of(format)) ? scale : float_of(bits_of(scale) - 1);
}

/// The factor for a block's values before they are rounded.
DTRUN_NUMBER float inverse_of(float scale) {
    return scale == 0.0f ? 0.0f : 1.0f / scale;
}

/// Rounds to nearest even.
DTRUN_NUMBER std::uint16_t half_of(float value) {
    const std::uint32_t sign = bits_of(value) >> 16 & 0x8000;
    const std::uint32_t magnitude = bits_of(value) & kMagnitudeBits;
    if (magnitude > kInfinityBits) {
        return static_cast<std::uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    }
    if (magnitude >= 0x4780'0000) return static_cast<std::uint16_t>(sign | 0x7c00);
    // Adding a power of two rounds to the bits that a half has room for.
    std::uint32_t exponent = magnitude & kInfinityBits;
    if (exponent < Half::kLeastNormalBits) exponent = Half::kLeastNormalBits;
    const std::uint32_t magic = exponent + (Half::kShift << 23);
    const std::uint32_t sum = bits_of(float_of(magnitude) + float_of(magic));
    return static_cast<std::uint16_t>(
        sign | (sum - magic + ((exponent - Half::kLeastNormalBits) >> Half::kShift)));
}

/// A NaN becomes a quiet one.
DTRUN_NUMBER float float_of_half(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    const std::uint32_t exponent = half >> 10 & 0x1f;
    const std::uint32_t mantissa = half & 0x3ff;
    if (exponent == 0x1f) {
        const std::uint32_t quiet = mantissa == 0 ? 0 : 0x40'0000;
        return float_of(sign | kInfinityBits | quiet | mantissa << 13);
    }
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

/// Rounds to nearest even.
DTRUN_NUMBER std::uint16_t bf16_of(float value) {
    const std::uint32_t bits = bits_of(value);
    if ((bits & kMagnitudeBits) > kInfinityBits) {
        return static_cast<std::uint16_t>(bits >> 16 | 0x40);
    }
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// bf16_of() for lanes of block_kernels.h.
/// \param up  what is added below the last place that is kept
template <class V>
static inline typename V::U bf16_codes(typename V::U bits, typename V::U up) {
    return V::if_greater(bits & kMagnitudeBits, typename V::U{} + kInfinityBits, bits >> 16 | 0x40u,
                         (bits + up) >> 16);
}
template <class V>
static inline typename V::U bf16_nearest(typename V::U bits) {
    return (bits >> 16 & 1u) + 0x7fffu;
}

DTRUN_NUMBER float float_of_bf16(std::uint16_t value) {
    return float_of(static_cast<std::uint32_t>(value) << 16);
}

/// The half whose value is 2^8 times smaller than the code's; the scale makes up for that.
DTRUN_NUMBER std::uint16_t half_of_e4m3(std::uint8_t code) {
    const unsigned sign = static_cast<unsigned>(code & 0x80) << 8;
    const unsigned magnitude = code & 0x7f;
    return static_cast<std::uint16_t>(magnitude == 0x7f ? sign | 0x7f80 : sign | magnitude << 7);
}
inline constexpr float kE4M3Factor = 256.0f;

DTRUN_NUMBER std::uint16_t half_of_e5m2(std::uint8_t code) {
    return static_cast<std::uint16_t>(code << 8);
}

/// Random numbers are a function of the seed and of the value's place, so that every processor
/// finds the same ones. This is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable
/// pseudorandom number generators", 2014).
DTRUN_NUMBER std::uint64_t mix64(std::uint64_t x) {
    x += 0x9e37'79b9'7f4a'7c15;
    x = (x ^ x >> 30) * 0xbf58'476d'1ce4'e5b9;
    x = (x ^ x >> 27) * 0x94d0'49bb'1331'11eb;
    return x ^ x >> 31;
}

/// What the random numbers of one block are made from.
struct BlockKey {
    std::uint32_t start;
    std::uint32_t mask;
};
inline constexpr std::uint32_t kPairStep = 0x9e37'79b9;

/// \param mixed_seed  mix64(seed)
DTRUN_NUMBER BlockKey key_of_block(std::uint64_t mixed_seed, std::uint64_t block) {
    const std::uint64_t key = mix64(mixed_seed ^ block);
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

/// 32 random bits for each two values of a block, the lower 16 for the first of them.
/// \param counter  key.start + pair * kPairStep
DTRUN_NUMBER std::uint32_t random_pair(BlockKey key, std::uint32_t counter) {
    std::uint32_t x = counter;
    x = (x ^ x >> 16) * 0x7feb'352d;
    x = (x ^ x >> 15) * 0x846c'a68b;
    return x ^ x >> 16 ^ key.mask;
}

}  // namespace dtrun::collectives
