#include "collectives/backends/tcp/group.h"

#include "collectives/codec/reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace dtrun::collectives::over_tcp {
namespace {

/// Up to this size, whole arrays are sent back and forth in as few steps as possible.
constexpr std::size_t kDoublingBytesMax = 32UL << 10;
/// Rings are used for parts from this size on; below it, their many steps dominate.
constexpr std::size_t kRingPartBytesMin = 64UL << 10;

/// Cuts an array into one chunk for each rank, and each chunk into parts.
class Chunks {
public:
    Chunks(std::size_t count, std::uint32_t ranks, Elements elements, std::size_t part_bytes)
        : count_(count),
          ranks_(ranks),
          element_(elements.bytes(1)),
          parts_(std::max<std::size_t>(
              1, (((count + ranks - 1) / ranks * element_) + part_bytes - 1) / part_bytes)) {}

    std::size_t parts() const { return parts_; }
    /// Where a part is, in bytes.
    std::pair<std::size_t, std::size_t> place(std::uint32_t chunk, std::size_t part) const {
        const std::size_t begin = count_ * chunk / ranks_;
        const std::size_t elements = count_ * (chunk + 1) / ranks_ - begin;
        const std::size_t from = begin + elements * part / parts_;
        const std::size_t to = begin + elements * (part + 1) / parts_;
        return {from * element_, (to - from) * element_};
    }

private:
    std::size_t count_;
    std::size_t ranks_;
    std::size_t element_;
    std::size_t parts_;
};

const std::byte* bytes_at(const void* data, std::size_t offset) {
    return static_cast<const std::byte*>(data) + offset;
}
std::byte* bytes_at(void* data, std::size_t offset) {
    return static_cast<std::byte*>(data) + offset;
}

}  // namespace

