#pragma once

#include "collectives/api/handles.h"
#include "collectives/compression.h"
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
    if (dtype < 0 || dtype >= static_cast<int>(kDTypesMoved))
        return fail(Errc::invalid_input, "there is no dtype {}", dtype);
    if (count > PTRDIFF_MAX / bytes_of(static_cast<DType>(dtype)) / parts)
        return fail(Errc::invalid_input, "{} cannot have {} elements", name, count);
    if (data == nullptr && count > 0) return fail(Errc::invalid_input, "{} is NULL", name);
    return {};
}

/// Bytes in the caller's memory.
struct CallerBytes {
    std::uintptr_t begin;
    std::size_t bytes;
    bool overlaps(const CallerBytes& other) const {
        return bytes != 0 && other.bytes != 0 && begin < other.begin + other.bytes &&
               other.begin < begin + bytes;
    }
};

inline CallerBytes bytes_at(int dtype, const void* data, std::size_t count) {
    return {reinterpret_cast<std::uintptr_t>(data), count * bytes_of(static_cast<DType>(dtype))};
}

inline constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

/// Checks that two arrays do not overlap, but where an operation works in place.
/// \param in_place  how many elements behind the beginning of `whole` the part may lie, or kNowhere
inline Result<void> check_apart(int dtype, const void* whole, std::size_t whole_count,
                                const void* part, std::size_t part_count, std::size_t in_place) {
    const CallerBytes all = bytes_at(dtype, whole, whole_count);
    const CallerBytes one = bytes_at(dtype, part, part_count);
    if (!all.overlaps(one)) return {};
    if (in_place != kNowhere && one.begin == all.begin + bytes_at(dtype, nullptr, in_place).bytes)
        return {};
    return fail(Errc::invalid_input, "in and out overlap: {}",
                in_place == kNowhere
                    ? "give two arrays that lie apart"
                    : "where it works in place they have to lie as the header says");
}

/// Checks that no two of many arrays, and of their buffers for error feedback, overlap.
/// \param errors  may be nullptr
Result<void> check_all_apart(int dtype, void* const* arrays, const std::size_t* counts,
                             std::size_t number, float* const* errors);

/// Limits timeouts to a year, since the largest ones would overflow a clock.
inline std::chrono::milliseconds span_of(std::int64_t ms) {
    constexpr std::int64_t kYearMs = 365LL * 24 * 3'600'000;
    return std::chrono::milliseconds(ms < 0 ? kYearMs : std::min(ms, kYearMs));
}

/// \param dtype  which there is
inline Result<void> check_reduce(int dtype, int reduce) {
    if (reduce < DTRUN_SUM || reduce > DTRUN_ADASUM)
        return fail(Errc::invalid_input, "there is no reduction {}", reduce);
    if (can_reduce(static_cast<DType>(dtype), static_cast<Reduce>(reduce))) return {};
    return fail(Errc::invalid_input, "elements of type {} are not reduced with {}",
                name_of(static_cast<DType>(dtype)), name_of(static_cast<Reduce>(reduce)));
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

/// An operation as a program gives it, with numbers that need not be right.
struct Given {
    Operation::Kind kind;
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 0;
    int dtype = DTRUN_F32;
    std::uint32_t root = 0;
    int reduce = DTRUN_SUM;
    const dtrun_compression* compression = nullptr;
    const std::size_t* counts = nullptr;
};

/// The same, which is right once that was checked.
inline Operation operation_of(const dtrun_comm* comm, const Given& given) {
    Operation what{
        given.kind, given.in, given.out, given.count, type_of(given.dtype), reduce_of(given.reduce),
        given.root};
    if (comm != nullptr && given.counts != nullptr)
        what.counts = {given.counts, comm->communicator->size()};
    return what;
}
/// Whether an allreduce in full is right beyond doubt, as nearly all are: all that check() looks at takes as long as a
/// small operation. What is not is left to check(), which says why.
inline bool is_plain(const dtrun_comm* comm, const Given& given) {
    constexpr std::size_t kCountMax = PTRDIFF_MAX / sizeof(double);
    return comm != nullptr && given.kind == Operation::Kind::allreduce &&
           static_cast<unsigned>(given.dtype) < kDTypes &&
           static_cast<unsigned>(given.reduce) <= DTRUN_ADASUM && given.count <= kCountMax &&
           given.in != nullptr && given.out != nullptr &&
           (given.in == given.out || !bytes_at(given.dtype, given.in, given.count)
                                          .overlaps(bytes_at(given.dtype, given.out, given.count)));
}

/// Checks arrays and numbers as operations.def says.
/// \param what, how  what `given` and its compression are
Result<void> check(const dtrun_comm* comm, const Given& given, const Operation& what,
                   const std::optional<Compression>& how);

}  // namespace dtrun::collectives
