#pragma once

#include "collectives/types.h"

#include <cstddef>

namespace dtrun::collectives::native {

/// What a rail adds up between hosts at a time: enough to fill the wire, and little enough to stay in caches.
inline constexpr std::size_t kRailBytesMax = 4UL << 20;
inline constexpr std::size_t kRailBytesMin = 1UL << 20;

/// What each level does; the last one divides.
inline Reduce without_average(Reduce reduce) {
    return reduce == Reduce::average ? Reduce::sum : reduce;
}

}  // namespace dtrun::collectives::native
