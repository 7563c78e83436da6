#include "lab/rank/comm_reducer.h"

#include <cstring>

namespace dtrun::lab::rank {

namespace {

/// Copies values to the backend's memory, calls `operation` on the copy, and copies them back.
template <class T, class F>
Result<void> through(const MemoryKind& kind, std::span<T> values, F operation) {
    const std::size_t bytes = values.size_bytes();
    const auto memory = Memory::allocate(kind, bytes);
    if (!memory) return std::unexpected(memory.error());
    std::memcpy(memory->host().data(), values.data(), bytes);
    if (auto done = memory->push(bytes); !done) return done;
    if (auto done = checked(operation(memory->data())); !done) return done;
    if (auto done = memory->pull(bytes); !done) return done;
    std::memcpy(values.data(), memory->host().data(), bytes);
    return {};
}

}  // namespace

CommReducer::CommReducer(const Comm& comm, const MemoryKind& memory, const Algorithm& algorithm)
    : comm_(comm),
      memory_(memory),
      feedback_(algorithm.feedback),
      compressed_(algorithm.format.has_value()) {
    compression_.size = sizeof compression_;
    compression_.stochastic = algorithm.stochastic;
    compression_.policy = 1;  // what it does to a training is what is to be seen, on one host, too
    if (algorithm.format) compression_.format = static_cast<int>(*algorithm.format);
}

Result<void> CommReducer::broadcast(std::span<float> weights) {
    return checked(dtrun_broadcast(comm_.get(), weights.data(), weights.size(), DTRUN_F32, 0));
}

Result<void> CommReducer::sum(std::span<double> values) {
    return through(memory_, values, [&](void* data) {
        return dtrun_allreduce(comm_.get(), data, data, values.size(), DTRUN_F64, DTRUN_SUM,
                               nullptr);
    });
}

/// Allocates, once, the buffers for error feedback.
Result<void> CommReducer::prepare(std::span<const std::span<float>> gradients) {
    for (const std::span<float> gradient : gradients) {
        counts_.push_back(gradient.size());
        arrays_.push_back(gradient.data());
        if (!feedback_) continue;
        auto error = Memory::allocate(memory_, gradient.size_bytes());
        if (!error) return std::unexpected(error.error());
        if (auto done = error->push(gradient.size_bytes()); !done) return done;  // zeros
        error_arrays_.push_back(static_cast<float*>(error->data()));
        errors_.push_back(std::move(*error));
    }
    return {};
}

Result<void> CommReducer::average(std::span<const std::span<float>> gradients) {
    if (arrays_.empty())
        if (auto done = prepare(gradients); !done) return done;
    return checked(dtrun_allreduce_many(
        comm_.get(), arrays_.data(), counts_.data(), counts_.size(), DTRUN_F32, DTRUN_AVERAGE,
        compressed_ ? &compression_ : nullptr, feedback_ ? error_arrays_.data() : nullptr));
}

}  // namespace dtrun::lab::rank
