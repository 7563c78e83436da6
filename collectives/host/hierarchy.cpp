#include "collectives/host/host_group.h"

#include "collectives/codec/reduce.h"

#include <algorithm>
#include <utility>

namespace dtrun::collectives {
namespace {

/// Below this, the steps that two levels take cost more than what crosses between the parts.
constexpr std::size_t kLevelBytesMin = 256UL << 10;

/// Chunks step by step, so that what is under way stays in the caches.
class Steps {
public:
    /// \param length  of a step at most, in elements
    Steps(std::span<const Chunk> chunks, std::size_t length) : chunks_(chunks), length_(length) {
        for (const Chunk& chunk : chunks) longest_ = std::max(longest_, chunk.count);
    }

    bool ended() const { return at_ >= longest_; }
    void next() { at_ += length_; }
    /// Of the step in the chunk of a place, or of the chunk's end if it has come to that.
    std::size_t offset(std::uint32_t place) const {
        return place < chunks_.size() ? std::min(at_, chunks_[place].count) : 0;
    }
    std::vector<Chunk> now() const {
        std::vector<Chunk> chunks;
        for (std::uint32_t place = 0; place < chunks_.size(); ++place) {
            const std::size_t begin = offset(place);
            chunks.push_back(
                {chunks_[place].at + begin, std::min(length_, chunks_[place].count - begin)});
        }
        return chunks;
    }

private:
    std::span<const Chunk> chunks_;
    std::size_t length_;
    std::size_t longest_ = 0;
    std::size_t at_ = 0;
};

/// The chunks of all places in the order of their indices in the parts, as if they lay one behind the other: what
/// the ranks with one index have is one chunk then.
class ChunksByIndex {
public:
    ChunksByIndex(std::span<const Chunk> chunks, const MachineParts& parts)
        : parts_(parts.parts()) {
        std::size_t end = 0;
        for (std::uint32_t index = 0; index < parts.ranks_of_part(); ++index) {
            const std::size_t begin = end;
            for (std::uint32_t part = 0; part < parts_; ++part) {
                const std::uint32_t place = parts.place(part, index);
                chunks_.push_back(place < chunks.size() ? chunks[place] : Chunk{});
                ends_.push_back(end += chunks_.back().count);
            }
            by_index_.push_back({begin, end - begin});
        }
    }

    std::span<const Chunk> by_index() const { return by_index_; }

    /// Of each part's rank with this index, as if what they have together were all.
    std::vector<Chunk> within(std::uint32_t index) const {
        std::vector<Chunk> chunks;
        std::size_t at = 0;
        for (std::uint32_t part = 0; part < parts_; ++part) {
            chunks.push_back({at, chunks_[index * parts_ + part].count});
            at += chunks.back().count;
        }
        return chunks;
    }

