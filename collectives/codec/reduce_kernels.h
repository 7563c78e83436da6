#pragma once

// Element-wise reductions for any number of lanes. Included by scalar.cpp, avx2.cpp
// and avx512.cpp only; as in codec/block_kernels.h, everything depends on the lanes, so that
// no two of these files share a function.

#include "collectives/codec/numbers.h"
#include "collectives/types.h"

#include <type_traits>

namespace dtrun::collectives {

/// \tparam V  of codec/lanes_*.h
template <class V>
class ArrayReduction {
    using F = typename V::F;
    using U = typename V::U;

public:
    static void reduce_into(void* out, const void* a, const void* b, std::size_t count, DType type,
                            Reduce reduce) {
        const Arrays arrays{static_cast<unsigned char*>(out), static_cast<const unsigned char*>(a),
                            static_cast<const unsigned char*>(b), count};
        switch (reduce) {
            case Reduce::sum:
            case Reduce::average:
            case Reduce::adasum:
                return reduce_type<Sum>(arrays, type);
            case Reduce::product:
                return reduce_type<Product>(arrays, type);
            case Reduce::min:
                return reduce_type<Min>(arrays, type);
            case Reduce::max:
                return reduce_type<Max>(arrays, type);
        }
    }

    static void divide(void* data, std::size_t count, DType type, std::uint32_t divisor) {
        auto* const at = static_cast<unsigned char*>(data);
        switch (type) {
            case DType::f32:
                return divide_as<float, float>(at, count, divisor);
            case DType::f64:
                return divide_as<double, double>(at, count, divisor);
            case DType::f16:
                return divide_words<Half16>(at, count, divisor);
            case DType::bf16:
                return divide_words<BFloat16>(at, count, divisor);
            // Quotients of these are exact enough that truncation finds the right integer.
            case DType::i8:
                return divide_as<std::int8_t, float>(at, count, divisor);
            case DType::u8:
                return divide_as<std::uint8_t, float>(at, count, divisor);
            case DType::i32:
                return divide_as<std::int32_t, double>(at, count, divisor);
            case DType::i64:
                return divide_i64(at, count, divisor);
        }
    }

private:
    struct Arrays {
        unsigned char* out;
        const unsigned char* a;
        const unsigned char* b;
        std::size_t count;
    };

    /// An element at any address.
    template <class T>
    struct [[gnu::packed, gnu::may_alias]] Cell {
        T value;
    };

    // Operations on numbers, or on lanes of floats. Integers wrap around.
    struct Sum {
        template <class T>
        static T of(T a, T b) {
            return a + b;
        }
    };
    struct Product {
        template <class T>
        static T of(T a, T b) {
            return a * b;
        }
    };
    struct Min {
        template <class T>
        static T of(T a, T b) {
            return ((a <= b) | (a != a)) ? a : b;
        }
    };
    struct Max {
        template <class T>
        static T of(T a, T b) {
            return ((a >= b) | (a != a)) ? a : b;
        }
    };

    struct Half16 {
        static F load(const unsigned char* p) { return V::load_halves(p); }
        static void store(unsigned char* p, F x) { V::store_halves(p, x); }
    };
    struct BFloat16 {
        static F load(const unsigned char* p) { return V::load_bf16(p); }
        static void store(unsigned char* p, F x) {
            const U bits = V::bits(x);
            V::store_words(p, bf16_codes<V>(bits, bf16_nearest<V>(bits)));
        }
    };

    template <class Operation>
    static void reduce_type(const Arrays& arrays, DType type) {
        constexpr bool ordered = std::is_same_v<Operation, Min> || std::is_same_v<Operation, Max>;
        switch (type) {
            case DType::f32:
                return reduce_numbers<Operation, float>(arrays);
            case DType::f64:
                return reduce_numbers<Operation, double>(arrays);
            case DType::f16:
                return reduce_words<Operation, Half16>(arrays);
            case DType::bf16:
                return reduce_words<Operation, BFloat16>(arrays);
            case DType::i8:
                return reduce_numbers<Operation, std::int8_t, ordered>(arrays);
            case DType::u8:
                return reduce_numbers<Operation, std::uint8_t, true>(arrays);
            case DType::i32:
                return reduce_numbers<Operation, std::int32_t, ordered>(arrays);
            case DType::i64:
                return reduce_numbers<Operation, std::int64_t, ordered>(arrays);
        }
    }

