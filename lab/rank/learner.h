#pragma once

#include "lab/rank/images.h"
#include "lab/rank/kernels.h"
#include "lab/rank/network.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace dtrun::lab::rank {

/// A network that learns from a data set by gradient descent, wherever that is computed. Its arrays
/// lie in the memory of the processor that computes: the host's, or a GPU's.
///
/// Calls may return before what they have begun is done; each begins after those before.
class Learner {
public:
    virtual ~Learner() = default;

    /// Numbers that are learnt, and how the loss changes with each: an array for each tensor, in the
    /// same order, at the same place as long as the learner lives.
    virtual std::span<const std::span<float>> weights() const = 0;
    virtual std::span<const std::span<float>> gradients() const = 0;

    /// Sets the gradients to those of `scale` times the summed loss of training images[picks].
    /// \param picks  at most as many as the learner was made for
    virtual Result<void> learn(std::span<const std::uint32_t> picks, float scale) = 0;
    /// Changes the weights by the gradients.
    virtual Result<void> descend(const Descent& descent) = 0;
    /// Waits until all that was begun is done.
    virtual Result<void> finish() = 0;

    /// The summed loss of all images that were learnt from since the last call, without `scale`.
    virtual Result<double> take_loss() = 0;
    /// How many of the test images [first, first + count) it tells right.
    virtual Result<std::size_t> test(std::size_t first, std::size_t count) = 0;
};

/// What a learner is made for. The data set outlives it.
struct LearnerSpec {
    Model model = Model::mlp;
    std::uint64_t seed = 1;  ///< of the initial weights
    std::size_t batch = 1;   ///< most images of a call of learn()
    const DataSet& data;
};

using MakeLearner = std::function<Result<std::unique_ptr<Learner>>(const LearnerSpec&)>;

/// Computes on this thread.
Result<std::unique_ptr<Learner>> learner_on_cpu(const LearnerSpec& spec);

}  // namespace dtrun::lab::rank
