#include "collectives/dtrun/group.h"

#include "collectives/codec/reduce.h"
#include "collectives/host/copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace dtrun::collectives::over_dtrun {
namespace {

/// What a rail adds up between hosts at a time: enough to fill the wire, and little enough to stay in caches.
constexpr std::size_t kRailBytes = 4UL << 20;
/// What a broadcast moves from level to level at a time.
constexpr std::size_t kBroadcastBytes = 1UL << 20;

std::byte* at_byte(void* data, std::size_t offset) {
    return static_cast<std::byte*>(data) + offset;
}
const std::byte* at_byte(const void* data, std::size_t offset) {
    return static_cast<const std::byte*>(data) + offset;
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

Reduce without_average(Reduce reduce) {
    return reduce == Reduce::average ? Reduce::sum : reduce;
}

}  // namespace

std::vector<std::uint32_t> DtrunGroup::ranks_on_rail(std::uint32_t rail) const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t host = 0; host < topology_.hosts(); ++host)
        for (const std::uint32_t rank : topology_.ranks_of(host))
            if (topology_.place_of(rank) % topology_.rails() == rail) ranks.push_back(rank);
    return ranks;
}

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
    const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
        copy_from_other(at_byte(out, at * element), from, n * element);
    };
    // Each slice is added up where it belongs, also if `in` is there: what is read is read before.
    const auto room = [&](HostGroup::Slice slice) { return at_byte(out, slice.at * element); };
    return allreduce_elements(count, type, reduce, fill, take, room);
}

/// The arrays as one sequence of elements, which nobody copies together: they go to shared memory and come from there
/// one by one.
Result<void> DtrunGroup::allreduce_arrays(std::span<const Array> arrays, DType type,
                                          Reduce reduce) {
    const std::size_t element = bytes_of(type);
    std::vector<std::size_t> ends;
    ends.reserve(arrays.size());
    std::size_t total = 0;
    for (const Array& array : arrays) ends.push_back(total += array.count);
    // Calls part(place in an array, offset from `at`, bytes) for what [at, at + n) consists of.
    const auto in_arrays = [&](std::size_t at, std::size_t n, auto part) {
        auto i = static_cast<std::size_t>(std::ranges::upper_bound(ends, at) - ends.begin());
        for (std::size_t done = 0; done < n; ++i) {
            const std::size_t offset = at + done - (ends[i] - arrays[i].count);
            const std::size_t here = std::min(n - done, arrays[i].count - offset);
            part(at_byte(arrays[i].data, offset * element), done * element, here * element);
            done += here;
        }
    };
    const auto fill = [&](std::size_t at, std::size_t n, std::byte* to) {
        in_arrays(at, n, [to](const std::byte* place, std::size_t offset, std::size_t bytes) {
            copy_bytes(to + offset, place, bytes);
        });
    };
    const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
        in_arrays(at, n, [from](std::byte* place, std::size_t offset, std::size_t bytes) {
            copy_from_other(place, from + offset, bytes);
        });
    };
    const auto room = [&](HostGroup::Slice slice) {
        scratch_.resize(std::max(scratch_.size(), slice.count * element));
        return scratch_.data();
    };
    return allreduce_elements(total, type, reduce, fill, take, room);
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

Result<void> DtrunGroup::reduce_scatter_levels(const void* in, void* out, std::size_t count,
                                               DType type, Reduce reduce) {
    // All ranks' parts go side by side, a bit of each at a time, so that little memory is needed.
    const std::size_t element = bytes_of(type);
    const std::size_t step =
        std::max<std::size_t>(1, kRailBytes * topology_.rails() / spec_.size / element);
    // `out` may be this rank's part of `in`: of that, each turn writes what it alone has read before.
    for (std::size_t at = 0; at < count; at += step) {
        auto done =
            reduce_scatter_part(static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
                                count, at, std::min(step, count - at), type, reduce);
        if (!done) return done;
    }
    return {};
}

