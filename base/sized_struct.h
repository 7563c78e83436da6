#pragma once

#include "base/result.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace dtrun {

/// Reads a struct of a C interface that grows: it begins with its `size`, by which older programs say what
/// they know. What lies behind that is zero in the result.
/// \param first_size  of its first version, which every program knows
/// Errc: invalid_input (no size was set, or it has what this library does not know, and that is not zero)
template <class T>
Result<T> read_sized(const T& given, std::size_t first_size, std::string_view name) {
    constexpr std::size_t kBytesMax =
        4'096;  // no struct: the size was not set, but is not zero either
    if (given.size < first_size || given.size > kBytesMax)
        return fail(Errc::invalid_input, "{}: size is {}, set it to sizeof({})", name, given.size,
                    name);
    T own{};
    std::memcpy(&own, &given, std::min(given.size, sizeof own));
    const char* const bytes = reinterpret_cast<const char*>(&given);
    if (given.size > sizeof own &&
        std::any_of(bytes + sizeof own, bytes + given.size, [](char byte) { return byte != 0; }))
        return fail(Errc::invalid_input,
                    "{}: this library is older than the program's header, and does not know all "
                    "that is set",
                    name);
    return own;
}

}  // namespace dtrun
