#include "collectives/host/host_group.h"

#include "collectives/codec/reduce.h"
#include "collectives/host/array_runs.h"

#include <algorithm>
#include <cstring>

namespace dtrun::collectives {
namespace {

/// Up to this many bytes, every rank reads all that the others have and adds it up by itself: one step
/// instead of two, for more to read.
constexpr std::size_t kOneStepBytesMax = 32UL << 10;
/// What is added up at a time: it stays in the first cache until the last rank's elements are in it.
constexpr std::size_t kStripBytes = 16UL << 10;

}  // namespace

// ---- reductions -----------------------------------------------------------------------------

Result<void> HostGroup::allreduce(const void* in, void* out, std::size_t count, DType type,
                                  Reduce reduce) {
    return reduce_to(in, out, count, type, reduce, std::nullopt);
}

Result<void> HostGroup::reduce(const void* in, void* out, std::size_t count, DType type,
                               Reduce reduce, std::uint32_t root) {
    return reduce_to(in, out, count, type, reduce, root);
}

/// \param root  who gets the result; nothing: all
Result<void> HostGroup::reduce_to(const void* in, void* out, std::size_t count, DType type,
                                  Reduce reduce, std::optional<std::uint32_t> root) {
    const std::size_t bytes = count * bytes_of(type);
    if (bytes == 0) return {};
    if (bytes <= Line::kBytes) return reduce_tiny(in, out, count, type, reduce, root);
    if (bytes <= slot_bytes_ && bytes * (places_ - 1) <= kOneStepBytesMax)
        return reduce_small(in, out, count, type, reduce, root);
    // The whole array is one run.
    const std::size_t element = bytes_of(type);
    const auto runs = [&](std::size_t at, std::size_t n, const auto& part) {
        part(at_byte(in, at * element), out == nullptr ? nullptr : at_byte(out, at * element),
             std::size_t{0}, n * element);
    };
    return reduce_large(runs, count, type, reduce, root, ResultCopy(bytes, in != out));
}

Result<void> HostGroup::allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) {
    const ArrayRuns all(arrays, bytes_of(type));
    const auto runs = [&](std::size_t at, std::size_t n, const auto& part) {
        all(at, n, [&](std::byte* place, std::size_t offset, std::size_t bytes) {
            part(place, place, offset, bytes);
        });
    };
    return reduce_large(runs, all.count(), type, reduce, std::nullopt,
                        ResultCopy(all.count() * bytes_of(type), false));
}

/// All that a rank has to say is in one cache line.
Result<void> HostGroup::reduce_tiny(const void* in, void* out, std::size_t count, DType type,
                                    Reduce reduce, std::optional<std::uint32_t> root) {
    if (auto claimed = claim(); !claimed) return claimed;
    const std::size_t bytes = count * bytes_of(type);
    std::memcpy(own().posted[step_ & 1].data.data(), in, bytes);
    post();
    if (root && *root != place_) {
        finish();
        return {};
    }
    alignas(kCacheLine) std::byte sums[Line::kBytes];
    for (std::uint32_t place = 0; place < places_; ++place) {
        if (place != place_)
            if (auto come = await(place); !come) return come;
        const std::byte* theirs = page(place).posted[step_ & 1].data.data();
        if (place == 0)
            std::memcpy(sums, theirs, bytes);
        else
            reduce_into(sums, sums, theirs, count, type, reduce);
    }
    if (root)
        finish();
    else
        finish_all();
    if (reduce == Reduce::average) divide(sums, count, type, places_);
    std::memcpy(out, sums, bytes);
    return {};
}

Result<void> HostGroup::reduce_small(const void* in, void* out, std::size_t count, DType type,
                                     Reduce reduce, std::optional<std::uint32_t> root) {
    if (auto claimed = claim(); !claimed) return claimed;
    std::memcpy(own_slot(), in, count * bytes_of(type));
    post();
    if (root && *root != place_) {
        finish();
        return {};
    }
    if (auto come = await_others(); !come) return come;
    if (places_ == 1)
        std::memcpy(out, slot(0), count * bytes_of(type));
    else
        reduce_into(out, slot(0), slot(1), count, type, reduce);
    for (std::uint32_t place = 2; place < places_; ++place)
        reduce_into(out, out, slot(place), count, type, reduce);
    if (root)
        finish();
    else
        finish_all();
    if (reduce == Reduce::average) divide(out, count, type, places_);
    return {};
}