/// Elements [at, at + n) of every rank's part: hosts add up theirs, each rail sends to a host what its ranks on that
/// rail get, and adds up what comes.
Result<void> DtrunGroup::reduce_scatter_part(const std::byte* in, std::byte* out, std::size_t count,
                                             std::size_t at, std::size_t n, DType type,
                                             Reduce reduce) {
    const Reduce inner = without_average(reduce);
    const std::size_t element = bytes_of(type);
    const std::uint32_t rails = topology_.rails();
    std::vector<std::vector<std::uint32_t>> carried;
    std::vector<HostGroup::Slice> slices;  // in a sequence of the parts of each rail's ranks
    for (std::uint32_t rail = 0; rail < rails; ++rail) {
        carried.push_back(ranks_on_rail(rail));
        const std::size_t before = slices.empty() ? 0 : slices.back().at + slices.back().count;
        slices.push_back({before, carried.back().size() * n});
    }
    // Elements of the sequence, which lie in the parts of one or several ranks.
    const auto fill = [&](std::size_t from, std::size_t number, std::byte* to) {
        std::uint32_t rail = 0;
        while (rail + 1 < rails && from >= slices[rail + 1].at) ++rail;
        for (std::size_t done = 0; done < number;) {
            const std::size_t offset = from + done - slices[rail].at;
            const std::uint32_t rank = carried[rail][offset / n];
            const std::size_t here = std::min(number - done, n - offset % n);
            copy_bytes(to + done * element, in + (rank * count + at + offset % n) * element,
                       here * element);
            done += here;
        }
    };
    // Where each host's ranks are in this rail's sums, and what this host's ranks get.
    const auto block = [&](std::uint32_t host, std::uint32_t rail) {
        HostGroup::Slice found;
        for (std::size_t i = 0; i < carried[rail].size(); ++i) {
            if (topology_.host_of(carried[rail][i]) != host) continue;
            if (found.count == 0) found.at = i * n;
            found.count += n;
        }
        return found;
    };
    const std::uint32_t rail = topology_.place();  // of those ranks that are on one
    const std::size_t own_count = on_rail() ? slices[rail].count : 0;
    const HostGroup::Slice mine = on_rail() ? block(topology_.host(), rail) : HostGroup::Slice{};
    const std::size_t needed = (own_count + (topology_.hosts() - 1) * mine.count) * element;
    scratch_.resize(std::max(scratch_.size(), needed));
    std::byte* const sums = scratch_.data();
    if (host_ != nullptr) {
        if (auto done = host_->sum_slices(slices, type, inner, fill, sums); !done) return done;
    } else {
        fill(slices[0].at, own_count, sums);
    }
    std::byte* results = nullptr;
    if (on_rail()) {
        results = sums + mine.at * element;
        std::byte* const come = sums + own_count * element;
        std::vector<Send> sends;
        std::vector<Receive> receives;
        for (std::uint32_t turn = 1; turn < topology_.hosts(); ++turn) {
            const std::uint32_t to = (topology_.host() + turn) % topology_.hosts();
            const std::uint32_t from =
                (topology_.host() + topology_.hosts() - turn) % topology_.hosts();
            const HostGroup::Slice theirs = block(to, rail);
            sends.push_back({to, sums + theirs.at * element, theirs.count * element});
            receives.push_back(
                {from, come + (turn - 1) * mine.count * element, mine.count * element});
        }
        auto pending = rail_->start(sends, receives);
        if (!pending) return std::unexpected(pending.error());
        if (auto done = (*pending)->wait(); !done) return done;
        for (std::uint32_t host = 0; host < topology_.hosts(); ++host) {
            if (host == topology_.host()) continue;
            const std::uint32_t turn =
                (topology_.host() + topology_.hosts() - host) % topology_.hosts();
            reduce_into(results, results, come + (turn - 1) * mine.count * element, mine.count,
                        type, inner);
        }
        if (reduce == Reduce::average) divide(results, mine.count, type, spec_.size);
    }

    // Each rank takes its own part from the rank that has it.
    std::byte* const place = out + at * element;
    if (host_ == nullptr) {
        copy_bytes(place, results, n * element);
        return {};
    }
    std::vector<HostGroup::Slice> parts;
    std::size_t before = 0;
    for (std::uint32_t other = 0; other < rails; ++other) {
        parts.push_back({before, block(topology_.host(), other).count});
        before += parts.back().count;
    }
    const std::uint32_t own_rail = topology_.place() % rails;
    const std::size_t own_at = parts[own_rail].at + topology_.place() / rails * n;
    const auto take = [&](std::size_t to, std::size_t number, const std::byte* from) {
        const std::size_t begin = std::max(to, own_at), end = std::min(to + number, own_at + n);
        if (begin < end)
            copy_bytes(place + (begin - own_at) * element, from + (begin - to) * element,
                       (end - begin) * element);
    };
    // With a rail for each rank, everybody has its own part already.
    if (rails == topology_.places()) {
        copy_bytes(place, results, n * element);
        return {};
    }
    return host_->share_slices(parts, element, results, take);
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

Result<void> DtrunGroup::allgather_levels(const void* in, std::byte* out,
                                          std::span<const std::size_t> bytes) {
    std::vector<std::size_t> offsets(bytes.size(), 0);
    std::partial_sum(bytes.begin(), bytes.end() - 1, offsets.begin() + 1);
    const std::uint32_t rails = topology_.rails();
    copy_bytes(out + offsets[spec_.rank], in, bytes[spec_.rank]);
    if (host_ != nullptr) {
        // Parts of this host's ranks, in one sequence.
        std::vector<HostGroup::Slice> parts;
        std::size_t before = 0;
        const auto ranks = topology_.ranks_of(topology_.host());
        for (const std::uint32_t rank : ranks) {
            parts.push_back({before, bytes[rank]});
            before += bytes[rank];
        }
        const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
            std::size_t place = 0;
            while (place + 1 < parts.size() && at >= parts[place + 1].at) ++place;
            copy_from_other(out + offsets[ranks[place]] + (at - parts[place].at), from, n);
        };
        auto done = host_->share_slices(parts, 1, out + offsets[spec_.rank], take);
        if (!done) return done;
    }

    // What a rail carries: the parts of its ranks, host by host.
    struct Carried {
        std::vector<std::uint32_t> ranks;
        std::vector<std::size_t> of_host;  ///< bytes
        std::size_t own_at = 0;            ///< where this host's begin
        std::size_t all = 0;
    };
    std::vector<Carried> carried(rails);
    for (std::uint32_t rail = 0; rail < rails; ++rail) {
        Carried& one = carried[rail];
        one.ranks = ranks_on_rail(rail);
        one.of_host.resize(topology_.hosts());
        for (const std::uint32_t rank : one.ranks) {
            const std::uint32_t host = topology_.host_of(rank);
            one.of_host[host] += bytes[rank];
            if (host < topology_.host()) one.own_at += bytes[rank];
            one.all += bytes[rank];
        }
    }
    std::byte* packed = nullptr;
    if (on_rail()) {
        const Carried& mine = carried[topology_.place()];
        scratch_.resize(std::max(scratch_.size(), mine.all));
        packed = scratch_.data();
        std::byte* to = packed + mine.own_at;
        for (const std::uint32_t rank : mine.ranks) {
            if (topology_.host_of(rank) != topology_.host()) continue;
            copy_bytes(to, out + offsets[rank], bytes[rank]);
            to += bytes[rank];
        }
        auto done = rail_->allgatherv(packed + mine.own_at, packed, mine.of_host);
        if (!done) return done;
    }
    // Everybody puts what rails have brought where it belongs.
    std::vector<HostGroup::Slice> slices;
    std::size_t before = 0;
    for (const Carried& one : carried) {
        slices.push_back({before, one.all});
        before += one.all;
    }
    const auto unpack = [&](std::size_t at, std::size_t n, const std::byte* from) {
        std::uint32_t rail = 0;
        while (rail + 1 < rails && at >= slices[rail + 1].at) ++rail;
        std::size_t begin = slices[rail].at;
        for (const std::uint32_t rank : carried[rail].ranks) {
            const std::size_t end = begin + bytes[rank];
            const std::size_t first = std::max(begin, at), last = std::min(end, at + n);
            if (first < last && topology_.host_of(rank) != topology_.host())
                copy_from_other(out + offsets[rank] + (first - begin), from + (first - at),
                                last - first);
            begin = end;
        }
    };
    if (host_ != nullptr) return host_->share_slices(slices, 1, packed, unpack);
    unpack(slices[0].at, slices[0].count, packed);
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
