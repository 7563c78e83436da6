#pragma once

// The codecs, for any number of lanes. Included by scalar.cpp, avx2.cpp and avx512.cpp only, each
// of which is compiled for another processor: nothing here, and nothing that this includes, may be
// an inline function that two of them share (see numbers.h).

#include "collectives/codec/kernels.h"
#include "collectives/codec/numbers.h"

#include <type_traits>

namespace dtrun::collectives {

/// Where the values of a block are, and what becomes of them.
struct BlockTask {
    const float* values;
    unsigned char* out;
    float* error;  ///< may be null
    BlockKey key;
};

/// Blocks of kBlock values; the caller takes care of a shorter one at the end.
template <class V, Format format>
struct BlockCodec {
    using F = typename V::F;
    using U = typename V::U;
    static constexpr std::size_t kGroup = 4 * V::kLanes;
    static_assert(kBlock % kGroup == 0);
    static constexpr bool kWords = format == Format::f16 || format == Format::bf16;
    static constexpr bool kE4M3 = format == Format::e4m3 || format == Format::e4m3_unscaled;
    static constexpr bool kScaled = has_scale(format);
    static constexpr std::size_t kScaleBytes = kScaled ? sizeof(float) : 0;
    static constexpr std::size_t kValueBytes = kWords ? 2 : 1;
    static constexpr std::size_t kBytes = kScaleBytes + kValueBytes * kBlock;

