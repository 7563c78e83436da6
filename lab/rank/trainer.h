#pragma once

#include "lab/rank/images.h"
#include "lab/rank/network.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::lab::rank {

/// What data-parallel training asks of communication. All ranks call the same in the same order.
class Reducer {
public:
    virtual ~Reducer() = default;
    virtual std::uint32_t rank() const = 0;
    virtual std::uint32_t size() const = 0;
    /// Sets all ranks' values to those of rank 0.
    virtual Result<void> broadcast(std::span<float> values) = 0;
    /// Gradients become their mean over all ranks, however exact that is. The same arrays are
    /// given every time.
    virtual Result<void> average(std::span<const std::span<float>> gradients) = 0;
    /// Sets values to their exact sum over all ranks.
    virtual Result<void> sum(std::span<double> values) = 0;
};

/// The reducer of a single rank, which does not communicate.
class SerialReducer final : public Reducer {
public:
    std::uint32_t rank() const override { return 0; }
    std::uint32_t size() const override { return 1; }
    Result<void> broadcast(std::span<float>) override { return {}; }
    Result<void> average(std::span<const std::span<float>>) override { return {}; }
    Result<void> sum(std::span<double>) override { return {}; }
};

struct TrainOptions {
    Model model = Model::mlp;
    std::uint32_t epochs = 3;
    std::uint32_t global_batch = 64;  ///< images of a step, of all ranks together
    std::uint64_t seed = 1;           ///< of weights and of the order of images
    /// Factor of gradients while they travel. f32 is indifferent to it; in formats so narrow that
    /// small gradients become 0, more of them survive with a larger factor.
    double loss_scale = 1;
};

/// The same on every rank, but for times, which differ a little.
struct Trained {
    double accuracy = 0;  ///< part of the test images told right, 0 to 1
    double loss = 0;      ///< mean over the last epoch, while weights still changed
    double seconds = 0;   ///< of all steps, without the test at the end; of the slowest rank
    // Means over steps and ranks.
    double step_ms = 0;
    double compute_ms = 0;
    double comm_ms = 0;  ///< waiting for slower ranks included
    double samples_per_s = 0;
};

/// Trains a network with stochastic gradient descent and momentum 0.9. Each rank takes its part of
/// each batch, so that the result is that of one rank but for rounding. Images that do not fill a
/// batch are left out; the order changes with each epoch.
///
/// The learning rate is 0.05 for batches of 64 and grows with them up to 0.1.
/// Errc: invalid_input (batches that do not fit); those of the reducer
Result<Trained> train(const TrainOptions& options, const DataSet& data, Reducer& reducer);

}  // namespace dtrun::lab::rank
