#include "collectives/segments.h"

#include "collectives/codec/reduce.h"

#include <algorithm>

namespace dtrun::collectives {

Segments::Segments(std::span<const Segment> segments) : segments_(segments) {
    std::size_t end = 0;
    ends_.reserve(segments.size());
    for (const Segment& segment : segments) ends_.push_back(end += segment.count);
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
    for_each(at, n, [&](const Segment& segment, std::size_t from, std::size_t to, std::size_t k) {
        if (segment.error != nullptr) {
            reduce_into(room + to, segment.in + from, segment.error + from, k, DType::f32,
                        Reduce::sum);
            std::fill_n(segment.error + from, k, 0.0F);
        } else if (k == n) {
            there = segment.in + from;
        } else {
            std::copy_n(segment.in + from, k, room + to);
        }
    });
    return there != nullptr ? there : room;
}

bool Segments::has_errors(std::size_t at, std::size_t n) const {
    bool any = false;
    for_each(at, n, [&](const Segment& segment, std::size_t, std::size_t, std::size_t) {
        any = any || segment.error != nullptr;
    });
    return any;
}

void Segments::put_errors(std::size_t at, std::size_t n, const float* errors) const {
    for_each(at, n, [&](const Segment& segment, std::size_t to, std::size_t from, std::size_t k) {
        if (segment.error != nullptr) std::copy_n(errors + from, k, segment.error + to);
    });
}

float* Segments::place(std::size_t at, std::size_t n) const {
    float* found = nullptr;
    for_each(at, n, [&](const Segment& segment, std::size_t to, std::size_t, std::size_t k) {
        if (k == n) found = segment.out + to;
    });
    return found;
}

void Segments::put(std::size_t at, std::size_t n, const float* values) const {
    for_each(at, n, [&](const Segment& segment, std::size_t to, std::size_t from, std::size_t k) {
        std::copy_n(values + from, k, segment.out + to);
    });
}

}  // namespace dtrun::collectives