/// In one step everybody gives, and adds up one chunk; in the next one the chunks are handed out.
/// \param runs  calls part(in, out, offset in bytes, bytes) for what elements [at, at + n) consist of
template <class Runs>
Result<void> HostGroup::reduce_large(const Runs& runs, std::size_t count, DType type, Reduce reduce,
                                     std::optional<std::uint32_t> root, const ResultCopy& copy) {
    const std::size_t element = bytes_of(type);
    if (!root && by_levels(count * element)) {
        const auto fill = [&](std::size_t at, std::size_t n, std::byte* to) {
            runs(at, n,
                 [to](const std::byte* in, std::byte*, std::size_t offset, std::size_t bytes) {
                     std::memcpy(to + offset, in, bytes);
                 });
        };
        const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
            runs(at, n,
                 [&](const std::byte*, std::byte* out, std::size_t offset, std::size_t bytes) {
                     copy(out, from + offset, bytes);
                 });
        };
        return allreduce_by_levels(count, type, reduce, fill, take);
    }
    const std::size_t step = slot_bytes_ / element;
    for (std::size_t at = 0; at < count; at += step) {
        const std::size_t n = std::min(step, count - at);
        const Chunk own = Chunk::of(n, places_, place_);
        const std::size_t begin = own.at * element;

        if (auto claimed = claim(); !claimed) return claimed;
        const auto give = [&](std::size_t first, std::size_t number) {
            runs(at + first, number,
                 [to = own_slot() + first * element](const std::byte* in, std::byte*,
                                                     std::size_t offset, std::size_t bytes) {
                     std::memcpy(to + offset, in, bytes);
                 });
        };
        give(0, own.at);
        give(own.end(), n - own.end());
        post();
        // The sum goes where the next step will post it; all have finished with that slot once they are here.
        std::byte* const sums = slot_of(place_, step_ + 1);
        if (auto come = await_others(); !come) return come;
        finish_all();
        runs(at + own.at, own.count,
             [&](const std::byte* in, std::byte*, std::size_t offset, std::size_t bytes) {
                 std::byte* const to = sums + begin + offset;
                 const auto given = [&](std::uint32_t place) {
                     return place == place_ ? in : slot(place) + begin + offset;
                 };
                 if (places_ == 1) std::memcpy(to, in, bytes);
                 for (std::uint32_t place = 1; place < places_; ++place)
                     reduce_into(to, place == 1 ? given(0) : to, given(place), bytes / element,
                                 type, reduce);
             });
        if (reduce == Reduce::average) divide(sums + begin, own.count, type, places_);

        if (auto claimed = claim(); !claimed) return claimed;
        post();
        if (root && *root != place_) {
            finish();
            continue;
        }
        for (std::uint32_t turn = 0; turn < places_; ++turn) {
            const std::uint32_t place = (place_ + turn) % places_;
            if (turn > 0)
                if (auto come = await(place); !come) return come;
            const Chunk theirs = Chunk::of(n, places_, place);
            runs(at + theirs.at, theirs.count,
                 [&, from = slot(place) + theirs.at * element](
                     const std::byte*, std::byte* out, std::size_t offset, std::size_t bytes) {
                     copy(out, from + offset, bytes);
                 });
        }
        if (root)
            finish();
        else
            finish_all();
    }
    return {};
}

Result<void> HostGroup::reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                       Reduce reduce) {
    const std::size_t element = bytes_of(type);
    std::vector<Chunk> chunks;
    for (std::uint32_t place = 0; place < places_; ++place)
        chunks.push_back({place * count, count});
    const auto fill = [&](std::size_t at, std::size_t n, std::byte* to) {
        copy_bytes(to, at_byte(in, at * element), n * element);
    };
    auto done = sum_chunks(chunks, type, reduce, fill, out);
    if (done && reduce == Reduce::average) divide(out, count, type, places_);
    return done;
}