    /// \tparam as_is  false: as unsigned integers, whose sums and products may wrap around
    template <class Operation, class T, bool as_is = std::is_floating_point_v<T>>
    static void reduce_numbers(const Arrays& arrays) {
        if constexpr (!as_is) {
            return reduce_numbers<Operation, std::make_unsigned_t<T>, true>(arrays);
        } else {
            auto* const out = reinterpret_cast<Cell<T>*>(arrays.out);
            const auto* const a = reinterpret_cast<const Cell<T>*>(arrays.a);
            const auto* const b = reinterpret_cast<const Cell<T>*>(arrays.b);
            const std::size_t count = arrays.count;
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
            for (std::size_t i = 0; i < count; i++) {
                out[i].value = Operation::template of<T>(a[i].value, b[i].value);
            }
        }
    }

    template <class Operation, class Word>
    static void reduce_words(const Arrays& arrays) {
        constexpr std::size_t bytes = 2 * V::kLanes;
        const std::size_t all = 2 * arrays.count;
        std::size_t i = 0;
        for (; i + bytes <= all; i += bytes) {
            const F value = Operation::of(Word::load(arrays.a + i), Word::load(arrays.b + i));
            Word::store(arrays.out + i, value);
        }
        unsigned char a[bytes] = {};
        unsigned char b[bytes] = {};
        __builtin_memcpy(a, arrays.a + i, all - i);
        __builtin_memcpy(b, arrays.b + i, all - i);
        Word::store(a, Operation::of(Word::load(a), Word::load(b)));
        __builtin_memcpy(arrays.out + i, a, all - i);
    }

    /// \tparam As  a type in which quotients of T and of 32-bit integers are computed
    template <class T, class As>
    static void divide_as(unsigned char* data, std::size_t count, std::uint32_t divisor) {
        auto* const cells = reinterpret_cast<Cell<T>*>(data);
        const auto by = static_cast<As>(divisor);
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
        for (std::size_t i = 0; i < count; i++) {
            cells[i].value = static_cast<T>(static_cast<As>(cells[i].value) / by);
        }
    }

    template <class Word>
    static void divide_words(unsigned char* data, std::size_t count, std::uint32_t divisor) {
        constexpr std::size_t bytes = 2 * V::kLanes;
        const F by = F{} + static_cast<float>(divisor);
        const std::size_t all = 2 * count;
        std::size_t i = 0;
        for (; i + bytes <= all; i += bytes) Word::store(data + i, Word::load(data + i) / by);
        unsigned char tail[bytes] = {};
        __builtin_memcpy(tail, data + i, all - i);
        Word::store(tail, Word::load(tail) / by);
        __builtin_memcpy(data + i, tail, all - i);
    }

    /// Multiplies by a reciprocal, since no processor divides 64-bit integers at memory speed.
    static void divide_i64(unsigned char* data, std::size_t count, std::uint64_t divisor) {
        __extension__ using Wide = unsigned __int128;
        auto* const cells = reinterpret_cast<Cell<std::int64_t>*>(data);
        // The reciprocal is less than 2^64 / divisor, by 1 at most. So quotients of magnitudes up
        // to 2^63 are found exactly or 1 too small.
        const std::uint64_t reciprocal = ~std::uint64_t{0} / divisor;
        for (std::size_t i = 0; i < count; i++) {
            const std::int64_t value = cells[i].value;
            const std::uint64_t sign = value < 0 ? ~std::uint64_t{0} : 0;
            const std::uint64_t magnitude = (static_cast<std::uint64_t>(value) ^ sign) - sign;
            auto quotient = static_cast<std::uint64_t>(Wide{magnitude} * reciprocal >> 64);
            quotient += magnitude - quotient * divisor >= divisor;
            cells[i].value = static_cast<std::int64_t>((quotient ^ sign) - sign);
        }
    }
};

}  // namespace dtrun::collectives
