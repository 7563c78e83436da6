#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

/// How f32 are written with fewer bits. Values are those of dtrun_format in <dtrun_collectives.h>.
enum class Format : std::uint8_t {
    f16 = 1,   ///< one by one, without a scale; beyond 65,504 infinity
    bf16 = 2,  ///< one by one, without a scale
    e4m3 = 3,  ///< OCP 8-bit floats in blocks of 256 with one scale: E4M3 (no infinity, max 448)
    e5m2 = 4,  ///< the same, E5M2 (max 57,344)
    int8 = 5,  ///< -127..127 in blocks of 256 with one scale
    e4m3_unscaled = 6,  ///< one by one: what is below 2^-10 becomes 0, which is how training fails
    e5m2_unscaled = 7,
};

enum class Rounding : std::uint8_t {
    nearest = 0,     ///< to even
    stochastic = 1,  ///< up or down at random, so that the mean is right
};

inline constexpr std::size_t kBlock = 256;  ///< values that share a scale

}  // namespace dtrun::collectives
