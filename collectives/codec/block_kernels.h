#pragma once

// The codecs, for any number of lanes. Only scalar.cpp, avx2.cpp and avx512.cpp include this, each
// compiled for another processor. So neither this file nor its includes may have inline functions
// that two of them share (see numbers.h), as most of the standard library has.

#include "collectives/codec/kernels.h"
#include "collectives/codec/numbers.h"

#include <type_traits>

namespace dtrun::collectives {

/// Input and output of encoding one block.
struct BlockTask {
    const float* values;
    unsigned char* out;
    float* error;  ///< may be null
    BlockKey key;
    const float* ahead;  ///< values of a later block, to prefetch
};

struct BlockScale {
    float scale;
    float inverse;  ///< factor for values before they are rounded
};

/// Blocks of kBlock values; the caller takes care of a shorter one at the end.
template <class V, Format format>
struct BlockCodec {
    using F = typename V::F;
    using U = typename V::U;
    static constexpr std::size_t kGroup = 4 * V::kLanes;
    static_assert(kBlock % kGroup == 0);
    static constexpr std::size_t kValueBytes = value_bytes(format);
    static constexpr bool kWords = kValueBytes == 2;
    static constexpr bool kE4M3 = format == Format::e4m3 || format == Format::e4m3_unscaled;
    static constexpr bool kScaled = has_scale(format);
    static constexpr std::size_t kScaleBytes = kScaled ? sizeof(float) : 0;
    static constexpr std::size_t kBytes = kScaleBytes + kValueBytes * kBlock;
    static constexpr std::size_t bytes_of(std::size_t count) {
        return kScaleBytes + kValueBytes * count;
    }

    static BlockScale scale(const float* values) {
        if constexpr (!kScaled) return {1.0f, 1.0f};
        const float scale = scale_of(format, largest(values));
        return {scale, inverse_of(scale)};
    }

    template <Rounding rounding>
    static void encode(const BlockTask& task, const BlockScale& scale) {
        if constexpr (kScaled) {
            __builtin_memcpy(task.out, &scale.scale, sizeof scale.scale);
            if (!is_finite(scale.scale)) {
                __builtin_memset(task.out + kScaleBytes, 0, kBlock);
                if (task.error != nullptr) __builtin_memset(task.error, 0, kBlock * sizeof(float));
                return;
            }
        }
        encode_values<rounding>(task, task.out + kScaleBytes, scale.inverse);
        if (task.error != nullptr) add_error(task);
    }

    static void decode(const unsigned char* in, float* values) {
        const F factor = F{} + factor_of(in);
        for (std::size_t i = 0; i < kBlock; i += V::kLanes) {
            V::store(values + i, decoded(in + kScaleBytes + i * kValueBytes, factor));
        }
    }

    static void decode_add(const unsigned char* in, float* sums) {
        const F factor = F{} + factor_of(in);
        for (std::size_t i = 0; i < kBlock; i += V::kLanes) {
            const F value = decoded(in + kScaleBytes + i * kValueBytes, factor);
            V::store(sums + i, V::load(sums + i) + value);
        }
    }

private:
    /// Bits of the largest magnitude; those of a NaN are larger than those of all numbers.
    static std::uint32_t largest(const float* values) {
        U most[4] = {};
        for (std::size_t i = 0; i < kBlock; i += kGroup) {
            for (std::size_t k = 0; k < 4; k++) {
                const U bits = V::bits(V::load(values + i + k * V::kLanes));
                most[k] = V::max(most[k], bits & kMagnitudeBits);
            }
        }
        return V::largest(V::max(V::max(most[0], most[1]), V::max(most[2], most[3])));
    }

    template <Rounding rounding>
    static void encode_values(const BlockTask& task, unsigned char* out, float inverse) {
        U counter = V::iota() * kPairStep + task.key.start;
        for (std::size_t i = 0; i < kBlock; i += kGroup) {
            U random[4] = {};
            if constexpr (rounding == Rounding::stochastic) {
                for (std::size_t k = 0; k < 4; k += 2) {
                    const U pairs = random_pairs(task.key, counter);
                    counter += kPairStep * static_cast<std::uint32_t>(V::kLanes);
                    random[k] = V::low_halves(pairs);
                    random[k + 1] = V::high_halves(pairs);
                }
            }
            U codes[4];
            for (std::size_t k = 0; k < 4; k++) {
                F x = V::load(task.values + i + k * V::kLanes);
                __builtin_prefetch(task.ahead + i + k * V::kLanes);
                if constexpr (kScaled) x = x * inverse;
                unsigned char* const to = out + (i + k * V::kLanes) * kValueBytes;
                if constexpr (format == Format::f16 && rounding == Rounding::nearest) {
                    V::store_halves(to, x);
                } else if constexpr (kWords) {
                    V::store_words(to, word_of<rounding>(V::bits(x), random[k]));
                } else if constexpr (format == Format::int8) {
                    codes[k] = int8_of<rounding>(x, random[k]);
                } else {
                    codes[k] = fp8_of<rounding>(V::bits(x), random[k]);
                }
            }
            if constexpr (!kWords) {
                V::template store_bytes<format == Format::int8>(out + i, codes);
            }
        }
    }

    /// random_pair() of numbers.h
    static U random_pairs(BlockKey key, U x) {
        x = (x ^ x >> 16) * 0x7feb'352du;
        x = (x ^ x >> 15) * 0x846c'a68bu;
        return x ^ x >> 16 ^ key.mask;
    }

