#pragma once

#include "collectives/codec/numbers.h"

#include <immintrin.h>

namespace dtrun::collectives {

/// Eight values at a time, with AVX2 and F16C. Comments are in lanes_scalar.h.
struct Avx2Lanes {
    static constexpr std::size_t kLanes = 8;
    using F = float __attribute__((vector_size(32)));
    using U = std::uint32_t __attribute__((vector_size(32)));

    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
    static void stream_line(unsigned char* to, const unsigned char* from) {
        for (int k = 0; k < 64; k += 32) {
            _mm256_stream_si256(reinterpret_cast<__m256i*>(to + k),
                                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + k)));
        }
    }
    static void fence() { _mm_sfence(); }
    static U bits(F x) { return reinterpret_cast<U>(x); }
    static F floats(U x) { return reinterpret_cast<F>(x); }
    static U min(U a, U b) { return u(_mm256_min_epu32(i(a), i(b))); }
    static U max(U a, U b) { return u(_mm256_max_epu32(i(a), i(b))); }
    static std::uint32_t largest(U x) {
        __m128i y = _mm_max_epu32(_mm256_castsi256_si128(i(x)), _mm256_extracti128_si256(i(x), 1));
        y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
        y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1));
        return static_cast<std::uint32_t>(_mm_cvtsi128_si32(y));
    }
    static U if_greater(U a, U b, U x, U y) {
        return u(_mm256_blendv_epi8(i(y), i(x), _mm256_cmpgt_epi32(i(a), i(b))));
    }
    static F zero_unless_finite(F x) {
        const U infinity = U{} + kInfinityBits;
        return floats(u(_mm256_andnot_si256(_mm256_cmpeq_epi32(i(bits(x) & infinity), i(infinity)),
                                            i(bits(x)))));
    }
    static U round(F x) { return u(_mm256_cvtps_epi32(x)); }
    static U truncate(F x) { return u(_mm256_cvttps_epi32(x)); }

    static U iota() { return U{0, 1, 2, 3, 4, 5, 6, 7}; }
    static U low_halves(U x) { return u(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(i(x)))); }
    static U high_halves(U x) {
        return u(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(i(x), 1)));
    }

    static void store_words(unsigned char* p, U x) {
        const __m256i words = _mm256_packus_epi32(i(x), i(x));
        const __m256i ordered = _mm256_permute4x64_epi64(words, 0x08);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(ordered));
    }
    template <bool is_signed>
    static void store_bytes(unsigned char* p, const U (&x)[4]) {
        const __m256i low = _mm256_packs_epi32(i(x[0]), i(x[1]));
        const __m256i high = _mm256_packs_epi32(i(x[2]), i(x[3]));
        const __m256i mixed =
            is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm256_permutevar8x32_epi32(mixed, order));
    }
    static void store_halves(unsigned char* p, F x) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }

    static F load_halves(const unsigned char* p) { return _mm256_cvtph_ps(load_16(p)); }
    static F load_bf16(const unsigned char* p) {
        return floats(u(_mm256_cvtepu16_epi32(load_16(p))) << 16);
    }
    static F load_e4m3(const unsigned char* p) {
        const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(load_8(p)), 7);
        const __m128i half = _mm_and_si128(wide, _mm_set1_epi16(static_cast<short>(0xbf80)));
        const __m128i all = _mm_set1_epi16(0x3f80);
        const __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(half, all), all);
        const __m128i exponent = _mm_and_si128(is_nan, _mm_set1_epi16(0x4000));
        return _mm256_cvtph_ps(_mm_or_si128(half, exponent));
    }
    static F load_e5m2(const unsigned char* p) {
        return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load_8(p)), 8));
    }
    static F load_int8(const unsigned char* p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(p)));
    }

private:
    static __m256i i(U x) { return reinterpret_cast<__m256i>(x); }
    static U u(__m256i x) { return reinterpret_cast<U>(x); }
    static __m128i load_16(const unsigned char* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    static __m128i load_8(const unsigned char* p) {
        return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    }
};

}  // namespace dtrun::collectives