    template <Rounding rounding>
    static void encode(const BlockTask& task) {
        float inverse = 1.0f;
        if constexpr (kScaled) {
            const float scale = scale_of(format, largest(task.values));
            __builtin_memcpy(task.out, &scale, sizeof scale);
            if (is_finite(scale)) {
                inverse = inverse_of(scale);
            } else {
                __builtin_memset(task.out + kScaleBytes, 0, kBlock);
                if (task.error != nullptr) __builtin_memset(task.error, 0, kBlock * sizeof(float));
                return;
            }
        }
        encode_values<rounding>(task.values, task.out + kScaleBytes, inverse, task.key);
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
    static void encode_values(const float* values, unsigned char* out, float inverse,
                              BlockKey key) {
        U counter = V::iota() * kPairStep + key.start;
        for (std::size_t i = 0; i < kBlock; i += kGroup) {
            U random[4] = {};
            if constexpr (rounding == Rounding::stochastic) {
                for (std::size_t k = 0; k < 4; k += 2) {
                    const U pairs = random_pairs(key, counter);
                    counter += kPairStep * static_cast<std::uint32_t>(V::kLanes);
                    random[k] = V::low_halves(pairs);
                    random[k + 1] = V::high_halves(pairs);
                }
            }
            U codes[4];
            for (std::size_t k = 0; k < 4; k++) {
                F x = V::load(values + i + k * V::kLanes);
                prefetch(values + i + k * V::kLanes);
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

    /// What is two blocks ahead: while this one is computed, memory would have nothing to do.
    static void prefetch(const float* values) {
        __builtin_prefetch(
            reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(values) + 2 * kBlock * sizeof(float)));
    }

    /// random_pair() of numbers.h
    static U random_pairs(BlockKey key, U x) {
        x = (x ^ x >> 16) * 0x7feb'352du;
        x = (x ^ x >> 15) * 0x846c'a68bu;
        return x ^ x >> 16 ^ key.mask;
    }

    /// A magnitude as one of few bits, denormal ones included. Beyond the largest the result is
    /// some number beyond its code.
    template <class Small, Rounding rounding>
    static U rounded(U magnitude, U random) {
        constexpr std::uint32_t mantissa_step = Small::kMantissa << 23;
        const U exponent = V::max(magnitude & kInfinityBits, U{} + Small::kLeastNormalBits);
        const U above = (exponent - Small::kLeastNormalBits) >> Small::kShift;
        if constexpr (rounding == Rounding::nearest) {
            // The processor rounds to nearest even when a number that is so much larger is added.
            const U magic = exponent + (Small::kShift << 23);
            return V::bits(V::floats(magnitude) + V::floats(magic)) - magic + above;
        } else {
            // In units of 2^-16 of the last place.
            constexpr std::uint32_t unit = ((127 + 127 + kRandomBits) << 23) + mantissa_step;
            const U fixed = V::truncate(V::floats(magnitude) * V::floats(unit - exponent));
            return ((fixed + random) >> kRandomBits) + above;
        }
    }

    template <Rounding rounding>
    static U fp8_of(U bits, U random) {
        using Small = std::conditional_t<kE4M3, E4M3, E5M2>;
        const U magnitude = bits & kMagnitudeBits;
        const U finite = V::min(magnitude, U{} + Small::kLargestBits);
        U code = rounded<Small, rounding>(finite, random);
        if constexpr (!kScaled) {
            const U nan = U{} + 0x7fu;
            code = V::if_greater(magnitude, U{} + (kInfinityBits - 1), kE4M3 ? nan : U{} + 0x7cu,
                                 code);
            code = V::if_greater(magnitude, U{} + kInfinityBits, nan, code);
        }
        return code | (bits >> 24 & 0x80u);
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
            const U code = V::min(rounded<Half, rounding>(magnitude, random), U{} + 0x7c00u);
            const U sign = bits >> 16 & 0x8000u;
            return V::if_greater(magnitude, infinity, nan, code) | sign;
        }
    }

    /// With what codes are multiplied.
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

/// From this many bytes of f32 on, results go to memory past the caches, which they would only
/// empty: memory then does not have to read what is overwritten.
inline constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

/// Arrays of any length.
template <class V>
struct ArrayCodec {
    static void encode(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                       std::size_t count, unsigned char* out, float* error) {
        with_format(format, [&]<class Codec>(Codec) {
            if (rounding == Rounding::nearest) {
                encode_all<Codec, Rounding::nearest>(seed, values, count, out, error);
            } else {
                encode_all<Codec, Rounding::stochastic>(seed, values, count, out, error);
            }
        });
    }

    static void decode(Format format, const unsigned char* in, std::size_t count, float* values) {
        with_format(format, [&]<class Codec>(Codec) {
            const std::size_t whole = count / kBlock;
            if (count * sizeof(float) < kStreamBytes) {
                for (std::size_t i = 0; i < whole; i++) {
                    Codec::decode(in + i * Codec::kBytes, values + i * kBlock);
                }
            } else {
                stream_decoded<Codec>(in, whole, values);
            }
            const std::size_t rest = count % kBlock;
            if (rest == 0) return;
            float tail[kBlock];
            decode_tail<Codec>(in + whole * Codec::kBytes, rest, tail);
            __builtin_memcpy(values + whole * kBlock, tail, rest * sizeof(float));
        });
    }

    static void decode_add(Format format, const unsigned char* in, std::size_t count,
                           float* sums) {
        with_format(format, [&]<class Codec>(Codec) {
            const std::size_t whole = count / kBlock;
            for (std::size_t i = 0; i < whole; i++) {
                Codec::decode_add(in + i * Codec::kBytes, sums + i * kBlock);
            }
            const std::size_t rest = count % kBlock;
            if (rest == 0) return;
            unsigned char padded[Codec::kBytes] = {};
            __builtin_memcpy(padded, in + whole * Codec::kBytes, tail_bytes<Codec>(rest));
            float tail[kBlock] = {};
            __builtin_memcpy(tail, sums + whole * kBlock, rest * sizeof(float));
            Codec::decode_add(padded, tail);
            __builtin_memcpy(sums + whole * kBlock, tail, rest * sizeof(float));
        });
    }

private:
    template <class F>
    static void with_format(Format format, F&& use) {
        switch (format) {
            case Format::f16:
                return use(BlockCodec<V, Format::f16>());
            case Format::bf16:
                return use(BlockCodec<V, Format::bf16>());
            case Format::e4m3:
                return use(BlockCodec<V, Format::e4m3>());
            case Format::e5m2:
                return use(BlockCodec<V, Format::e5m2>());
            case Format::int8:
                return use(BlockCodec<V, Format::int8>());
            case Format::e4m3_unscaled:
                return use(BlockCodec<V, Format::e4m3_unscaled>());
            case Format::e5m2_unscaled:
                return use(BlockCodec<V, Format::e5m2_unscaled>());
        }
    }

    template <class Codec>
    static constexpr std::size_t tail_bytes(std::size_t count) {
        return Codec::kScaleBytes + count * Codec::kValueBytes;
    }

    template <class Codec, Rounding rounding>
    static void encode_all(std::uint64_t seed, const float* values, std::size_t count,
                           unsigned char* out, float* error) {
        const std::uint64_t mixed = mix64(seed);
        const std::size_t whole = count / kBlock;
        for (std::size_t i = 0; i < whole; i++) {
            Codec::template encode<rounding>(
                {values + i * kBlock, out + i * Codec::kBytes,
                 error == nullptr ? nullptr : error + i * kBlock, key_of_block(mixed, i)});
        }
        const std::size_t rest = count % kBlock;
        if (rest == 0) return;
        float tail[kBlock] = {};
        float tail_error[kBlock] = {};
        unsigned char padded[Codec::kBytes];
        const std::size_t bytes = rest * sizeof(float);
        __builtin_memcpy(tail, values + whole * kBlock, bytes);
        if (error != nullptr) __builtin_memcpy(tail_error, error + whole * kBlock, bytes);
        Codec::template encode<rounding>(
            {tail, padded, error == nullptr ? nullptr : tail_error, key_of_block(mixed, whole)});
        __builtin_memcpy(out + whole * Codec::kBytes, padded, tail_bytes<Codec>(rest));
        if (error != nullptr) __builtin_memcpy(error + whole * kBlock, tail_error, bytes);
    }

    template <class Codec>
    static void stream_decoded(const unsigned char* in, std::size_t blocks, float* values) {
        constexpr std::size_t at_once = 8;
        alignas(64) float staged[at_once * kBlock];
        for (std::size_t i = 0; i < blocks; i += at_once) {
            const std::size_t now = blocks - i < at_once ? blocks - i : at_once;
            for (std::size_t k = 0; k < now; k++) {
                Codec::decode(in + (i + k) * Codec::kBytes, staged + k * kBlock);
            }
            stream(reinterpret_cast<unsigned char*>(values + i * kBlock),
                   reinterpret_cast<const unsigned char*>(staged), now * kBlock * sizeof(float));
        }
        V::fence();
    }

    static void stream(unsigned char* to, const unsigned char* from, std::size_t bytes) {
        constexpr std::size_t line = 64;
        const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % line;
        __builtin_memcpy(to, from, head);
        std::size_t i = head;
        for (; i + line <= bytes; i += line) V::stream_line(to + i, from + i);
        __builtin_memcpy(to + i, from + i, bytes - i);
    }

    template <class Codec>
    static void decode_tail(const unsigned char* in, std::size_t count, float* values) {
        unsigned char padded[Codec::kBytes] = {};
        __builtin_memcpy(padded, in, tail_bytes<Codec>(count));
        Codec::decode(padded, values);
    }
};

}  // namespace dtrun::collectives