    /// Calls body(where it really is, offset from `at`, elements) for whatever [at, at + n) consists of.
    template <class Body>
    void operator()(std::size_t at, std::size_t n, const Body& body) const {
        auto i = static_cast<std::size_t>(std::ranges::upper_bound(ends_, at) - ends_.begin());
        for (std::size_t done = 0; done < n; ++i) {
            const std::size_t offset = at + done - (ends_[i] - chunks_[i].count);
            const std::size_t here = std::min(n - done, chunks_[i].count - offset);
            if (here > 0) body(chunks_[i].at + offset, done, here);
            done += here;
        }
    }

private:
    std::uint32_t parts_;
    std::vector<Chunk> chunks_;      ///< by index, then by part
    std::vector<std::size_t> ends_;  ///< of each of them, one behind the other
    std::vector<Chunk> by_index_;
};

}  // namespace

Result<void> HostGroup::join_levels(const GroupSpec& spec, Locality locality) {
    std::vector<Locality> all(places_);
    const std::vector<std::size_t> sizes(places_, sizeof locality);
    if (auto told = allgatherv(&locality, all.data(), sizes); !told) return told;
    const auto parts = MachineParts::of(all);
    if (!parts) return {};

    const std::uint32_t part = parts->part_of(place_), index = parts->index_of(place_);
    const auto name = [&](const char* level, std::uint32_t number) {
        return fmt::format("host/{}/{}/{}", spec.topology.host(), level, number);
    };
    auto inside = meet(spec, {index, parts->ranks_of_part(), name("part", part)});
    auto across = meet(spec, {part, parts->parts(), name("index", index)});
    for (const auto* group : {&inside, &across})
        if (!*group && group->error().code != Errc::not_found)
            return std::unexpected(group->error());
    std::int32_t met = inside && across ? 1 : 0;
    if (auto told = allreduce(&met, &met, 1, DType::i32, Reduce::min); !told) return told;
    if (met == 0) return {};

    levels_ = std::make_unique<Hierarchy>(
        Hierarchy{*parts, part, index, std::move(*inside), std::move(*across)});
    in_levels(
        [](HostGroup& level) { level.deadline_ = std::chrono::steady_clock::time_point::max(); });
    return {};
}

bool HostGroup::by_levels(std::size_t bytes) const {
    return levels_ != nullptr && bytes >= kLevelBytesMin;
}

bool HostGroup::by_levels(std::span<const Chunk> chunks, std::size_t unit) const {
    std::size_t count = 0;
    for (const Chunk& chunk : chunks) count += chunk.count;
    return by_levels(count * unit);
}

std::byte* HostGroup::Hierarchy::room(std::size_t bytes) {
    of_index.resize(std::max(of_index.size(), bytes));
    return of_index.data();
}

/// Whoever was lost inside the part has another place on the host.
Result<void> HostGroup::of_inside(Result<void> done) {
    const auto lost = levels_->inside->lost();
    if (!done && lost) lost_ = levels_->parts.place(levels_->part, *lost);
    return done;
}

Result<void> HostGroup::of_across(Result<void> done) {
    const auto lost = levels_->across->lost();
    if (!done && lost) lost_ = levels_->parts.place(*lost, levels_->index);
    return done;
}

Result<void> HostGroup::allreduce_by_levels(std::size_t count, DType type, Reduce reduce,
                                            const Fill& fill, const Take& take) {
    const std::size_t element = bytes_of(type);
    const std::size_t step = level_step(element, places_) * places_;
    for (std::size_t at = 0; at < count; at += step) {
        const std::size_t n = std::min(step, count - at);
        std::vector<Chunk> chunks;
        for (std::uint32_t place = 0; place < places_; ++place) {
            const Chunk chunk = Chunk::of(n, places_, place);
            chunks.push_back({at + chunk.at, chunk.count});
        }
        const std::size_t own = chunks[place_].count;
        levels_->own.resize(std::max(levels_->own.size(), own * element));
        std::byte* const sums = levels_->own.data();
        const auto put = [&](std::size_t first, std::size_t number, const Sum& sum) {
            sum(first, number, sums + (first - chunks[place_].at) * element);
        };
        if (auto done = sum_by_levels(chunks, type, reduce, fill, put); !done) return done;
        if (reduce == Reduce::average) divide(sums, own, type, places_);
        if (auto done = share_by_levels(chunks, element, sums, take); !done) return done;
    }
    return {};
}

/// How much of each chunk a step of levels takes, in elements: what all have together fills a slot of a part.
std::size_t HostGroup::level_step(std::size_t element, std::size_t chunks) const {
    const std::size_t bytes = levels_->inside->slot_bytes() / chunks / kCacheLine * kCacheLine;
    return std::max(bytes / element, std::size_t{1});
}

/// Each part adds up what the ranks with one index have to add, at the one of them that is in the part; those add
/// that up for each other.
Result<void> HostGroup::sum_by_levels(std::span<const Chunk> chunks, DType type, Reduce reduce,
                                      const Fill& fill, const TakeSums& take) {
    Hierarchy& levels = *levels_;
    const std::size_t element = bytes_of(type);
    for (Steps step(chunks, level_step(element, chunks.size())); !step.ended(); step.next()) {
        const ChunksByIndex ordered(step.now(), levels.parts);
        std::byte* const of_index = levels.room(ordered.by_index()[levels.index].count * element);
        const auto given = [&](std::size_t at, std::size_t n, std::byte* to) {
            ordered(at, n, [&](std::size_t from, std::size_t offset, std::size_t number) {
                fill(from, number, to + offset * element);
            });
        };
        const auto of_part = [&](std::size_t at, std::size_t n, std::byte* to) {
            copy_from_other(to, of_index + at * element, n * element);
        };
        const std::vector<Chunk> within = ordered.within(levels.index);
        const auto take_own = [&](std::size_t at, std::size_t n, const Sum& sum) {
            const std::size_t here = within[levels.part].at;
            const std::size_t there = chunks[place_].at + step.offset(place_);
            take(there + (at - here), n, [&](std::size_t first, std::size_t number, std::byte* to) {
                sum(here + (first - there), number, to);
            });
        };
        auto done =
            of_inside(levels.inside->sum_chunks(ordered.by_index(), type, reduce, given, of_index));
        if (done)
            done = of_across(levels.across->sum_chunks(within, type, reduce, of_part, take_own));
        if (!done) return done;
    }
    return {};
}

/// The other way round.
Result<void> HostGroup::share_by_levels(std::span<const Chunk> chunks, std::size_t unit,
                                        const void* own, const Take& take) {
    Hierarchy& levels = *levels_;
    for (Steps step(chunks, level_step(unit, chunks.size())); !step.ended(); step.next()) {
        const ChunksByIndex ordered(step.now(), levels.parts);
        std::byte* const of_index = levels.room(ordered.by_index()[levels.index].count * unit);
        const auto of_part = [&](std::size_t at, std::size_t n, const std::byte* from) {
            copy_from_other(of_index + at * unit, from, n * unit);
        };
        const auto taken = [&](std::size_t at, std::size_t n, const std::byte* from) {
            ordered(at, n, [&](std::size_t to, std::size_t offset, std::size_t number) {
                take(to, number, from + offset * unit);
            });
        };
        const auto* const mine = static_cast<const std::byte*>(own) + step.offset(place_) * unit;
        auto done = of_across(
            levels.across->share_chunks(ordered.within(levels.index), unit, mine, of_part));
        if (done)
            done =
                of_inside(levels.inside->share_chunks(ordered.by_index(), unit, of_index, taken));
        if (!done) return done;
    }
    return {};
}

}  // namespace dtrun::collectives
