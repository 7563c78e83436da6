#pragma once

#include "base/result.h"

#include <cstdint>
#include <string_view>

namespace dtrun::collectives {

/// Instructions that loops over arrays are compiled for, each in a file of its own.
enum class Isa : std::uint8_t {
    scalar,
    avx2,    ///< with F16C
    avx512,  ///< F, BW, DQ and VL
};

/// The best instructions that processor and operating system have, unless a test set others.
Isa isa();
/// Sets the instructions, for tests. Errc: not_found (this processor lacks them)
Result<void> set_isa(Isa isa);

std::string_view name_of(Isa isa);  ///< "scalar", "avx2", "avx512"

}  // namespace dtrun::collectives
