#include "collectives/algorithms/host_mean.h"

#include "collectives/codec/format_table.h"
#include "collectives/codec/reduce.h"

namespace dtrun::collectives {

HostMean::HostMean(const Topology& topology, Reduce reduce, Format format)
    : average_(reduce == Reduce::average), size_(topology.size()) {
    constexpr float kRoomForSums = 1e30F;
    const FormatRow& row = row_of(format);
    if (average_ && !row.is_scaled() && row.largest < kRoomForSums)
        divisor_ = topology.places_max();
}

void HostMean::divide_sums(float* sums, std::size_t count) const {
    divide(sums, count, DType::f32, divisor_);
}

void HostMean::finish(float* sums, std::size_t count) const {
    if (!average_) return;
    if (size_ % divisor_ == 0) return divide(sums, count, DType::f32, size_ / divisor_);
    // Hosts are unequal: the mean of their values is not the mean of the ranks'.
    divide(sums, count, DType::f32, size_);
    for (std::size_t i = 0; i < count; ++i) sums[i] *= divisor();
}

}  // namespace dtrun::collectives
