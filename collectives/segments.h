#pragma once

#include "collectives/compressed.h"

#include <cstddef>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// Segments as one sequence of values. The segments outlive it.
class Segments {
public:
    explicit Segments(std::span<const TypedSegment> segments);

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

    std::span<const TypedSegment> segments_;
    std::vector<std::size_t> ends_;  ///< of each segment in the sequence
};

}  // namespace dtrun::collectives
