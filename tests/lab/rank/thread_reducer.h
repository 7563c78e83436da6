#pragma once

#include "collectives/compressed.h"
#include "lab/rank/trainer.h"
#include "tests/collectives/support/local_group.h"

#include <memory>
#include <optional>
#include <vector>

namespace dtrun::lab::rank {

using namespace collectives;  // whose algorithms these ranks use

/// How gradients of ranks that are threads travel.
struct ThreadCompression {
    std::optional<Format> format;  ///< none: as f32
    Rounding rounding = Rounding::nearest;
    bool feedback = false;
};

/// A rank that is a thread, and reduces with the library's own algorithm.
class ThreadReducer final : public Reducer {
public:
    ThreadReducer(LocalNetwork& network, std::uint32_t rank, const ThreadCompression& compression)
        : group_(network.connect(rank)),
          rank_(rank),
          size_(network.size()),
          compression_(compression) {}

    std::uint32_t rank() const override { return rank_; }
    std::uint32_t size() const override { return size_; }
    Result<void> broadcast(std::span<float> values) override;
    Result<void> average(std::span<const std::span<float>> gradients) override;
    Result<void> sum(std::span<double> values) override;

private:
    /// The same bytes of every rank, one behind the other.
    template <class T>
    Result<std::vector<T>> gather(std::span<const T> values);

    std::unique_ptr<Group> group_;
    const std::uint32_t rank_, size_;
    const ThreadCompression compression_;
    CompressedAllreduce allreduce_;
    std::uint64_t calls_ = 0;
    std::vector<std::vector<float>> errors_;
};

/// What rank 0 says of training with `size` threads; an error of any.
Result<Trained> train_in_threads(std::uint32_t size, const TrainOptions& options,
                                 const DataSet& data, const ThreadCompression& compression = {});

}  // namespace dtrun::lab::rank
