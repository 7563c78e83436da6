#include "tests/lab/rank/thread_reducer.h"

#include "tests/collectives/support/thread_ranks.h"

#include <algorithm>

namespace dtrun::lab::rank {

template <class T>
Result<std::vector<T>> ThreadReducer::gather(std::span<const T> values) {
    std::vector<T> all(values.size() * size_);
    if (auto done = group_->allgather(values.data(), all.data(), values.size_bytes()); !done)
        return std::unexpected(done.error());
    return all;
}

Result<void> ThreadReducer::broadcast(std::span<float> values) {
    return group_->broadcast(values.data(), values.size_bytes(), 0);
}

Result<void> ThreadReducer::sum(std::span<double> values) {
    const auto all = gather<double>(values);
    if (!all) return std::unexpected(all.error());
    std::ranges::fill(values, 0.0);
    for (std::size_t i = 0; i < all->size(); ++i) values[i % values.size()] += (*all)[i];
    return {};
}

Result<void> ThreadReducer::average(std::span<const std::span<float>> gradients) {
    if (!compression_.format) {
        for (const std::span<float> gradient : gradients)
            if (auto done = group_->allreduce(gradient.data(), gradient.data(), gradient.size(),
                                              DType::f32, Reduce::average);
                !done)
                return done;
        return {};
    }
    errors_.resize(gradients.size());
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        errors_[i].resize(gradients[i].size());
        segments.push_back({gradients[i].data(), gradients[i].data(), gradients[i].size(),
                            compression_.feedback ? errors_[i].data() : nullptr});
    }
    return allreduce_.run(*group_, rank_, size_, segments, Reduce::average,
                          {*compression_.format, compression_.rounding}, calls_++);
}

Result<Trained> train_in_threads(std::uint32_t size, const TrainOptions& options,
                                 const DataSet& data, const ThreadCompression& compression) {
    LocalNetwork network(size);
    Result<Trained> first;
    const auto results = run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                                       ThreadReducer reducer(network, rank, compression);
                                       auto trained = train(options, data, reducer);
                                       if (!trained) return std::unexpected(trained.error());
                                       if (rank == 0) first = *trained;
                                       return {};
                                   }));
    if (const std::string text = failures(results); !text.empty())
        return fail(Errc::internal, "{}", text);
    return first;
}

}  // namespace dtrun::lab::rank
