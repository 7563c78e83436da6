#pragma once

#include "lab/rank/memory.h"
#include "lab/rank/options.h"
#include "lab/rank/rank_comm.h"
#include "lab/rank/trainer.h"

#include <vector>

namespace dtrun::lab::rank {

/// Training over a communicator. Gradients of all tensors are one call; with error feedback each
/// has a buffer of its own. Weights and gradients are in the memory of the communicator's backend.
class CommReducer final : public Reducer {
public:
    /// comm and memory outlive it
    CommReducer(const Comm& comm, const MemoryKind& memory, const Algorithm& algorithm);

    std::uint32_t rank() const override { return comm_.rank(); }
    std::uint32_t size() const override { return comm_.size(); }
    Result<void> broadcast(std::span<float> weights) override;
    Result<void> average(std::span<const std::span<float>> gradients) override;
    Result<void> sum(std::span<double> values) override;

private:
    Result<void> prepare(std::span<const std::span<float>> gradients);

    const Comm& comm_;
    const MemoryKind& memory_;
    const bool feedback_;
    const bool compressed_;
    dtrun_compression compression_{};
    std::vector<Memory> errors_;  ///< of each gradient, for error feedback
    std::vector<void*> arrays_;
    std::vector<float*> error_arrays_;
    std::vector<std::size_t> counts_;
};

}  // namespace dtrun::lab::rank
