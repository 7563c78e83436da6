#pragma once

#include "collectives/codec/numbers.h"

#include <immintrin.h>

namespace dtrun::collectives {

/// Sixteen values at a time, with AVX-512 F, BW, DQ and VL. Comments are in lanes_scalar.h.
struct Avx512Lanes {
    static constexpr std::size_t kLanes = 16;
    using F = float __attribute__((vector_size(64)));
    using U = std::uint32_t __attribute__((vector_size(64)));

    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
    static void stream_line(unsigned char* to, const unsigned char* from) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
    }
    static void fence() { _mm_sfence(); }
    static U bits(F x) { return reinterpret_cast<U>(x); }
    static F floats(U x) { return reinterpret_cast<F>(x); }
    static U min(U a, U b) { return u(_mm512_min_epu32(i(a), i(b))); }
    static U max(U a, U b) { return u(_mm512_max_epu32(i(a), i(b))); }
    static std::uint32_t largest(U x) { return _mm512_reduce_max_epu32(i(x)); }
    static U if_greater(U a, U b, U x, U y) {
        return u(_mm512_mask_mov_epi32(i(y), _mm512_cmpgt_epu32_mask(i(a), i(b)), i(x)));
    }
    static F zero_unless_finite(F x) {
        const U infinity = U{} + kInfinityBits;
        const __mmask16 finite = _mm512_cmpneq_epu32_mask(i(bits(x) & infinity), i(infinity));
        return _mm512_maskz_mov_ps(finite, x);
    }
    static U round(F x) { return u(_mm512_cvtps_epi32(x)); }
    static U truncate(F x) { return u(_mm512_cvttps_epi32(x)); }

    static U iota() { return U{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
    static U low_halves(U x) { return u(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(i(x)))); }
    static U high_halves(U x) {
        return u(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(i(x), 1)));
    }

    static void store_words(unsigned char* p, U x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(i(x)));
    }
    template <bool is_signed>
    static void store_bytes(unsigned char* p, const U (&x)[4]) {
        const __m512i low = _mm512_packs_epi32(i(x[0]), i(x[1]));
        const __m512i high = _mm512_packs_epi32(i(x[2]), i(x[3]));
        const __m512i mixed =
            is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
        const __m512i order =
            _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, mixed));
    }
    static void store_halves(unsigned char* p, F x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }

    static F load_halves(const unsigned char* p) { return _mm512_cvtph_ps(load_32(p)); }
    static F load_bf16(const unsigned char* p) {
        return floats(u(_mm512_cvtepu16_epi32(load_32(p))) << 16);
    }
    static F load_e4m3(const unsigned char* p) {
        const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_16(p)), 7);
        const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<short>(0xbf80)));
        const __m256i all = _mm256_set1_epi16(0x3f80);
        const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, all), all);
        return _mm512_cvtph_ps(
            _mm256_mask_add_epi16(half, is_nan, half, _mm256_set1_epi16(0x4000)));
    }
    static F load_e5m2(const unsigned char* p) {
        return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load_16(p)), 8));
    }
    static F load_int8(const unsigned char* p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p)));
    }

private:
    static __m512i i(U x) { return reinterpret_cast<__m512i>(x); }
    static U u(__m512i x) { return reinterpret_cast<U>(x); }
    static __m256i load_32(const unsigned char* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
    static __m128i load_16(const unsigned char* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
};

}  // namespace dtrun::collectives
