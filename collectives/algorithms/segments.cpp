#include "collectives/algorithms/segments.h"

#include "collectives/codec/codec.h"
#include "collectives/codec/reduce.h"
#include "collectives/host/copy.h"

#include <algorithm>

namespace dtrun::collectives {

namespace {

/// Segments that are as large as this begin a block and end one; for smaller ones a gap would be as much as they are.
constexpr std::size_t kLargeMin = 8 * kBlock;
constexpr std::array<float, kBlock> kZeros{};

}  // namespace

std::size_t gap_between(std::size_t at, std::size_t before, std::size_t count) {
    if (before < kLargeMin && count < kLargeMin) return 0;
    return (kBlock - at % kBlock) % kBlock;
}

Segments::Segments(std::span<const TypedSegment> segments, Blocks blocks) {
    segments_.reserve(segments.size());
    ends_.reserve(segments.size());
    std::size_t before = 0;
    for (const TypedSegment& segment : segments) {
        if (segment.count == 0) continue;
        const std::size_t gap =
            blocks == Blocks::apart ? gap_between(count(), before, segment.count) : 0;
        if (gap > 0) add({kZeros.data(), nowhere_.data(), gap});
        add(segment);
        before = segment.count;
    }
}

void Segments::add(const TypedSegment& segment) {
    segments_.push_back(segment);
    ends_.push_back(count() + segment.count);
}

std::size_t Segments::find(std::size_t at) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) -
                                    ends_.begin());
}

template <class F>
void Segments::for_each(std::size_t at, std::size_t n, F part) const {
    std::size_t done = 0;
    for (std::size_t i = find(at); done < n; ++i) {
        const std::size_t begin = ends_[i] - segments_[i].count;
        const std::size_t here = std::min(n - done, ends_[i] - (at + done));
        part(segments_[i], at + done - begin, done, here);
        done += here;
    }
}

const float* Segments::take(std::size_t at, std::size_t n, float* room) const {
    const float* there = nullptr;
    for_each(at, n,
             [&](const TypedSegment& segment, std::size_t from, std::size_t to, std::size_t k) {
                 float* const error = segment.error != nullptr ? segment.error + from : nullptr;
                 const float* values = read(segment, from, k, room + to);
                 if (error != nullptr) {
                     reduce_into(room + to, values, error, k, DType::f32, Reduce::sum);
                     std::fill_n(error, k, 0.0F);
                 } else if (k == n) {
                     there = values;
                 } else if (values != room + to) {
                     std::copy_n(values, k, room + to);
                 }
             });
    return there != nullptr ? there : room;
}

/// \return where k values of a segment are, which is `room` if they have another type
const float* Segments::read(const TypedSegment& segment, std::size_t from, std::size_t k,
                            float* room) {
    if (segment.type == DType::f32) return static_cast<const float*>(segment.in) + from;
    const auto* bytes = static_cast<const std::byte*>(segment.in) + from * bytes_of(segment.type);
    decode(format_of(segment.type), bytes, k, room);
    return room;
}

/// The format in which values of 16 bits are what they are in memory.
Format Segments::format_of(DType type) {
    return type == DType::bf16 ? Format::bf16 : Format::f16;
}

bool Segments::has_errors(std::size_t at, std::size_t n) const {
    bool any = false;
    for_each(at, n, [&](const TypedSegment& segment, std::size_t, std::size_t, std::size_t) {
        any = any || segment.error != nullptr;
    });
    return any;
}

void Segments::put_errors(std::size_t at, std::size_t n, const float* errors) const {
    for_each(at, n,
             [&](const TypedSegment& segment, std::size_t to, std::size_t from, std::size_t k) {
                 if (segment.error != nullptr) std::copy_n(errors + from, k, segment.error + to);
             });
}

float* Segments::place(std::size_t at, std::size_t n) const {
    float* found = nullptr;
    for_each(at, n, [&](const TypedSegment& segment, std::size_t to, std::size_t, std::size_t k) {
        if (k == n && segment.type == DType::f32) found = static_cast<float*>(segment.out) + to;
    });
    return found;
}

void Segments::put(std::size_t at, std::size_t n, const float* values) const {
    for_each(at, n,
             [&](const TypedSegment& segment, std::size_t to, std::size_t from, std::size_t k) {
                 if (segment.type == DType::f32) {
                     float* const place = static_cast<float*>(segment.out) + to;
                     copy_from_other(place, values + from, k * sizeof(float));
                     return;
                 }
                 encode(format_of(segment.type), Rounding::nearest, 0, values + from, k,
                        static_cast<std::byte*>(segment.out) + to * bytes_of(segment.type));
             });
}

}  // namespace dtrun::collectives
