#include "collectives/backends/native/group.h"

#include "collectives/backends/native/parts.h"
#include "collectives/codec/reduce.h"
#include "collectives/host/array_runs.h"
#include "collectives/host/copy.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace dtrun::collectives::native {
namespace {

/// What a broadcast moves from level to level at a time.
constexpr std::size_t kBroadcastBytes = 1UL << 20;

}  // namespace

Result<void> NativeGroup::allreduce_small(const Operation& what) {
    const Reduce inner = without_average(what.reduce);
    const void* mine = what.in;
    const bool leads = topology_.place() == 0;
    if (host_ != nullptr) {
        auto done = host_->reduce(what.in, what.out, what.count, what.type, inner, 0);
        if (!done) return done;
        mine = what.out;
    }
    if (leads) {
        auto done = rail_->run(op::allreduce(mine, what.out, what.count, what.type, inner));
        if (!done) return done;
        if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, spec_.size);
    }
    return host_ != nullptr ? host_->broadcast(what.out, what.bytes(), 0) : Result<void>();
}

Result<void> NativeGroup::allreduce_large(const Operation& what) {
    const std::size_t element = bytes_of(what.type);
    const auto fill = [&](std::size_t at, std::size_t n, std::byte* to) {
        copy_bytes(to, at_byte(what.in, at * element), n * element);
    };
    const ResultCopy copy(what.bytes(), what.in != what.out);
    const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
        copy(at_byte(what.out, at * element), from, n * element);
    };
    // Each chunk is added up where it belongs, also if `in` is there: what is read is read before.
    const auto room = [&](Chunk chunk, std::size_t) {
        return at_byte(what.out, chunk.at * element);
    };
    return allreduce_elements(what.count, what.type, what.reduce, {fill, take, room});
}

/// The arrays go to shared memory and come from there one by one.
Result<void> NativeGroup::allreduce_arrays(std::span<const Array> arrays, DType type,
                                           Reduce reduce) {
    const std::size_t element = bytes_of(type);
    const ArrayRuns runs(arrays, element);
    const auto fill = [&](std::size_t at, std::size_t n, std::byte* to) {
        runs(at, n, [to](const std::byte* place, std::size_t offset, std::size_t bytes) {
            copy_bytes(to + offset, place, bytes);
        });
    };
    const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
        runs(at, n, [from](std::byte* place, std::size_t offset, std::size_t bytes) {
            copy_from_other(place, from + offset, bytes);
        });
    };
    // Two turns are under way at a time.
    const std::size_t bytes =
        (turn_elements(runs.count(), element) / topology_.rails() + 1) * element;
    scratch_.resize(std::max(scratch_.size(), 2 * bytes));
    const auto room = [&](Chunk, std::size_t turn) { return scratch_.data() + turn % 2 * bytes; };
    return allreduce_elements(runs.count(), type, reduce, {fill, take, room});
}

/// How much of an array goes through the levels at a time: in large arrays, enough turns for all levels to work at once.
std::size_t NativeGroup::turn_elements(std::size_t count, std::size_t element) const {
    constexpr std::size_t kTurns = 4;
    const std::size_t rails = topology_.rails();
    const std::size_t bytes =
        std::clamp(count * element / rails / kTurns, kRailBytesMin, kRailBytesMax);
    return bytes / element * rails;
}

/// While the rails add up one turn, the hosts hand out the one before it and add up the next one.
Result<void> NativeGroup::allreduce_elements(std::size_t count, DType type, Reduce reduce,
                                             const Places& places) {
    struct Settled {
        NativeGroup& group;
        ~Settled() { group.settle(); }
    } settled{*this};
    auto done = allreduce_turns(count, type, reduce, places);
    // Whoever was lost is written down before the rail's peers see it end, or they would take this rank for lost.
    if (!done) return std::unexpected(failed(done.error()));
    return {};
}