Result<void> HostGroup::sum_chunks(std::span<const Chunk> chunks, DType type, Reduce reduce,
                                   const Fill& fill, void* sums) {
    const std::size_t element = bytes_of(type);
    const std::size_t begin = place_ < chunks.size() ? chunks[place_].at : 0;
    return sum_chunks(chunks, type, reduce, fill,
                      [&](std::size_t at, std::size_t n, const Sum& sum) {
                          sum(at, n, at_byte(sums, (at - begin) * element));
                      });
}

Result<void> HostGroup::sum_chunks(std::span<const Chunk> chunks, DType type, Reduce reduce,
                                   const Fill& fill, const TakeSums& take) {
    const std::size_t element = bytes_of(type);
    if (by_levels(chunks, element)) return sum_by_levels(chunks, type, reduce, fill, take);
    const std::size_t room = slot_bytes_ / chunks.size() / kCacheLine * kCacheLine;
    const std::size_t step = room / element;
    std::size_t longest = 0;
    for (const Chunk& chunk : chunks) longest = std::max(longest, chunk.count);
    const auto in_step = [&](const Chunk& chunk, std::size_t at) {
        return at < chunk.count ? std::min(step, chunk.count - at) : 0;
    };
    for (std::size_t at = 0; at < longest; at += step) {
        if (auto claimed = claim(); !claimed) return claimed;
        for (std::uint32_t place = 0; place < chunks.size(); ++place) {
            const std::size_t n = in_step(chunks[place], at);
            if (place != place_ && n > 0) fill(chunks[place].at + at, n, own_slot() + place * room);
        }
        post();
        if (auto come = await_others(); !come) return come;
        const std::size_t own = place_ < chunks.size() ? in_step(chunks[place_], at) : 0;
        if (own > 0) {
            const std::size_t begin = chunks[place_].at + at;
            const std::size_t strip = kStripBytes / element;
            take(begin, own, [&](std::size_t first, std::size_t n, std::byte* to) {
                for (std::size_t end = first + n; first < end; first += strip, to += kStripBytes) {
                    const std::size_t here = std::min(strip, end - first);
                    const std::size_t offset = place_ * room + (first - begin) * element;
                    fill(first, here, to);
                    for (std::uint32_t place = 0; place < places_; ++place)
                        if (place != place_)
                            reduce_into(to, to, slot(place) + offset, here, type, reduce);
                }
            });
        }
        finish_all();
    }
    return {};
}

// ---- the others -----------------------------------------------------------------------------

Result<void> HostGroup::share_chunks(std::span<const Chunk> chunks, std::size_t unit,
                                     const void* own, const Take& take) {
    if (by_levels(chunks, unit)) return share_by_levels(chunks, unit, own, take);
    const std::size_t step = slot_bytes_ / unit;
    std::size_t longest = 0;
    for (const Chunk& chunk : chunks) longest = std::max(longest, chunk.count);
    const auto in_step = [&](const Chunk& chunk, std::size_t at) {
        return at < chunk.count ? std::min(step, chunk.count - at) : 0;
    };
    for (std::size_t at = 0; at < longest; at += step) {
        if (auto claimed = claim(); !claimed) return claimed;
        const std::size_t mine = place_ < chunks.size() ? in_step(chunks[place_], at) : 0;
        if (mine > 0) std::memcpy(own_slot(), at_byte(own, at * unit), mine * unit);
        post();
        if (mine > 0) take(chunks[place_].at + at, mine, at_byte(own, at * unit));
        for (std::uint32_t turn = 1; turn < places_; ++turn) {
            const std::uint32_t place = (place_ + turn) % places_;
            const std::size_t n = place < chunks.size() ? in_step(chunks[place], at) : 0;
            // All wait for all, also for those that have nothing: then nobody has to ask who has finished.
            if (auto come = await(place); !come) return come;
            if (n > 0) take(chunks[place].at + at, n, slot(place));
        }
        finish_all();
    }
    return {};
}

