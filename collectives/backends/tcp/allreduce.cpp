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

/// Cuts an array into what each rank has, and that into chunks.
class Chunks {
public:
    Chunks(std::size_t count, std::uint32_t ranks, Elements elements, std::size_t chunk_bytes)
        : count_(count),
          ranks_(ranks),
          element_(elements.bytes(1)),
          of_rank_(std::max<std::size_t>(
              1, (((count + ranks - 1) / ranks * element_) + chunk_bytes - 1) / chunk_bytes)) {}

    std::size_t of_rank() const { return of_rank_; }
    /// Where one is, in bytes.
    Chunk place(std::uint32_t rank, std::size_t number) const {
        const Chunk whole = Chunk::of(count_, ranks_, rank);
        const Chunk one = Chunk::of(whole.count, of_rank_, number);
        return {(whole.at + one.at) * element_, one.count * element_};
    }

private:
    std::size_t count_;
    std::size_t ranks_;
    std::size_t element_;
    std::size_t of_rank_;
};

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
    Chunk own{0, count};
    std::vector<Chunk> wholes;
    for (std::uint32_t distance = power / 2; rank_ < power && distance > 0; distance /= 2) {
        const std::size_t half = own.count / 2;
        Chunk kept{own.at, half}, given{own.at + half, own.count - half};
        if (rank_ & distance) std::swap(kept, given);
        const auto done =
            exchange_into(rank_ ^ distance, at_byte(mine, elements.bytes(given.at)), given.count,
                          at_byte(mine, elements.bytes(kept.at)),
                          at_byte(out, elements.bytes(kept.at)), kept.count, elements);
        if (!done) return done;
        wholes.push_back(own);
        own = kept;
        mine = out;
    }
    if (elements.reduce == Reduce::average && rank_ < power)
        divide(at_byte(out, elements.bytes(own.at)), own.count, elements.type, size_);
    for (std::uint32_t distance = 1; rank_ < power && distance < power; distance *= 2) {
        const Chunk whole = wholes.back();
        wholes.pop_back();
        const Chunk other{own.at == whole.at ? own.end() : whole.at, whole.count - own.count};
        const std::uint32_t peer = rank_ ^ distance;
        const auto done =
            exchange(peer, at_byte(out, elements.bytes(own.at)), elements.bytes(own.count), peer,
                     at_byte(out, elements.bytes(other.at)), elements.bytes(other.count));
        if (!done) return done;
        own = whole;
    }
    return unfold(out, elements.bytes(count), power);
}

/// Every rank's chunks go round once to be added up, and once more to be handed out. The two rounds are
/// one flow: a chunk is sent on as soon as it has come.
Result<void> TcpGroup::allreduce_ring(const void* in, void* out, std::size_t count,
                                      Elements elements) {
    const std::size_t bytes = elements.bytes(count);
    const Chunks chunks(count, size_, elements, chunk_bytes_);
    const std::size_t of_rank = chunks.of_rank();
    const std::size_t round = (size_ - 1) * of_rank;
    SendStream first(*streams_, at(1), tag(bytes), in);
    SendStream partial(*streams_, at(1), tag(bytes), out);
    SendStream complete(*streams_, at(1), tag(bytes, 1), out);
    RecvStream adding(*streams_, at(-1), tag(bytes), chunk_.data(), chunk_.size());
    RecvStream gathering(*streams_, at(-1), tag(bytes, 1), out, bytes);

    const auto send_chunk = [&](std::size_t index) {
        const auto step = static_cast<std::int64_t>(index / of_rank);
        const auto [offset, length] = chunks.place(at(-step - 1), index % of_rank);
        if (index < round) return (step == 0 ? first : partial).send(offset, length, 0);
        const auto [done_offset, done_length] =
            chunks.place(at(-(step - (size_ - 1))), index % of_rank);
        return complete.send(done_offset, done_length, done_offset);
    };
    const auto receive_chunk = [&](std::size_t index, IfLate if_late) -> Result<bool> {
        if (index >= round) return gathering.receive(if_late);
        const auto step = static_cast<std::int64_t>(index / of_rank);
        const auto [offset, length] = chunks.place(at(-step - 2), index % of_rank);
        if (auto whole = adding.receive(if_late); !whole || !*whole) return whole;
        std::byte* sum = at_byte(out, offset);
        reduce_into(sum, at_byte(in, offset), chunk_.data(), elements.count(length), elements.type,
                    elements.reduce);
        if (elements.reduce == Reduce::average && index >= round - of_rank)
            divide(sum, elements.count(length), elements.type, size_);
        return true;
    };
    return flow(complete, gathering, {.sends = 2 * round, .receives = 2 * round, .lead = of_rank},
                send_chunk, receive_chunk);
}

Result<void> TcpGroup::reduce_scatter(const Operation& what) {
    if (what.count == 0) return {};
    const Elements elements{what.type, what.reduce};
    const std::size_t part = what.bytes();
    const std::size_t all = part * size_;
    const void* own = at_byte(what.in, part * rank_);
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
    const Chunks chunks(count, 1, elements, chunk_bytes_);
    const std::size_t of_rank = chunks.of_rank();
    const std::size_t round = (size_ - 1) * of_rank;
    // What is added up on the way must not overwrite this rank's own part, which comes last.
    const auto* output = static_cast<const std::byte*>(out);
    const bool in_place = output >= in && output < at_byte(in, bytes * size_);
    std::byte* sums = in_place ? scratch(bytes) : static_cast<std::byte*>(out);
    SendStream first(*streams_, at(1), tag(bytes), in);
    SendStream partial(*streams_, at(1), tag(bytes), sums);
    RecvStream adding(*streams_, at(-1), tag(bytes), chunk_.data(), chunk_.size());

    const auto send_chunk = [&](std::size_t index) {
        const auto [offset, length] = chunks.place(0, index % of_rank);
        if (index < of_rank) return first.send(at(-1) * bytes + offset, length, 0);
        return partial.send(offset, length, 0);
    };
    const auto receive_chunk = [&](std::size_t index, IfLate if_late) -> Result<bool> {
        const auto step = static_cast<std::int64_t>(index / of_rank);
        const auto [offset, length] = chunks.place(0, index % of_rank);
        if (auto whole = adding.receive(if_late); !whole || !*whole) return whole;
        const bool last = index >= round - of_rank;
        std::byte* sum = (last ? static_cast<std::byte*>(out) : sums) + offset;
        reduce_into(sum, at_byte(in, at(-step - 2) * bytes + offset), chunk_.data(),
                    elements.count(length), elements.type, elements.reduce);
        if (elements.reduce == Reduce::average && last)
            divide(sum, elements.count(length), elements.type, size_);
        return true;
    };
    // A chunk's place is free once the chunk has been sent on.
    return flow(partial, adding, {.sends = round, .receives = round, .lead = of_rank, .lag = 0},
                send_chunk, receive_chunk);
}

}  // namespace dtrun::collectives::over_tcp
