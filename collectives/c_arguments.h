#pragma once

#include "collectives/compression.h"
#include "collectives/handles.h"
#include "collectives/include/dtrun_collectives.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

/// Arguments of the C interface: whether they can be right, and what they are in C++.
namespace dtrun::collectives {

inline Result<void> check(const dtrun_comm* comm) {
    if (comm == nullptr) return fail(Errc::invalid_input, "comm is NULL");
    return {};
}

/// \param parts  of `count` elements each
inline Result<void> check(int dtype, const void* data, std::size_t count, const char* name,
                          std::size_t parts = 1) {
    if (dtype < 0 || dtype >= static_cast<int>(kDTypes))
        return fail(Errc::invalid_input, "there is no dtype {}", dtype);
    if (count > PTRDIFF_MAX / bytes_of(static_cast<DType>(dtype)) / parts)
        return fail(Errc::invalid_input, "{} cannot have {} elements", name, count);
    if (data == nullptr && count > 0) return fail(Errc::invalid_input, "{} is NULL", name);
    return {};
}

inline std::size_t ranks_of(const dtrun_comm* comm) {
    return comm != nullptr ? comm->communicator->size() : 1;
}

inline Result<void> check_apart(const void* in, const void* out, std::size_t count) {
    if (in != out || count == 0) return {};
    return fail(Errc::invalid_input, "in and out are one array: give two");
}

/// Limits timeouts to a year, since the largest ones would overflow a clock.
inline std::chrono::milliseconds span_of(std::int64_t ms) {
    constexpr std::int64_t kYearMs = 365LL * 24 * 3'600'000;
    return std::chrono::milliseconds(ms < 0 ? kYearMs : std::min(ms, kYearMs));
}

inline Result<void> check_reduce(int reduce) {
    if (reduce >= DTRUN_SUM && reduce <= DTRUN_ADASUM) return {};
    return fail(Errc::invalid_input, "there is no reduction {}", reduce);
}

/// The first of several checks that fails.
template <class... Checked>
Result<void> first_failure(const Checked&... checked) {
    Result<void> first;
    ((first = first ? checked : first), ...);
    return first;
}

/// nullopt: none is asked for. Errc: invalid_input (there is no such format)
Result<std::optional<Compression>> compression_of(const dtrun_compression* given);

inline const Compression* pointer(const std::optional<Compression>& compression) {
    return compression ? &*compression : nullptr;
}

inline DType type_of(int dtype) {
    return static_cast<DType>(dtype);
}

inline Reduce reduce_of(int reduce) {
    return static_cast<Reduce>(reduce);
}

}  // namespace dtrun::collectives
