#pragma once

#include "collectives/types.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrun::collectives {

/// Converts between elements of any type and long double, which holds all of them exactly. Slow and
/// plain, so that fast conversions can be compared with it.
long double load_element(const std::byte* from, DType type);
/// Rounds to nearest even; integers wrap around.
void store_element(std::byte* to, DType type, long double value);

/// Numbers that look random and depend on nothing but the arguments.
std::uint64_t mix(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0);

/// Data of ranks, which repeat every kPeriod elements, so that large ones are cheap: a prime number,
/// so that parts of a power of two that are mixed up do not look the same.
inline constexpr std::size_t kPeriod = 1021;

/// How a rank's data are chosen.
enum class Data : std::uint8_t {
    exact,   ///< results need no rounding (but for averages), whatever the order of operations
    inexact  ///< between -1 and 1; for floating-point sums and averages
};

/// The first kPeriod elements of a rank's data.
std::vector<std::byte> rank_period(DType type, Reduce reduce, Data data, std::uint32_t rank,
                                   std::uint32_t size);
/// What they are reduced to.
std::vector<std::byte> reduced_period(DType type, Reduce reduce, Data data, std::uint32_t size);
/// By how much a right result may differ.
long double tolerance(DType type, Reduce reduce, Data data, std::uint32_t size);

/// `bytes` bytes of data that repeat, from byte `first` on.
std::vector<std::byte> repeat(const std::vector<std::byte>& period, std::size_t bytes,
                              std::size_t first = 0);

}  // namespace dtrun::collectives
