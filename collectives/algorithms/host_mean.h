#pragma once

#include "collectives/codec/format.h"
#include "collectives/topology.h"
#include "collectives/types.h"

#include <cstddef>

namespace dtrun::collectives {

/// Makes averages of what the ranks of a host have added up before it was encoded.
///
/// Where ranks' values fit into a format, so does their average, but a host's sum need not: fp16 ends at
/// 65,504. So for formats of a small range every host divides its sum by the same number, that of the ranks of the
/// largest host, and the rest of the division follows when all hosts' values have been added up.
class HostMean {
public:
    HostMean(const Topology& topology, Reduce reduce, Format format);

    /// What a host's sum is divided by before it is encoded. An error of its encoding, which a rank adds to its
    /// values of the next call, is that times larger.
    float divisor() const { return static_cast<float>(divisor_); }
    bool divides() const { return divisor_ > 1; }
    void divide_sums(float* sums, std::size_t count) const;
    /// Makes the average of all ranks' values out of what the hosts have given, added up. A sum stays.
    void finish(float* sums, std::size_t count) const;

private:
    bool average_;
    std::uint32_t size_;
    std::uint32_t divisor_ = 1;
};

}  // namespace dtrun::collectives
