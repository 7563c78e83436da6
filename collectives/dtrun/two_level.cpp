#include "collectives/dtrun/group.h"

#include "collectives/codec/reduce.h"
#include "collectives/dtrun/parts.h"
#include "collectives/host/array_runs.h"
#include "collectives/host/copy.h"

#include <algorithm>
#include <cstring>

namespace dtrun::collectives::over_dtrun {
namespace {

/// What a broadcast moves from level to level at a time.
constexpr std::size_t kBroadcastBytes = 1UL << 20;

}  // namespace

Result<void> DtrunGroup::allreduce_small(const void* in, void* out, std::size_t count, DType type,
                                         Reduce reduce) {
    const Reduce inner = without_average(reduce);
    const void* mine = in;
    const bool leads = topology_.place() == 0;
    if (host_ != nullptr) {
        if (auto done = host_->reduce(in, out, count, type, inner, 0); !done) return done;
        mine = out;
    }
    if (leads) {
        if (auto done = rail_->allreduce(mine, out, count, type, inner); !done) return done;
        if (reduce == Reduce::average) divide(out, count, type, spec_.size);
    }
    return host_ != nullptr ? host_->broadcast(out, count * bytes_of(type), 0) : Result<void>();
}

Result<void> DtrunGroup::allreduce_large(const void* in, void* out, std::size_t count, DType type,
                                         Reduce reduce) {
    const std::size_t element = bytes_of(type);
    const auto fill = [&](std::size_t at, std::size_t n, std::byte* to) {
        copy_bytes(to, at_byte(in, at * element), n * element);
    };
    const ResultCopy copy(count * element, in != out);
    const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
        copy(at_byte(out, at * element), from, n * element);
    };
    // Each slice is added up where it belongs, also if `in` is there: what is read is read before.
    const auto room = [&](HostGroup::Slice slice) { return at_byte(out, slice.at * element); };
    return allreduce_elements(count, type, reduce, fill, take, room);
}

/// The arrays go to shared memory and come from there one by one.
Result<void> DtrunGroup::allreduce_arrays(std::span<const Array> arrays, DType type,
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
    const auto room = [&](HostGroup::Slice slice) {
        scratch_.resize(std::max(scratch_.size(), slice.count * element));
        return scratch_.data();
    };
    return allreduce_elements(runs.count(), type, reduce, fill, take, room);
}

/// \param room  where a slice is added up
Result<void> DtrunGroup::allreduce_elements(
    std::size_t count, DType type, Reduce reduce, const HostGroup::Fill& fill,
    const HostGroup::Take& take, const std::function<std::byte*(HostGroup::Slice slice)>& room) {
    const Reduce inner = without_average(reduce);
    const std::size_t element = bytes_of(type);
    const std::uint32_t rails = topology_.rails();
    const std::size_t chunk = kRailBytes / element * rails;
    for (std::size_t at = 0; at < count; at += chunk) {
        const std::size_t n = std::min(chunk, count - at);
        std::vector<HostGroup::Slice> slices;
        for (std::uint32_t rail = 0; rail < rails; ++rail) {
            const std::size_t begin = n * rail / rails;
            slices.push_back({at + begin, n * (rail + 1) / rails - begin});
        }
        const bool adds = topology_.place() < rails;
        const HostGroup::Slice own = adds ? slices[topology_.place()] : HostGroup::Slice{};
        std::byte* const sums = room(own);
        if (host_ != nullptr) {
            auto done = host_->sum_slices(slices, type, inner, fill, sums);
            if (!done) return done;
        } else {
            fill(own.at, own.count, sums);
        }
        if (on_rail())
            if (auto done = rail_->allreduce(sums, sums, own.count, type, inner); !done)
                return done;
        if (adds && reduce == Reduce::average) divide(sums, own.count, type, spec_.size);
        if (host_ == nullptr) {
            take(own.at, own.count, sums);
            continue;
        }
        if (auto done = host_->share_slices(slices, element, sums, take); !done) return done;
    }
    return {};
}

Result<void> DtrunGroup::broadcast_levels(void* data, std::size_t bytes, std::uint32_t root) {
    const std::uint32_t source = topology_.host_of(root);
    const bool at_source = topology_.host() == source;
    const bool leads = topology_.place() == 0;
    for (std::size_t at = 0; at < bytes; at += kBroadcastBytes) {
        const std::size_t n = std::min(kBroadcastBytes, bytes - at);
        std::byte* const part = at_byte(data, at);
        // The wire is what takes long: where its rank has the data already, it begins.
        const std::uint32_t holder = at_source ? topology_.place_of(root) : 0;
        const bool wire_first = !at_source || holder == 0;
        if (leads && wire_first)
            if (auto done = rail_->broadcast(part, n, source); !done) return done;
        if (host_ != nullptr)
            if (auto done = host_->broadcast(part, n, holder); !done) return done;
        if (leads && !wire_first)
            if (auto done = rail_->broadcast(part, n, source); !done) return done;
    }
    return {};
}

Result<void> DtrunGroup::barrier_levels() {
    if (host_ != nullptr)
        if (auto done = host_->barrier(); !done) return done;
    if (topology_.place() == 0)
        if (auto done = rail_->barrier(); !done) return done;
    return host_ != nullptr ? host_->barrier() : Result<void>();
}

}  // namespace dtrun::collectives::over_dtrun