    /// The exponent of a magnitude, or of the least normal number below which steps are the same.
    template <class Small>
    static U exponent_of(U bits) {
        return V::max(bits & kInfinityBits, U{} + Small::kLeastNormalBits);
    }

    /// Rounds a magnitude to nearest. Its code is in the lower 7 bits; the others are undefined.
    template <class Small>
    static U nearest_fp8(U bits, U magnitude) {
        // Adding a power of two whose last place is that of the result makes the processor round to
        // nearest even. `more` further last places, an even number so that ties stay the same,
        // subtract the code of the least normal number modulo 128.
        constexpr std::uint32_t least_code = Small::kLeastNormalBits >> Small::kShift;
        constexpr std::uint32_t more = 128 - least_code % 128;
        static_assert(more % 2 == 0);
        const U exponent = exponent_of<Small>(bits);
        const U magic = exponent + ((Small::kShift << 23) + more);
        const U sum = V::bits(V::floats(magnitude) + V::floats(magic));
        return sum - exponent + (exponent >> Small::kShift);
    }

    /// Rounds a magnitude up or down at random. Magnitudes beyond the largest get some code beyond
    /// the largest's.
    template <class Small>
    static U stochastic(U magnitude, U random) {
        constexpr std::uint32_t mantissa_step = Small::kMantissa << 23;
        constexpr std::uint32_t unit = ((127 + 127 + kRandomBits) << 23) + mantissa_step;
        const U exponent = exponent_of<Small>(magnitude);
        // In units of 2^-16 of the last place.
        const U fixed = V::truncate(V::floats(magnitude) * V::floats(unit - exponent));
        return ((fixed + random) >> kRandomBits) +
               ((exponent - Small::kLeastNormalBits) >> Small::kShift);
    }

    template <Rounding rounding>
    static U fp8_of(U bits, U random) {
        using Small = std::conditional_t<kE4M3, E4M3, E5M2>;
        constexpr bool nearest = rounding == Rounding::nearest;
        const U magnitude = bits & kMagnitudeBits;
        const U top = bits >> 24;
        U code;
        if constexpr (kScaled && nearest) {
            code = nearest_fp8<Small>(bits, magnitude);  // scaling keeps values in range
        } else {
            const U finite = V::min(magnitude, U{} + Small::kLargestBits);
            code = nearest ? nearest_fp8<Small>(finite, finite) : stochastic<Small>(finite, random);
        }
        if constexpr (!kScaled) {
            const U nan = U{} + 0x7fu;
            code = V::if_greater(magnitude, U{} + (kInfinityBits - 1), kE4M3 ? nan : U{} + 0x7cu,
                                 code);
            code = V::if_greater(magnitude, U{} + kInfinityBits, nan, code);
        }
        return (code & 0x7fu) | (top & ~0x7fu);
    }

    template <Rounding rounding>
    static U int8_of(F x, U random) {
        if constexpr (rounding == Rounding::nearest) return V::round(x);
        const U bits = V::bits(x);
        const U finite = V::min(bits & kMagnitudeBits, U{} + bits_of(127.0f));
        const U fixed = V::truncate(V::floats(finite) * 0x1p16f);
        const U negative = U{} - (bits >> 31);
        return (((fixed + random) >> kRandomBits) ^ negative) - negative;
    }

    template <Rounding rounding>
    static U word_of(U bits, U random) {
        if constexpr (format == Format::bf16) {
            constexpr bool nearest = rounding == Rounding::nearest;
            return bf16_codes<V>(bits, nearest ? bf16_nearest<V>(bits) : random);
        } else {
            const U magnitude = bits & kMagnitudeBits;
            const U infinity = U{} + kInfinityBits;
            const U nan = (magnitude >> 13 & 0x3ffu) | 0x7e00u;
            const U finite = V::min(magnitude, U{} + (kInfinityBits - 1));
            const U code = V::min(stochastic<Half>(finite, random), U{} + 0x7c00u);
            const U sign = bits >> 16 & 0x8000u;
            return V::if_greater(magnitude, infinity, nan, code) | sign;
        }
    }

    /// The factor for decoded codes.
    static float factor_of(const unsigned char* in) {
        float scale = 1.0f;
        if constexpr (kScaled) {
            __builtin_memcpy(&scale, in, sizeof scale);
            if (!is_finite(scale)) scale = float_of(kQuietNanBits);
        }
        return kE4M3 ? scale * kE4M3Factor : scale;
    }

    static F decoded(const unsigned char* in, F factor) {
        if constexpr (format == Format::f16) return V::load_halves(in);
        if constexpr (format == Format::bf16) return V::load_bf16(in);
        if constexpr (format == Format::e5m2_unscaled) return V::load_e5m2(in);
        if constexpr (format == Format::e5m2) return V::load_e5m2(in) * factor;
        if constexpr (format == Format::int8) return V::load_int8(in) * factor;
        if constexpr (kE4M3) return V::load_e4m3(in) * factor;
    }

    static void add_error(const BlockTask& task) {
        const F factor = F{} + factor_of(task.out);
        for (std::size_t i = 0; i < kBlock; i += V::kLanes) {
            const F value = decoded(task.out + kScaleBytes + i * kValueBytes, factor);
            const F lost = V::load(task.values + i) - value;
            V::store(task.error + i, V::zero_unless_finite(V::load(task.error + i) + lost));
        }
    }
};

}  // namespace dtrun::collectives
