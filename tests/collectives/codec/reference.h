#pragma once

#include "collectives/codec/codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

/// Small floats as their definitions have them, in plain arithmetic: what the codecs are held
/// against. Nothing here is fast, and nothing is shared with the codecs.
namespace dtrun::collectives::reference {

struct SmallFloat {
    int exponent_bits;
    int mantissa_bits;
    int bias;
    bool has_infinity;  ///< else only the pattern of all ones is no number

    std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
    /// Of the largest finite number; codes from 0 to this are numbers in ascending order.
    std::uint32_t largest() const {
        const std::uint32_t all = sign_bit() - 1;
        return has_infinity ? all - (1u << mantissa_bits) : all - 1;
    }
    double value(std::uint32_t code) const {
        const double sign = code & sign_bit() ? -1.0 : 1.0;
        const auto magnitude = static_cast<int>(code & (sign_bit() - 1));
        if (static_cast<std::uint32_t>(magnitude) > largest()) {
            const bool infinite =
                has_infinity && static_cast<std::uint32_t>(magnitude) == largest() + 1;
            return infinite ? sign * std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
        }
        const int exponent = magnitude >> mantissa_bits;
        const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
        const int units = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
        const int power = (exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
        return sign * std::ldexp(static_cast<double>(units), power);
    }
    /// The nearest code, an even one of two; finite only, and beyond the largest that one or, where
    /// there is one, infinity from half a step on.
    std::uint32_t nearest(double x, bool saturates) const {
        const double magnitude = std::fabs(x);
        std::uint32_t low = 0;
        std::uint32_t high = largest() + 1;
        while (high - low > 1) {
            const std::uint32_t middle = (low + high) / 2;
            (value(middle) <= magnitude ? low : high) = middle;
        }
        std::uint32_t code = low;
        const double top = 2 * value(largest()) - value(largest() - 1);
        const double above = high > largest() ? top : value(high);
        const double distance = magnitude - value(low) - (above - magnitude);
        if (distance > 0 || (distance == 0 && low % 2 == 1)) code = high;
        if (saturates && code > largest()) code = largest();
        return code | (std::signbit(x) ? sign_bit() : 0);
    }
};

inline constexpr SmallFloat kHalf{5, 10, 15, true};
inline constexpr SmallFloat kBFloat16{8, 7, 127, true};
inline constexpr SmallFloat kE4M3{4, 3, 7, false};
inline constexpr SmallFloat kE5M2{5, 2, 15, true};

/// The dispatch variants that this processor has.
inline std::vector<std::string> variants() {
    const std::string before(codec_dispatch());
    std::vector<std::string> found;
    for (const char* const name : {"scalar", "avx2", "avx512"}) {
        if (set_codec_dispatch(name)) found.emplace_back(name);
    }
    static_cast<void>(set_codec_dispatch(before));
    return found;
}

/// Chooses a variant while it lives.
class Variant {
public:
    explicit Variant(const std::string& name) : before_(codec_dispatch()) {
        static_cast<void>(set_codec_dispatch(name));
    }
    ~Variant() { static_cast<void>(set_codec_dispatch(before_)); }
    Variant(const Variant&) = delete;
    Variant& operator=(const Variant&) = delete;

private:
    std::string before_;
};

inline constexpr Format kFormats[] = {
#define DTRUN_FORMAT(format, ...) Format::format,
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
};

inline std::vector<std::byte> encoded(Format format, const std::vector<float>& values,
                                      Rounding rounding = Rounding::nearest,
                                      std::uint64_t seed = 0) {
    std::vector<std::byte> out(encoded_bytes(format, values.size()));
    encode(format, rounding, seed, values.data(), values.size(), out.data());
    return out;
}

inline std::vector<float> decoded(Format format, const std::vector<std::byte>& in,
                                  std::size_t count) {
    std::vector<float> values(count);
    decode(format, in.data(), count, values.data());
    return values;
}

/// Every 0 an equal 0, every NaN an equal NaN.
inline bool same(float a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return static_cast<double>(a) == b && std::signbit(a) == std::signbit(b);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline std::vector<float> normal_values(std::size_t count, float deviation, unsigned seed) {
    std::minstd_rand random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random) * deviation;
    return values;
}

}  // namespace dtrun::collectives::reference
