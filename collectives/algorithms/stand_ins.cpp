#include "collectives/algorithms/stand_ins.h"

#include "collectives/codec/codec.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace dtrun::collectives {
namespace {

/// Calls `of` for each element, at any address.
template <class From, class To, To (*of)(From)>
void convert_each(const void* in, void* out, std::size_t count) {
    const auto* from = static_cast<const unsigned char*>(in);
    auto* to = static_cast<unsigned char*>(out);
    for (std::size_t i = 0; i < count; ++i, from += sizeof(From), to += sizeof(To)) {
        From value;
        std::memcpy(&value, from, sizeof value);
        const To converted = of(value);
        std::memcpy(to, &converted, sizeof converted);
    }
}

template <class From, class To>
To convert(From value) {
    return static_cast<To>(value);
}

template <class Narrow, class Wide>
constexpr StandIn wider(DType type) {
    return {type, convert_each<Narrow, Wide, convert<Narrow, Wide>>,
            convert_each<Wide, Narrow, convert<Wide, Narrow>>};
}

void floats_of_halves(const void* in, void* out, std::size_t count) {
    decode(Format::f16, static_cast<const std::byte*>(in), count, static_cast<float*>(out));
}

void halves_of_floats(const void* in, void* out, std::size_t count) {
    encode(Format::f16, Rounding::nearest, 0, static_cast<const float*>(in), count,
           static_cast<std::byte*>(out));
}

/// Codes of IEEE numbers: sign, then exponent, then fraction.
/// \tparam Key  a signed integer, of the size of the codes or larger
/// \tparam kInfinity  the code of it
/// \tparam kNan  the key of NaN, which no number has
template <class Code, class Key, Code kInfinity, Key kNan>
struct Ordered {
    static constexpr Code kSign = static_cast<Code>(1) << (8 * sizeof(Code) - 1);
    static Key key(Code code) {
        const auto magnitude = static_cast<Code>(code & ~kSign);
        if (magnitude > kInfinity) return kNan;
        const auto size = static_cast<Key>(magnitude);
        return (code & kSign) != 0 ? static_cast<Key>(-size - 1) : size;
    }
    static Code code(Key key) {
        if (key == kNan) return static_cast<Code>(kInfinity | (kInfinity >> 1));
        if (key >= 0) return static_cast<Code>(key);
        return static_cast<Code>(static_cast<Code>(-(key + 1)) | kSign);
    }
    static constexpr StandIn stand_in(DType type) {
        return {type, convert_each<Code, Key, key>, convert_each<Key, Code, code>};
    }
};

template <class Code, class Key, Code kInfinity>
const StandIn* ordered(DType type, Reduce reduce) {
    using Limits = std::numeric_limits<Key>;
    static const StandIn min = Ordered<Code, Key, kInfinity, Limits::min()>::stand_in(type);
    static const StandIn max = Ordered<Code, Key, kInfinity, Limits::max()>::stand_in(type);
    return reduce == Reduce::min ? &min : &max;
}

/// Elements of which stand-ins are made at a time.
constexpr std::size_t kStandInsMax = std::size_t{1} << 20;

std::byte* room_for(std::size_t count, DType type, StandInRoom& kept) {
    kept.resize(std::max(kept.size(), count * bytes_of(type)));
    return kept.data();
}

/// Goes through arrays as if they lay one behind the other.
class Walk {
public:
    Walk(std::span<const Reduced> arrays, DType type) : arrays_(arrays), bytes_(bytes_of(type)) {}

