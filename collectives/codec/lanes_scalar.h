#pragma once

#include "collectives/codec/numbers.h"

namespace dtrun::collectives {

/// Lane operations for block_kernels.h, one value at a time: the reference for the vector versions,
/// and the version for processors without AVX2.
struct ScalarLanes {
    static constexpr std::size_t kLanes = 1;
    using F = float;
    using U = std::uint32_t;

    static F load(const float* p) {
        F x;
        __builtin_memcpy(&x, p, sizeof x);
        return x;
    }
    static void store(float* p, F x) { __builtin_memcpy(p, &x, sizeof x); }
    /// Writes 64 bytes, past the caches if the processor can; `to` is aligned, fence() ends a
    /// series.
    static void stream_line(unsigned char* to, const unsigned char* from) {
        __builtin_memcpy(to, from, 64);
    }
    static void fence() {}
    static U bits(F x) { return bits_of(x); }
    static F floats(U x) { return float_of(x); }
    static U min(U a, U b) { return a < b ? a : b; }
    static U max(U a, U b) { return a > b ? a : b; }
    static U largest(U x) { return x; }
    /// a > b ? x : y; a and b are below 2^31
    static U if_greater(U a, U b, U x, U y) { return a > b ? x : y; }
    static F zero_unless_finite(F x) { return is_finite(x) ? x : 0.0f; }
    /// To nearest even; |x| <= 2^22
    static U round(F x) {
        const F magic = 0x1.8p23f;
        return bits_of(x + magic) - bits_of(magic);
    }
    static U truncate(F x) { return static_cast<U>(x); }  ///< 0 <= x < 2^31

    static U iota() { return 0; }
    static U low_halves(U x) { return x & 0xffff; }  ///< of the first half of the lanes, in order
    static U high_halves(U x) { return x >> 16; }    ///< of the second half

    static void store_words(unsigned char* p, U x) {
        const auto word = static_cast<std::uint16_t>(x);
        __builtin_memcpy(p, &word, sizeof word);
    }
    template <bool is_signed>
    static void store_bytes(unsigned char* p, const U (&x)[4]) {
        for (int i = 0; i < 4; i++) p[i] = static_cast<unsigned char>(x[i]);
    }
    static void store_halves(unsigned char* p, F x) { store_words(p, half_of(x)); }

    static F load_halves(const unsigned char* p) { return float_of_half(load_word(p)); }
    static F load_bf16(const unsigned char* p) { return float_of_bf16(load_word(p)); }
    /// Divided by kE4M3Factor.
    static F load_e4m3(const unsigned char* p) { return float_of_half(half_of_e4m3(*p)); }
    static F load_e5m2(const unsigned char* p) { return float_of_half(half_of_e5m2(*p)); }
    static F load_int8(const unsigned char* p) { return static_cast<signed char>(*p); }

private:
    static std::uint16_t load_word(const unsigned char* p) {
        std::uint16_t word;
        __builtin_memcpy(&word, p, sizeof word);
        return word;
    }
};

}  // namespace dtrun::collectives
