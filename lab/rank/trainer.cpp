#include "lab/rank/trainer.h"

#include "lab/rank/kernels.h"
#include "lab/rank/random.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace dtrun::lab::rank {

namespace {

using Clock = std::chrono::steady_clock;

constexpr float kMomentum = 0.9f;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

float learning_rate(std::uint32_t global_batch) {
    return std::min(0.05f * static_cast<float>(global_batch) / 64, 0.1f);
}

/// A rank's part [begin, end) of `count` items.
struct Part {
    Part(std::size_t count, const Reducer& reducer)
        : begin(count * reducer.rank() / reducer.size()),
          end(count * (reducer.rank() + 1) / reducer.size()) {}
    std::size_t size() const { return end - begin; }
    std::size_t begin, end;
};

class Training {
public:
    Training(const TrainOptions& options, const DataSet& data, Reducer& reducer)
        : options_(options),
          data_(data),
          reducer_(reducer),
          part_(options.global_batch, reducer),
          network_(options.model, options.seed, std::max(part_.size(), kTestBatch)),
          order_(data.training.size()),
          shuffle_(options.seed + 1'000) {
        std::iota(order_.begin(), order_.end(), 0u);
        for (Tensor* tensor : network_.tensors()) {
            tensors_.push_back(tensor);
            gradients_.emplace_back(tensor->slopes);
            velocities_.emplace_back(tensor->values.size());
        }
    }

    Result<Trained> run() {
        for (Tensor* tensor : tensors_)
            if (auto sent = reducer_.broadcast(tensor->values); !sent)
                return fail(sent.error(), "broadcast of the weights");
        const Clock::time_point begin = Clock::now();
        for (std::uint32_t epoch = 0; epoch < options_.epochs; ++epoch)
            if (auto done = run_epoch(); !done) return std::unexpected(done.error());
        return summary(seconds_since(begin));
    }

private:
    static constexpr std::size_t kTestBatch = 64;

    Result<void> run_epoch() {
        for (std::size_t i = order_.size(); i > 1; --i)
            std::swap(order_[i - 1], order_[shuffle_.below(static_cast<std::uint32_t>(i))]);
        loss_ = 0;
        for (std::size_t step = 0; step < steps(); ++step)
            if (auto done = run_step(step); !done)
                return fail(done.error(), "step {}", steps_done_ + 1);
        return {};
    }

    Result<void> run_step(std::size_t step) {
        const Clock::time_point begin = Clock::now();
        const std::span<const std::uint32_t> picks(
            order_.data() + step * options_.global_batch + part_.begin, part_.size());
        // The mean over the ranks is to be the slope of the mean loss of the batch, also when ranks
        // have parts of different sizes.
        const auto scale =
            static_cast<float>(options_.loss_scale * reducer_.size() / options_.global_batch);
        loss_ += network_.learn(data_.training, picks, scale);
        const Clock::time_point computed = Clock::now();
        if (auto done = reducer_.average(gradients_); !done) return done;
        comm_ += seconds_since(computed);
        update();
        whole_ += seconds_since(begin);
        ++steps_done_;
        return {};
    }

    void update() {
        const auto scale = static_cast<float>(options_.loss_scale);
        const Descent descent{learning_rate(options_.global_batch) / scale, kMomentum};
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            descend(descent, tensors_[i]->slopes.data(), velocities_[i].data(),
                    tensors_[i]->values.data(), velocities_[i].size());
    }

    Result<Trained> summary(double seconds) {
        const Part tested(data_.test.size(), reducer_);
        const std::size_t right = network_.test(data_.test, tested.begin, tested.size());
        // One sum over the ranks serves all: each rank's seconds have a place of their own, for the
        // maximum.
        std::vector<double> sums{static_cast<double>(right), loss_, whole_, comm_};
        const std::size_t own = sums.size() + reducer_.rank();
        sums.resize(sums.size() + reducer_.size());
        sums[own] = seconds;
        if (auto done = reducer_.sum(sums); !done) return fail(done.error(), "the test");
        const double slowest = *std::max_element(sums.begin() + 4, sums.end());
        const double step_count = static_cast<double>(steps_done_);
        const double per_step_ms = 1e3 / std::max(step_count, 1.0) / reducer_.size();
        Trained trained;
        trained.accuracy = sums[0] / static_cast<double>(data_.test.size());
        trained.loss = sums[1] / static_cast<double>(steps() * options_.global_batch);
        trained.seconds = slowest;
        trained.step_ms = sums[2] * per_step_ms;
        trained.comm_ms = sums[3] * per_step_ms;
        trained.compute_ms = trained.step_ms - trained.comm_ms;
        trained.samples_per_s = slowest > 0 ? step_count * options_.global_batch / slowest : 0;
        return trained;
    }

    std::size_t steps() const { return order_.size() / options_.global_batch; }

    const TrainOptions& options_;
    const DataSet& data_;
    Reducer& reducer_;
    const Part part_;
    Network network_;
    std::vector<Tensor*> tensors_;
    std::vector<std::span<float>> gradients_;
    std::vector<std::vector<float>> velocities_;
    std::vector<std::uint32_t> order_;
    Random shuffle_;
    double loss_ = 0, whole_ = 0, comm_ = 0;
    std::size_t steps_done_ = 0;
};

}  // namespace

Result<Trained> train(const TrainOptions& options, const DataSet& data, Reducer& reducer) {
    if (options.global_batch < reducer.size())
        return fail(Errc::invalid_input, "a global batch of {} is too small for {} ranks",
                    options.global_batch, reducer.size());
    if (options.global_batch > data.training.size() || data.test.size() == 0)
        return fail(Errc::invalid_input,
                    "a global batch of {} does not fit {} training and {} test images",
                    options.global_batch, data.training.size(), data.test.size());
    return Training(options, data, reducer).run();
}

}  // namespace dtrun::lab::rank
