#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

namespace dtrun::collectives {

/// The type of elements; values are those of dtrun_dtype in <dtrun_collectives.h>.
enum class DType : std::uint8_t {
    f32 = 0,
    f64 = 1,
    f16 = 2,   ///< IEEE binary16
    bf16 = 3,  ///< the upper half of an f32
    i8 = 4,
    u8 = 5,
    i32 = 6,
    i64 = 7,
};
inline constexpr std::size_t kDTypes = 8;

/// Types without arithmetic here, which are only moved. Their numbers follow those of DType, in this order, so that
/// ranks which have different types are told.
struct MovedType {
    std::string_view name;
    std::size_t bytes;
};
inline constexpr MovedType kMovedTypes[] = {
    {"bool", 1}, {"i16", 2}, {"u16", 2}, {"u32", 4}, {"u64", 8}, {"e4m3", 1}, {"e5m2", 1},
};
inline constexpr std::size_t kDTypesMoved = kDTypes + std::size(kMovedTypes);
inline constexpr DType kBool{kDTypes};

constexpr bool is_only_moved(DType type) {
    return static_cast<std::size_t>(type) >= kDTypes;
}

/// Values are those of dtrun_reduce in <dtrun_collectives.h>.
enum class Reduce : std::uint8_t {
    sum = 0,
    product = 1,
    min = 2,
    max = 3,
    average = 4,  ///< the sum, divided by the number of ranks; integers are rounded towards zero
    adasum = 5,   ///< Maleki et al., "Scaling distributed training with adaptive summation", 2020
};

/// A run of elements of one array.
struct Chunk {
    std::size_t at = 0;
    std::size_t count = 0;

    constexpr std::size_t end() const { return at + count; }
    /// One of `number` chunks that an array is cut into, of which none is longer than another by more than one.
    static constexpr Chunk of(std::size_t total, std::size_t number, std::size_t index) {
        const std::size_t begin = total * index / number;
        return {begin, total * (index + 1) / number - begin};
    }
};

inline std::byte* at_byte(void* data, std::size_t offset) {
    return static_cast<std::byte*>(data) + offset;
}
inline const std::byte* at_byte(const void* data, std::size_t offset) {
    return static_cast<const std::byte*>(data) + offset;
}

/// Either the same place or one that does not overlap.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

/// \param type  of DType, or one that is only moved
constexpr std::size_t bytes_of(DType type) {
    if (is_only_moved(type)) return kMovedTypes[static_cast<std::size_t>(type) - kDTypes].bytes;
    switch (type) {
        case DType::f64:
        case DType::i64:
            return 8;
        case DType::f32:
        case DType::i32:
            return 4;
        case DType::f16:
        case DType::bf16:
            return 2;
        case DType::i8:
        case DType::u8:
            break;
    }
    return 1;
}

/// What a reduction calculates with: a bool is a byte that is 0 or 1.
constexpr DType arithmetic_of(DType type) {
    return type == kBool ? DType::u8 : type;
}

/// Whether values of that type can be reduced so. Sums of bools would be no bools.
constexpr bool can_reduce(DType type, Reduce reduce) {
    if (type == kBool)
        return reduce == Reduce::min || reduce == Reduce::max || reduce == Reduce::product;
    return !is_only_moved(type);
}

constexpr bool is_float(DType type) {
    return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}

/// \param type  of DType, or one that is only moved
constexpr std::string_view name_of(DType type) {
    if (is_only_moved(type)) return kMovedTypes[static_cast<std::size_t>(type) - kDTypes].name;
    constexpr std::string_view kNames[kDTypes] = {"f32", "f64", "f16", "bf16",
                                                  "i8",  "u8",  "i32", "i64"};
    return kNames[static_cast<std::size_t>(type)];
}

constexpr std::string_view name_of(Reduce reduce) {
    constexpr std::string_view kNames[] = {"sum", "product", "min", "max", "average", "adasum"};
    return kNames[static_cast<std::size_t>(reduce)];
}

}  // namespace dtrun::collectives
