#pragma once

#include "collectives/algorithms/compressed.h"

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// Values of a gap in front of a segment, with which no block of the codec has values of a large segment and of
/// another one.
/// \param at      where it would begin otherwise
/// \param before  values of the segment in front of it; 0: there is none
std::size_t gap_between(std::size_t at, std::size_t before, std::size_t count);

/// Segments as one sequence of values. The segments outlive it.
class Segments {
public:
    enum class Blocks {
        shared,  ///< segments follow each other without a gap
        apart,   ///< with the gaps of gap_between()
    };
    explicit Segments(std::span<const TypedSegment> segments, Blocks blocks = Blocks::shared);
    Segments(const Segments&) = delete;
    Segments& operator=(const Segments&) = delete;

    /// With the gaps.
    std::size_t count() const { return ends_.empty() ? 0 : ends_.back(); }

    /// This rank's values with the errors of the last call, which are 0 from now on.
    /// \param room  for n values
    /// \return `room`, or where the values already lie
    const float* take(std::size_t at, std::size_t n, float* room) const;
    bool has_errors(std::size_t at, std::size_t n) const;
    void put_errors(std::size_t at, std::size_t n, const float* errors) const;
    /// Where n values of the result go, if they lie in one segment, else nullptr.
    float* place(std::size_t at, std::size_t n) const;
    void put(std::size_t at, std::size_t n, const float* values) const;

private:
    /// Calls part(segment, offset in the segment, offset in the range, number of values) for
    /// whatever [at, at + n) consists of.
    template <class F>
    void for_each(std::size_t at, std::size_t n, F part) const;
    std::size_t find(std::size_t at) const;
    static const float* read(const TypedSegment& segment, std::size_t from, std::size_t k,
                             float* room);
    static Format format_of(DType type);
    void add(const TypedSegment& segment);

    std::vector<TypedSegment> segments_;  ///< and gaps, which are zeros that go nowhere
    std::vector<std::size_t> ends_;       ///< of each segment in the sequence
    std::array<float, kBlock> nowhere_;
};

}  // namespace dtrun::collectives
