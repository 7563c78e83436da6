#pragma once

#include "lab/rank/learner.h"
#include "lab/records.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::lab::rank {

/// What data-parallel training asks of communication. All ranks call the same in the same order.
/// Weights and gradients are in the memory of their learner, sums in the host's.
class Reducer {
public:
    virtual ~Reducer() = default;
    virtual std::uint32_t rank() const = 0;
    virtual std::uint32_t size() const = 0;
    /// Sets all ranks' weights to those of rank 0.
    virtual Result<void> broadcast(std::span<float> weights) = 0;
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
    /// weak: an epoch has as many steps as one rank alone would take with its part of a batch, so
    /// that every rank learns from as many images as that one; images come again in it, in another
    /// order.
    Scaling scaling = Scaling::strong;
    std::uint64_t seed = 1;  ///< of weights and of the order of images
    /// Factor of gradients while they travel. f32 is indifferent to it; in formats so narrow that
    /// small gradients become 0, more of them survive with a larger factor.
    double loss_scale = 1;
};

/// The same on every rank, but for times, which differ a little.
struct Trained {
    double accuracy = 0;  ///< part of the test images told right, 0 to 1
    double loss = 0;      ///< mean over the last epoch, while weights still changed
    double seconds = 0;   ///< of all steps, without tests; of the slowest rank
    // Means over ranks of medians over steps, without the first ones, in which memory is touched
    // for the first time and connections are made.
    double step_ms = 0;
    double compute_ms = 0;
    double comm_ms = 0;        ///< waiting for slower ranks included
    double samples_per_s = 0;  ///< images of a step / step_ms
    float learning_rate = 0;
    std::uint64_t start_unix_ms = 0;
    std::vector<EpochRecord> by_epoch;  ///< each is followed by a test, whose time is not counted
};

/// Milliseconds since 1970.
std::uint64_t unix_ms_now();

/// Trains a network with stochastic gradient descent and momentum 0.9. Each rank takes its part of
/// each batch, so that the result is that of one rank but for rounding. In strong scaling, images
/// that do not fill a batch are left out of an epoch; the order changes with each epoch.
///
/// The learning rate is 0.05 for batches of 64 and grows with them up to 0.1.
/// \param make  of the learner, which computes where the reducer expects weights and gradients
/// Errc: invalid_input (batches that do not fit); those of the reducer and of the learner
Result<Trained> train(const TrainOptions& options, const DataSet& data, Reducer& reducer,
                      const MakeLearner& make = learner_on_cpu);

}  // namespace dtrun::lab::rank