Result<void> TcpGroup::allreduce(const Operation& what) {
    if (what.count == 0) return {};
    const Elements elements{what.type, what.reduce};
    const std::size_t bytes = what.bytes();
    const bool in_one_go = size_ == 1 || bytes <= kDoublingBytesMax;
    if (!in_one_go && (size_ == 2 || bytes / size_ >= kRingPartBytesMin))
        return allreduce_ring(what.in, what.out, what.count, elements);
    if (!in_one_go) return allreduce_halving(what.in, what.out, what.count, elements);
    if (what.in != what.out) std::memcpy(what.out, what.in, bytes);
    if (auto done = allreduce_doubling(what.out, what.count, elements); !done) return done;
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

/// Ranks beyond the largest power of two add theirs to a lower rank's, and stand aside.
Result<void> TcpGroup::fold(void* data, std::size_t count, Elements elements, std::uint32_t power) {
    if (rank_ >= power) return send_to_combine(rank_ - power, data, elements.bytes(count));
    if (rank_ + power < size_) return receive_into(rank_ + power, data, data, count, elements);
    return {};
}

Result<void> TcpGroup::unfold(void* data, std::size_t bytes, std::uint32_t power) {
    if (rank_ >= power) return receive(rank_ - power, data, bytes);
    if (rank_ + power < size_) return send(rank_ + power, data, bytes);
    return {};
}

/// Recursive doubling: after step k everybody has the sum of 2^k ranks.
Result<void> TcpGroup::allreduce_doubling(void* data, std::size_t count, Elements elements) {
    const std::uint32_t power = std::bit_floor(size_);
    if (auto done = fold(data, count, elements, power); !done) return done;
    for (std::uint32_t distance = 1; rank_ < power && distance < power; distance *= 2) {
        const auto done = exchange_into(rank_ ^ distance, data, count, data, data, count, elements);
        if (!done) return done;
    }
    return unfold(data, elements.bytes(count), power);
}

/// Recursive halving and doubling: after step k of the first half, everybody has 1/2^k of the sum
/// of 2^k ranks (Rabenseifner, "Optimization of collective reduction operations", 2004).
Result<void> TcpGroup::allreduce_halving(const void* in, void* out, std::size_t count,
                                         Elements elements) {
    const std::uint32_t power = std::bit_floor(size_);
    const void* mine = in;
    if (power != size_) {
        if (in != out) std::memcpy(out, in, elements.bytes(count));
        if (auto done = fold(out, count, elements, power); !done) return done;
        mine = out;
    }
    struct Range {
        std::size_t begin, end;
    };
    Range range{0, count};
    std::vector<Range> ranges;
    for (std::uint32_t distance = power / 2; rank_ < power && distance > 0; distance /= 2) {
        const std::size_t middle = range.begin + (range.end - range.begin) / 2;
        Range kept{range.begin, middle}, given{middle, range.end};
        if (rank_ & distance) std::swap(kept, given);
        const auto done = exchange_into(
            rank_ ^ distance, bytes_at(mine, elements.bytes(given.begin)), given.end - given.begin,
            bytes_at(mine, elements.bytes(kept.begin)), bytes_at(out, elements.bytes(kept.begin)),
            kept.end - kept.begin, elements);
        if (!done) return done;
        ranges.push_back(range);
        range = kept;
        mine = out;
    }
    if (elements.reduce == Reduce::average && rank_ < power)
        divide(bytes_at(out, elements.bytes(range.begin)), range.end - range.begin, elements.type,
               size_);
    for (std::uint32_t distance = 1; rank_ < power && distance < power; distance *= 2) {
        const Range whole = ranges.back();
        ranges.pop_back();
        const Range other = range.begin == whole.begin ? Range{range.end, whole.end}
                                                       : Range{whole.begin, range.begin};
        const std::uint32_t peer = rank_ ^ distance;
        const auto done = exchange(peer, bytes_at(out, elements.bytes(range.begin)),
                                   elements.bytes(range.end - range.begin), peer,
                                   bytes_at(out, elements.bytes(other.begin)),
                                   elements.bytes(other.end - other.begin));
        if (!done) return done;
        range = whole;
    }
    return unfold(out, elements.bytes(count), power);
}

/// Every chunk goes round once to be added up, and once more to be handed out. The two rounds are
/// one flow: a part is sent on as soon as it has come.
Result<void> TcpGroup::allreduce_ring(const void* in, void* out, std::size_t count,
                                      Elements elements) {
    const std::size_t bytes = elements.bytes(count);
    const Chunks chunks(count, size_, elements, segment_bytes_);
    const std::size_t parts = chunks.parts();
    const std::size_t round = (size_ - 1) * parts;
    SendStream first(*streams_, at(1), tag(bytes), in);
    SendStream partial(*streams_, at(1), tag(bytes), out);
    SendStream complete(*streams_, at(1), tag(bytes, 1), out);
    RecvStream adding(*streams_, at(-1), tag(bytes), segment_.data(), segment_.size());
    RecvStream gathering(*streams_, at(-1), tag(bytes, 1), out, bytes);

    const auto send_part = [&](std::size_t index) {
        const auto step = static_cast<std::int64_t>(index / parts);
        const auto [offset, length] = chunks.place(at(-step - 1), index % parts);
        if (index < round) return (step == 0 ? first : partial).send(offset, length, 0);
        const auto [done_offset, done_length] =
            chunks.place(at(-(step - (size_ - 1))), index % parts);
        return complete.send(done_offset, done_length, done_offset);
    };
    const auto receive_part = [&](std::size_t index, IfLate if_late) -> Result<bool> {
        if (index >= round) return gathering.receive(if_late);
        const auto step = static_cast<std::int64_t>(index / parts);
        const auto [offset, length] = chunks.place(at(-step - 2), index % parts);
        if (auto whole = adding.receive(if_late); !whole || !*whole) return whole;
        std::byte* sum = bytes_at(out, offset);
        reduce_into(sum, bytes_at(in, offset), segment_.data(), elements.count(length),
                    elements.type, elements.reduce);
        if (elements.reduce == Reduce::average && index >= round - parts)
            divide(sum, elements.count(length), elements.type, size_);
        return true;
    };
    return flow(complete, gathering, {.sends = 2 * round, .receives = 2 * round, .lead = parts},
                send_part, receive_part);
}

Result<void> TcpGroup::reduce_scatter(const Operation& what) {
    if (what.count == 0) return {};
    const Elements elements{what.type, what.reduce};
    const std::size_t part = what.bytes();
    const std::size_t all = part * size_;
    const void* own = bytes_at(what.in, part * rank_);
    if (size_ > 1 && (size_ == 2 || all > kDoublingBytesMax))
        return reduce_scatter_ring(what.in, what.out, what.count, elements);
    if (size_ > 1) {
        std::byte* sums = scratch(all);
        std::memcpy(sums, what.in, all);
        if (auto done = allreduce_doubling(sums, what.count * size_, elements); !done) return done;
        own = sums + part * rank_;
    }
    if (own != what.out) std::memcpy(what.out, own, part);
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> TcpGroup::reduce_scatter_ring(const void* in, void* out, std::size_t count,
                                           Elements elements) {
    const std::size_t bytes = elements.bytes(count);
    const Chunks chunk(count, 1, elements, segment_bytes_);
    const std::size_t parts = chunk.parts();
    const std::size_t round = (size_ - 1) * parts;
    // What is added up on the way must not overwrite this rank's own part, which comes last.
    const auto* output = static_cast<const std::byte*>(out);
    const bool in_place = output >= in && output < bytes_at(in, bytes * size_);
    std::byte* sums = in_place ? scratch(bytes) : static_cast<std::byte*>(out);
    SendStream first(*streams_, at(1), tag(bytes), in);
    SendStream partial(*streams_, at(1), tag(bytes), sums);
    RecvStream adding(*streams_, at(-1), tag(bytes), segment_.data(), segment_.size());

    const auto send_part = [&](std::size_t index) {
        const auto [offset, length] = chunk.place(0, index % parts);
        if (index < parts) return first.send(at(-1) * bytes + offset, length, 0);
        return partial.send(offset, length, 0);
    };
    const auto receive_part = [&](std::size_t index, IfLate if_late) -> Result<bool> {
        const auto step = static_cast<std::int64_t>(index / parts);
        const auto [offset, length] = chunk.place(0, index % parts);
        if (auto whole = adding.receive(if_late); !whole || !*whole) return whole;
        const bool last = index >= round - parts;
        std::byte* sum = (last ? static_cast<std::byte*>(out) : sums) + offset;
        reduce_into(sum, bytes_at(in, at(-step - 2) * bytes + offset), segment_.data(),
                    elements.count(length), elements.type, elements.reduce);
        if (elements.reduce == Reduce::average && last)
            divide(sum, elements.count(length), elements.type, size_);
        return true;
    };
    // A part's place is free once the part has been sent on.
    return flow(partial, adding, {.sends = round, .receives = round, .lead = parts, .lag = 0},
                send_part, receive_part);
}

}  // namespace dtrun::collectives::over_tcp
