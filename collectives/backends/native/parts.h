#pragma once

#include "collectives/types.h"

#include <cstddef>
#include <cstring>

namespace dtrun::collectives::native {

/// What a rail adds up between hosts at a time: enough to fill the wire, and little enough to stay in caches.
inline constexpr std::size_t kRailBytesMax = 4UL << 20;
inline constexpr std::size_t kRailBytesMin = 1UL << 20;

inline std::byte* at_byte(void* data, std::size_t offset) {
    return static_cast<std::byte*>(data) + offset;
}
inline const std::byte* at_byte(const void* data, std::size_t offset) {
    return static_cast<const std::byte*>(data) + offset;
}

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

/// What each level does; the last one divides.
inline Reduce without_average(Reduce reduce) {
    return reduce == Reduce::average ? Reduce::sum : reduce;
}

}  // namespace dtrun::collectives::native
