#pragma once

#include "collectives/group.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// Many arrays as one sequence of elements, which nobody copies together. The arrays outlive it.
class ArrayRuns {
public:
    /// \param element  bytes of one
    ArrayRuns(std::span<const Array> arrays, std::size_t element)
        : arrays_(arrays), element_(element) {
        ends_.reserve(arrays.size());
        for (const Array& array : arrays) ends_.push_back(count() + array.count);
    }

    std::size_t count() const { return ends_.empty() ? 0 : ends_.back(); }

    /// Calls body(where it is, offset from `at`, bytes) for whatever [at, at + n) consists of.
    template <class Body>
    void operator()(std::size_t at, std::size_t n, const Body& body) const {
        auto i = static_cast<std::size_t>(std::ranges::upper_bound(ends_, at) - ends_.begin());
        for (std::size_t done = 0; done < n; ++i) {
            const std::size_t offset = at + done - (ends_[i] - arrays_[i].count);
            const std::size_t here = std::min(n - done, arrays_[i].count - offset);
            if (here > 0)
                body(static_cast<std::byte*>(arrays_[i].data) + offset * element_, done * element_,
                     here * element_);
            done += here;
        }
    }

private:
    std::span<const Array> arrays_;
    std::size_t element_;
    std::vector<std::size_t> ends_;  ///< of each array in the sequence
};

}  // namespace dtrun::collectives
