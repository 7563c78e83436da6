#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

inline constexpr std::size_t kBlock = 256;  ///< values that share a scale

/// Results that are as large as this are written past the caches (non-temporal stores). Otherwise they would evict
/// everything else, and lines would be read before being overwritten.
inline constexpr std::size_t kPastCachesBytes = std::size_t{8} << 20;

/// How f32 are written with fewer bits; formats.def says what each of them is. f16 and bf16 are the
/// 16-bit floats; e4m3 and e5m2 are the 8-bit floats of OCP (E4M3 has no infinity); int8 is
/// -127..127. Values are those of dtrun_format in <dtrun_collectives.h>.
///
/// Nothing else belongs into this header: kernels for some processors and for GPUs include it.
enum class Format : std::uint8_t {
#define DTRUN_FORMAT(format, c_name, value, ...) format = value,
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
};

enum class Rounding : std::uint8_t {
    nearest = 0,     ///< to even
    stochastic = 1,  ///< up or down at random, so that the mean is right
};

}  // namespace dtrun::collectives
