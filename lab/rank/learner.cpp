#include "lab/rank/learner.h"

#include <algorithm>
#include <utility>

namespace dtrun::lab::rank {

namespace {

/// Images are tested that many at a time, or as many as are learnt from.
constexpr std::size_t kTestBatch = 64;

class CpuLearner final : public Learner {
public:
    explicit CpuLearner(const LearnerSpec& spec)
        : data_(spec.data), network_(spec.model, spec.seed, std::max(spec.batch, kTestBatch)) {
        for (Tensor* tensor : network_.tensors()) {
            weights_.emplace_back(tensor->values);
            gradients_.emplace_back(tensor->slopes);
            velocities_.emplace_back(tensor->values.size());
        }
    }

    std::span<const std::span<float>> weights() const override { return weights_; }
    std::span<const std::span<float>> gradients() const override { return gradients_; }

    Result<void> learn(std::span<const std::uint32_t> picks, float scale) override {
        loss_ += network_.learn(data_.training, picks, scale);
        return {};
    }

    Result<void> descend(const Descent& descent) override {
        for (std::size_t i = 0; i < weights_.size(); ++i)
            rank::descend(descent, gradients_[i].data(), velocities_[i].data(), weights_[i].data(),
                          weights_[i].size());
        return {};
    }

    Result<void> finish() override { return {}; }
    Result<double> take_loss() override { return std::exchange(loss_, 0); }

    Result<std::size_t> test(std::size_t first, std::size_t count) override {
        return network_.test(data_.test, first, count);
    }

private:
    const DataSet& data_;
    Network network_;
    std::vector<std::span<float>> weights_, gradients_;
    std::vector<std::vector<float>> velocities_;
    double loss_ = 0;
};

}  // namespace

Result<std::unique_ptr<Learner>> learner_on_cpu(const LearnerSpec& spec) {
    return std::make_unique<CpuLearner>(spec);
}

}  // namespace dtrun::lab::rank