    /// \param body  is called for one array's part of the next `count` elements after another:
    ///              body(in, out, elements before it, elements)
    template <class Body>
    void next(std::size_t count, Body body) {
        for (std::size_t done = 0; done < count;) {
            const Reduced& array = arrays_[index_];
            const std::size_t n = std::min(count - done, array.count - at_);
            if (n > 0)
                body(static_cast<const std::byte*>(array.in) + at_ * bytes_,
                     static_cast<std::byte*>(array.out) + at_ * bytes_, done, n);
            done += n;
            at_ += n;
            if (at_ == array.count) ++index_, at_ = 0;
        }
    }

private:
    const std::span<const Reduced> arrays_;
    const std::size_t bytes_;
    std::size_t index_ = 0;
    std::size_t at_ = 0;
};

/// \param is_root  whether this rank gets the result
Result<void> reduce_by(const StandIn& stand_in, Group& group, StandInRoom& kept, bool is_root,
                       const Operation& what) {
    std::byte* const room = room_for(std::min(what.count, kStandInsMax), stand_in.type, kept);
    for (std::size_t at = 0; at < what.count; at += kStandInsMax) {
        const std::size_t n = std::min(kStandInsMax, what.count - at);
        const std::size_t offset = at * bytes_of(what.type);
        stand_in.put(static_cast<const std::byte*>(what.in) + offset, room, n);
        void* const to = is_root ? room : nullptr;
        auto done = group.run(op::reduce(room, to, n, stand_in.type, what.reduce, what.root));
        if (!done) return done;
        if (is_root) stand_in.take(room, static_cast<std::byte*>(what.out) + offset, n);
    }
    return {};
}

Result<void> reduce_scatter_by(const StandIn& stand_in, Group& group, StandInRoom& kept,
                               std::uint32_t rank, std::uint32_t size, const Operation& what) {
    const std::size_t part_max =
        std::min(what.count, std::max(kStandInsMax / size, std::size_t{1}));
    std::byte* const room = room_for(part_max * size, stand_in.type, kept);
    for (std::size_t at = 0; at < what.count; at += part_max) {
        const std::size_t n = std::min(part_max, what.count - at);
        const auto place = [&](std::uint32_t of) {
            return room + of * n * bytes_of(stand_in.type);
        };
        for (std::uint32_t of = 0; of < size; ++of)
            stand_in.put(static_cast<const std::byte*>(what.in) +
                             (of * what.count + at) * bytes_of(what.type),
                         place(of), n);
        auto done = group.run(op::reduce_scatter(room, place(rank), n, stand_in.type, what.reduce));
        if (!done) return done;
        stand_in.take(place(rank), static_cast<std::byte*>(what.out) + at * bytes_of(what.type), n);
    }
    return {};
}

}  // namespace

const StandIn* average_stand_in(DType type) {
    static constexpr StandIn kOfI8 = wider<std::int8_t, std::int32_t>(DType::i32);
    static constexpr StandIn kOfU8 = wider<std::uint8_t, std::int32_t>(DType::i32);
    static constexpr StandIn kOfI32 = wider<std::int32_t, std::int64_t>(DType::i64);
    static constexpr StandIn kOfF16{DType::f32, floats_of_halves, halves_of_floats};
    switch (type) {
        case DType::i8:
            return &kOfI8;
        case DType::u8:
            return &kOfU8;
        case DType::i32:
            return &kOfI32;
        case DType::f16:
            return &kOfF16;
        default:
            return nullptr;
    }
}

const StandIn* ordered_stand_in(DType type, Reduce reduce) {
    if (reduce != Reduce::min && reduce != Reduce::max) return nullptr;
    switch (type) {
        case DType::f32:
            return ordered<std::uint32_t, std::int32_t, 0x7f80'0000>(DType::i32, reduce);
        case DType::f64:
            return ordered<std::uint64_t, std::int64_t, 0x7ff0'0000'0000'0000>(DType::i64, reduce);
        case DType::f16:
            return ordered<std::uint16_t, std::int32_t, 0x7c00>(DType::i32, reduce);
        case DType::bf16:
            return ordered<std::uint16_t, std::int32_t, 0x7f80>(DType::i32, reduce);
        default:
            return nullptr;
    }
}

Result<void> allreduce_by(const StandIn& stand_in, Group& group, StandInRoom& kept,
                          std::span<const Reduced> arrays, DType type, Reduce reduce) {
    std::size_t count = 0;
    for (const Reduced& array : arrays) count += array.count;
    std::byte* const room = room_for(std::min(count, kStandInsMax), stand_in.type, kept);
    const auto place = [&](std::size_t at) { return room + at * bytes_of(stand_in.type); };
    Walk givers(arrays, type), takers(arrays, type);
    for (std::size_t at = 0; at < count; at += kStandInsMax) {
        const std::size_t n = std::min(kStandInsMax, count - at);
        givers.next(n, [&](const std::byte* in, std::byte*, std::size_t to, std::size_t some) {
            stand_in.put(in, place(to), some);
        });
        auto done = group.run(op::allreduce(room, room, n, stand_in.type, reduce));
        if (!done) return done;
        takers.next(n, [&](const std::byte*, std::byte* out, std::size_t from, std::size_t some) {
            stand_in.take(place(from), out, some);
        });
    }
    return {};
}

Result<void> run_by(const StandIn& stand_in, Group& group, StandInRoom& kept, std::uint32_t rank,
                    std::uint32_t size, const Operation& what) {
    if (what.kind == Operation::Kind::reduce)
        return reduce_by(stand_in, group, kept, rank == what.root, what);
    if (what.kind == Operation::Kind::reduce_scatter)
        return reduce_scatter_by(stand_in, group, kept, rank, size, what);
    const Reduced all{what.in, what.out, what.count};
    return allreduce_by(stand_in, group, kept, {&all, 1}, what.type, what.reduce);
}

}  // namespace dtrun::collectives
