#pragma once

#include "collectives/types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dtrun::collectives {

/// One operation as a rank calls it, with arrays that are the caller's.
struct Operation {
    enum class Kind : std::uint8_t {
#define DTRUN_OPERATION(kind, number, ...) kind = number,
#include "collectives/operations.def"
#undef DTRUN_OPERATION
    };

    Kind kind = Kind::barrier;
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 0;  ///< of elements of one rank's part
    DType type = DType::f32;
    Reduce reduce = Reduce::sum;
    std::uint32_t root = 0;
    std::span<const std::size_t> counts{};  ///< of allgatherv: of each rank's part

    std::size_t bytes() const {
        return count * bytes_of(type);
    }
};

/// How many elements an array has: none, one rank's part, or the parts of all ranks, and whether only the root has it.
/// The last two are for parts of different lengths: this rank's own, and all of them.
enum class Extent : std::uint8_t {
    none,
    part,
    all,
    part_at_root,
    all_at_root,
    counted,
    all_counted,
};

/// Whether the array has the parts of all ranks, one behind the other.
constexpr bool has_all_parts(Extent extent) {
    return extent == Extent::all || extent == Extent::all_at_root || extent == Extent::all_counted;
}

/// How many elements an array of that extent has at one of `size` ranks.
constexpr std::size_t elements_of(Extent extent, const Operation& what, std::uint32_t rank,
                                  std::uint32_t size) {
    switch (extent) {
        case Extent::none:
            return 0;
        case Extent::part:
            return what.count;
        case Extent::all:
            return what.count * size;
        case Extent::part_at_root:
            return rank == what.root ? what.count : 0;
        case Extent::all_at_root:
            return rank == what.root ? what.count * size : 0;
        case Extent::counted:
            return what.counts[rank];
        case Extent::all_counted:
            break;
    }
    std::size_t all = 0;
    for (const std::size_t count : what.counts) all += count;
    return all;
}

/// A row of operations.def, where the members are explained.
struct OperationRow {
    Operation::Kind kind;
    std::string_view name;
    const char* words;
    Extent in;
    Extent out;
    bool reduces;
    bool rooted;
    bool in_place;
};

inline constexpr OperationRow kOperations[] = {
#define DTRUN_OPERATION(kind, number, words, in, out, ...) \
    {Operation::Kind::kind, #kind, words, Extent::in, Extent::out, __VA_ARGS__},
#include "collectives/operations.def"
#undef DTRUN_OPERATION
};

/// \param kind  one of the table: what comes from elsewhere was checked
constexpr const OperationRow& row_of(Operation::Kind kind) {
    return kOperations[static_cast<std::size_t>(kind) - 1];
}

/// Scatters the bits of a number, so that sums of such numbers differ if the numbers do.
constexpr std::uint64_t mixed(std::uint64_t number) {
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9ULL;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebULL;
    return number ^ (number >> 31);
}

/// A number that differs for operations that must not be mixed up: the arrays' addresses apart, all of it.
constexpr std::uint64_t digest(const Operation& what) {
    const std::uint64_t small =
        static_cast<std::uint64_t>(what.kind) | static_cast<std::uint64_t>(what.type) << 8 |
        static_cast<std::uint64_t>(what.reduce) << 16 | static_cast<std::uint64_t>(what.root) << 32;
    // Independent products take as long as one, and who uses it scatters the bits.
    std::uint64_t sum = small * 0x9e3779b97f4a7c15ULL + what.count * 0xc2b2ae3d27d4eb4fULL;
    for (const std::size_t count : what.counts) sum = mixed(sum + count);
    return sum;
}

/// The bytes of each rank's part of an allgather, or of an allgatherv of bytes.
inline std::vector<std::size_t> parts_of(const Operation& what, std::uint32_t size) {
    if (what.kind == Operation::Kind::allgather) return std::vector(size, what.bytes());
    return {what.counts.begin(), what.counts.end()};
}

/// Operations in short, as Group::run() takes them: what is only moved is bytes.
namespace op {

using Kind = Operation::Kind;

inline Operation allreduce(const void* in, void* out, std::size_t count, DType type,
                           Reduce reduce) {
    return {Kind::allreduce, in, out, count, type, reduce};
}
/// \param out  nullptr but at the root
inline Operation reduce(const void* in, void* out, std::size_t count, DType type, Reduce reduce,
                        std::uint32_t root) {
    return {Kind::reduce, in, out, count, type, reduce, root};
}
inline Operation reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                Reduce reduce) {
    return {Kind::reduce_scatter, in, out, count, type, reduce};
}
/// \param in, out  of one rank's part `bytes`, of all ranks' parts as many times that
inline Operation moved(Kind kind, const void* in, void* out, std::size_t bytes,
                       std::uint32_t root = 0) {
    return {kind, in, out, bytes, DType::u8, Reduce::sum, root};
}
inline Operation broadcast(void* data, std::size_t bytes, std::uint32_t root) {
    return moved(Kind::broadcast, nullptr, data, bytes, root);
}
inline Operation allgather(const void* in, void* out, std::size_t bytes) {
    return moved(Kind::allgather, in, out, bytes);
}
inline Operation allgatherv(const void* in, void* out, std::span<const std::size_t> bytes) {
    return {Kind::allgatherv, in, out, 0, DType::u8, Reduce::sum, 0, bytes};
}
inline Operation gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    return moved(Kind::gather, in, out, bytes, root);
}
inline Operation scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    return moved(Kind::scatter, in, out, bytes, root);
}
inline Operation alltoall(const void* in, void* out, std::size_t bytes) {
    return moved(Kind::alltoall, in, out, bytes);
}
inline Operation barrier() {
    return {};
}

}  // namespace op

}  // namespace dtrun::collectives