Result<void> NativeGroup::allreduce_turns(std::size_t count, DType type, Reduce reduce,
                                          const Places& places) {
    const std::size_t step = turn_elements(count, bytes_of(type));
    const std::size_t steps = (count + step - 1) / step;
    std::array<Turn, 2> turns;
    for (std::size_t number = 0; number <= steps; ++number) {
        const bool comes = number < steps;
        const bool goes = number > 0;
        Turn& next = turns[number % 2];
        Turn& last = turns[(number + 1) % 2];
        if (comes) {
            const std::size_t at = number * step;
            next = cut(at, std::min(step, count - at));
            next.sums = places.room(next.own, number);
            if (auto done = sum_on_host(next, type, reduce, places.fill); !done) return done;
        }
        if (goes && background_.pending())
            if (auto done = background_.wait(spec_.interrupted); !done) return done;
        if (comes && on_rail()) {
            const auto sum = [this, next, type, reduce] {
                return rail_->run(op::allreduce(next.sums, next.sums, next.own.count, type,
                                                without_average(reduce)));
            };
            // A single turn has nothing that could go on beside it.
            if (steps > 1)
                background_.start(sum);
            else if (auto done = sum(); !done)
                return done;
        }
        if (goes)
            if (auto done = hand_out(last, type, reduce, places.take); !done) return done;
    }
    return {};
}

/// Nobody works on the caller's memory any more.
void NativeGroup::settle() {
    if (!background_.pending()) return;
    rail_->abort();
    static_cast<void>(background_.wait({}));
}

NativeGroup::Turn NativeGroup::cut(std::size_t at, std::size_t count) const {
    const std::uint32_t rails = topology_.rails();
    Turn turn;
    for (std::uint32_t rail = 0; rail < rails; ++rail) {
        const Chunk chunk = Chunk::of(count, rails, rail);
        turn.chunks.push_back({at + chunk.at, chunk.count});
    }
    if (topology_.place() < rails) turn.own = turn.chunks[topology_.place()];
    return turn;
}

Result<void> NativeGroup::sum_on_host(const Turn& turn, DType type, Reduce reduce,
                                      const HostGroup::Fill& fill) {
    if (host_ != nullptr)
        return host_->sum_chunks(turn.chunks, type, without_average(reduce), fill, turn.sums);
    fill(turn.own.at, turn.own.count, turn.sums);
    return {};
}

Result<void> NativeGroup::hand_out(const Turn& turn, DType type, Reduce reduce,
                                   const HostGroup::Take& take) {
    if (on_rail() && reduce == Reduce::average) divide(turn.sums, turn.own.count, type, spec_.size);
    if (host_ != nullptr) return host_->share_chunks(turn.chunks, bytes_of(type), turn.sums, take);
    take(turn.own.at, turn.own.count, turn.sums);
    return {};
}

Result<void> NativeGroup::broadcast_levels(const Operation& what) {
    const std::size_t bytes = what.bytes();
    const std::uint32_t source = topology_.host_of(what.root);
    const bool at_source = topology_.host() == source;
    const bool leads = topology_.place() == 0;
    for (std::size_t at = 0; at < bytes; at += kBroadcastBytes) {
        const std::size_t n = std::min(kBroadcastBytes, bytes - at);
        std::byte* const part = at_byte(what.out, at);
        // The wire is what takes long: where its rank has the data already, it begins.
        const std::uint32_t holder = at_source ? topology_.place_of(what.root) : 0;
        const bool wire_first = !at_source || holder == 0;
        if (leads && wire_first)
            if (auto done = rail_->run(op::broadcast(part, n, source)); !done) return done;
        if (host_ != nullptr)
            if (auto done = host_->broadcast(part, n, holder); !done) return done;
        if (leads && !wire_first)
            if (auto done = rail_->run(op::broadcast(part, n, source)); !done) return done;
    }
    return {};
}

Result<void> NativeGroup::barrier_levels() {
    if (host_ != nullptr)
        if (auto done = host_->barrier(); !done) return done;
    if (topology_.place() == 0)
        if (auto done = rail_->run(op::barrier()); !done) return done;
    return host_ != nullptr ? host_->barrier() : Result<void>();
}

}  // namespace dtrun::collectives::native