Result<void> HostGroup::broadcast(void* data, std::size_t bytes, std::uint32_t root) {
    // The root copies the next part in while the others copy this one out.
    constexpr std::size_t kStepBytesMin = 16UL << 10;
    constexpr std::size_t kStepBytesMax = 128UL << 10;
    const std::size_t step = std::min(
        slot_bytes_, std::clamp(bytes / 8 / kPageBytes * kPageBytes, kStepBytesMin, kStepBytesMax));
    const ResultCopy copy(bytes, true);
    for (std::size_t at = 0; at < bytes; at += step) {
        const std::size_t n = std::min(step, bytes - at);
        const bool tiny = n <= Line::kBytes;
        if (auto claimed = claim(); !claimed) return claimed;
        const Line& line = page(root).posted[step_ & 1];
        if (place_ == root) {
            std::memcpy(tiny ? own().posted[step_ & 1].data.data() : own_slot(), at_byte(data, at),
                        n);
            post();
        } else {
            if (auto come = await(root); !come) return come;
            copy(at_byte(data, at), tiny ? line.data.data() : slot(root), n);
        }
        finish();
    }
    return {};
}

Result<void> HostGroup::allgatherv(const void* in, void* out, std::span<const std::size_t> bytes) {
    std::vector<Chunk> chunks;
    std::size_t at = 0;
    for (const std::size_t one : bytes) {
        chunks.push_back({at, one});
        at += one;
    }
    const ResultCopy copy(at, true);
    // `in` may be this rank's part of `out`.
    const auto take = [&](std::size_t to, std::size_t n, const std::byte* from) {
        copy(at_byte(out, to), from, n);
    };
    return share_chunks(chunks, 1, in, take);
}

Result<void> HostGroup::gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    const ResultCopy copy(bytes * places_, true);
    for (std::size_t at = 0; at < bytes; at += slot_bytes_) {
        const std::size_t n = std::min(slot_bytes_, bytes - at);
        if (auto claimed = claim(); !claimed) return claimed;
        if (place_ != root) {
            std::memcpy(own_slot(), at_byte(in, at), n);
            post();
            finish();
            continue;
        }
        copy_bytes(at_byte(out, place_ * bytes + at), at_byte(in, at), n);
        for (std::uint32_t place = 0; place < places_; ++place) {
            if (place == root) continue;
            if (auto come = await(place); !come) return come;
            copy(at_byte(out, place * bytes + at), slot(place), n);
        }
        finish();
    }
    return {};
}

Result<void> HostGroup::scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    const std::size_t room = slot_bytes_ / places_ / kCacheLine * kCacheLine;
    for (std::size_t at = 0; at < bytes; at += room) {
        const std::size_t n = std::min(room, bytes - at);
        if (auto claimed = claim(); !claimed) return claimed;
        if (place_ == root) {
            for (std::uint32_t place = 0; place < places_; ++place)
                if (place != root)
                    std::memcpy(own_slot() + place * room, at_byte(in, place * bytes + at), n);
            post();
            copy_bytes(at_byte(out, at), at_byte(in, root * bytes + at), n);
        } else {
            if (auto come = await(root); !come) return come;
            copy_from_other(at_byte(out, at), slot(root) + place_ * room, n);
        }
        finish();
    }
    return {};
}

Result<void> HostGroup::alltoall(const void* in, void* out, std::size_t bytes) {
    const std::size_t room = slot_bytes_ / places_ / kCacheLine * kCacheLine;
    const ResultCopy copy(bytes * places_, true);
    for (std::size_t at = 0; at < bytes; at += room) {
        const std::size_t n = std::min(room, bytes - at);
        if (auto claimed = claim(); !claimed) return claimed;
        for (std::uint32_t place = 0; place < places_; ++place)
            if (place != place_)
                std::memcpy(own_slot() + place * room, at_byte(in, place * bytes + at), n);
        post();
        std::memcpy(at_byte(out, place_ * bytes + at), at_byte(in, place_ * bytes + at), n);
        for (std::uint32_t turn = 1; turn < places_; ++turn) {
            const std::uint32_t place = (place_ + turn) % places_;
            if (auto come = await(place); !come) return come;
            copy(at_byte(out, place * bytes + at), slot(place) + place_ * room, n);
        }
        finish_all();
    }
    return {};
}

Result<void> HostGroup::barrier() {
    if (auto claimed = claim(); !claimed) return claimed;
    post();
    if (auto come = await_others(); !come) return come;
    finish_all();
    return {};
}

}  // namespace dtrun::collectives
