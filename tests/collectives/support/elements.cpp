#include "tests/collectives/support/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dtrun::collectives {
namespace {

template <class T>
T load_as(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
void store_as(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

/// A float of 16 bits with that many of them for the fraction.
long double load_half(std::uint16_t bits, int fraction_bits) {
    const int exponent_max = (1 << (15 - fraction_bits)) - 1;
    const int bias = exponent_max / 2;
    const int exponent = (bits >> fraction_bits) & exponent_max;
    const long double fraction = bits & ((1 << fraction_bits) - 1);
    const long double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == exponent_max) return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

std::uint16_t store_half(long double value, int fraction_bits) {
    const int exponent_max = (1 << (15 - fraction_bits)) - 1;
    const int bias = exponent_max / 2;
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const int infinity = exponent_max << fraction_bits;
    if (std::isnan(value))
        return static_cast<std::uint16_t>(sign | infinity | 1 << (fraction_bits - 1));
    const long double magnitude = std::fabs(value);
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
    if (magnitude == 0) return sign;
    int exponent = 0;
    std::frexp(magnitude, &exponent);  // magnitude = 0.5..1 * 2^exponent
    exponent = std::max(exponent - 1, 1 - bias);
    // Rounded up to the next power of two, the carry goes where it belongs, into the exponent.
    const auto scaled =
        static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    const long long bits = (static_cast<long long>(exponent + bias - 1) << fraction_bits) + scaled;
    return static_cast<std::uint16_t>(sign | std::min<long long>(bits, infinity));
}

/// Whole numbers that may be added up: the sum of all ranks' fits any type.
long double summand(DType type, std::uint64_t random, std::uint32_t size) {
    const std::uint64_t largest = std::clamp<std::uint64_t>(120 / size, 1, 15);
    if (type == DType::u8) return static_cast<long double>(random % (largest + 1));
    const long double number =
        static_cast<long double>(random % (2 * largest + 1)) - static_cast<long double>(largest);
    switch (type) {  // digits that a shorter type would lose
        case DType::f32:
            return number * (1 + 0x1p-15L);
        case DType::f64:
            return number * (1 + 0x1p-40L);
        case DType::f16:
            return number * (1 + 0x1p-4L);
        case DType::i32:
            return number * 100'003;
        case DType::i64:
            return number * ((1LL << 40) + 1);
        default:
            return number;
    }
}

/// 1 and 2, and their opposites; the product of all ranks' is at most 64.
long double factor(DType type, std::uint64_t random, std::uint32_t rank, std::size_t index,
                   std::uint32_t size) {
    const long double number = (rank + index) % size < 6 && random % 3 != 0 ? 2 : 1;
    return type == DType::u8 || random % 2 != 0 ? number : -number;
}

/// From the whole range of the type or nearly so.
long double any_number(DType type, std::uint64_t random) {
    const auto centred = [&](int bits) {
        return static_cast<long double>(random >> (64 - bits)) -
               static_cast<long double>(1ULL << (bits - 1));
    };
    switch (type) {
        case DType::f32:
            return centred(24) / 1024;
        case DType::f64:
            return centred(53) / 1024;
        case DType::f16:
            return centred(11) / 8;
        case DType::bf16:
            return centred(8);
        case DType::i8:
            return static_cast<std::int8_t>(random >> 56);
        case DType::u8:
            return static_cast<std::uint8_t>(random >> 56);
        case DType::i32:
            return static_cast<std::int32_t>(random >> 32);
        case DType::i64:
            break;
    }
    return static_cast<std::int64_t>(random);
}

long double element(DType type, Reduce reduce, Data data, std::uint32_t rank, std::size_t index,
                    std::uint32_t size) {
    const std::uint64_t random =
        mix(rank, index, static_cast<std::uint64_t>(type) * 8 + static_cast<std::uint64_t>(reduce));
    if (data == Data::inexact) return std::ldexp(static_cast<long double>(random >> 11), -52) - 1;
    switch (reduce) {
        case Reduce::product:
            return factor(type, random, rank, index, size);
        case Reduce::min:
        case Reduce::max:
            return any_number(type, random);
        default:
            return summand(type, random, size);
    }
}

long double combine(Reduce reduce, long double a, long double b) {
    switch (reduce) {
        case Reduce::product:
            return a * b;
        case Reduce::min:
            return std::min(a, b);
        case Reduce::max:
            return std::max(a, b);
        default:
            return a + b;
    }
}

}  // namespace

long double load_element(const std::byte* from, DType type) {
    switch (type) {
        case DType::f32:
            return load_as<float>(from);
        case DType::f64:
            return load_as<double>(from);
        case DType::f16:
            return load_half(load_as<std::uint16_t>(from), 10);
        case DType::bf16:
            return load_half(load_as<std::uint16_t>(from), 7);
        case DType::i8:
            return load_as<std::int8_t>(from);
        case DType::u8:
            return load_as<std::uint8_t>(from);
        case DType::i32:
            return load_as<std::int32_t>(from);
        case DType::i64:
            break;
    }
    return load_as<std::int64_t>(from);
}

void store_element(std::byte* to, DType type, long double value) {
    if (type == DType::f32) return store_as(to, static_cast<float>(value));
    if (type == DType::f64) return store_as(to, static_cast<double>(value));
    if (type == DType::f16) return store_as(to, store_half(value, 10));
    if (type == DType::bf16) return store_as(to, store_half(value, 7));
    const auto whole = static_cast<std::int64_t>(value);
    std::memcpy(to, &whole, bytes_of(type));  // the lower bytes: little endian, as all of dtrun
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xc2b2ae3d27d4eb4f + c * 0x165667b19e3779f9 + 1;
    for (int round = 0; round < 2; ++round) {
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        x ^= x >> 31;
    }
    return x;
}

std::vector<std::byte> rank_period(DType type, Reduce reduce, Data data, std::uint32_t rank,
                                   std::uint32_t size) {
    std::vector<std::byte> bytes(kPeriod * bytes_of(type));
    for (std::size_t i = 0; i < kPeriod; ++i)
        store_element(&bytes[i * bytes_of(type)], type, element(type, reduce, data, rank, i, size));
    return bytes;
}

std::vector<std::byte> reduced_period(DType type, Reduce reduce, Data data, std::uint32_t size) {
    const std::size_t width = bytes_of(type);
    std::vector<long double> results;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        const std::vector<std::byte> one = rank_period(type, reduce, data, rank, size);
        for (std::size_t i = 0; i < kPeriod; ++i) {
            const long double value = load_element(&one[i * width], type);
            if (rank == 0)
                results.push_back(value);
            else
                results[i] = combine(reduce, results[i], value);
        }
    }
    std::vector<std::byte> bytes(kPeriod * width);
    for (std::size_t i = 0; i < kPeriod; ++i) {
        long double value = results[i];
        if (reduce == Reduce::average) value /= size;
        store_element(&bytes[i * width], type, is_float(type) ? value : std::trunc(value));
    }
    return bytes;
}

long double tolerance(DType type, Reduce reduce, Data data, std::uint32_t size) {
    if (!is_float(type) || (data == Data::exact && reduce != Reduce::average)) return 0;
    const long double unit = type == DType::f64   ? 0x1p-52L
                             : type == DType::f32 ? 0x1p-23L
                             : type == DType::f16 ? 0x1p-10L
                                                  : 0x1p-7L;
    if (data == Data::exact) return unit * 16 * 2;  // of averages, which are at most 16
    return unit * size * size;  // a rounding for each rank, of numbers that are at most `size`
}

std::vector<std::byte> repeat(const std::vector<std::byte>& period, std::size_t bytes,
                              std::size_t first) {
    std::vector<std::byte> data(bytes);
    for (std::size_t at = 0; at < bytes;) {
        const std::size_t phase = (first + at) % period.size();
        const std::size_t n = std::min(bytes - at, period.size() - phase);
        std::memcpy(&data[at], &period[phase], n);
        at += n;
    }
    return data;
}

}  // namespace dtrun::collectives
