#include "lab/rank/trainer.h"

#include "lab/rank/random.h"
#include "lab/rank/steps.h"

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
    Training(const TrainOptions& options, const DataSet& data, Reducer& reducer, Learner& learner)
        : options_(options),
          data_(data),
          reducer_(reducer),
          learner_(learner),
          part_(options.global_batch, reducer),
          order_(data.training.size()),
          shuffle_(options.seed + 1'000),
          batch_(options.global_batch) {
        std::iota(order_.begin(), order_.end(), 0u);
    }

    Result<Trained> run() {
        for (const std::span<float> weights : learner_.weights())
            if (auto sent = reducer_.broadcast(weights); !sent)
                return fail(sent.error(), "broadcast of the weights");
        trained_.start_unix_ms = unix_ms_now();
        for (std::uint32_t epoch = 0; epoch < options_.epochs; ++epoch) {
            const Clock::time_point begin = Clock::now();
            if (auto done = run_epoch(); !done) return std::unexpected(done.error());
            seconds_ += seconds_since(begin);
            if (auto done = test(); !done) return fail(done.error(), "the test");
        }
        return summary();
    }

private:
    Result<void> run_epoch() {
        if (options_.scaling == Scaling::strong || next_ == 0) shuffle();
        for (std::size_t step = 0; step < steps(); ++step)
            if (auto done = run_step(); !done)
                return fail(done.error(), "step {}", step_s_.size() + 1);
        return learner_.finish();
    }

    void shuffle() {
        for (std::size_t i = order_.size(); i > 1; --i)
            std::swap(order_[i - 1], order_[shuffle_.below(static_cast<std::uint32_t>(i))]);
        next_ = 0;
    }

    /// Draws the images of a step for all ranks, so that all of them draw the same.
    void draw_batch() {
        for (std::uint32_t& pick : batch_) {
            if (next_ == order_.size()) shuffle();
            pick = order_[next_++];
        }
    }

    Result<void> run_step() {
        const Clock::time_point begin = Clock::now();
        draw_batch();
        const std::span<const std::uint32_t> picks(batch_.data() + part_.begin, part_.size());
        // The mean over the ranks is to be the slope of the mean loss of the batch, also when ranks
        // have parts of different sizes.
        const auto scale =
            static_cast<float>(options_.loss_scale * reducer_.size() / options_.global_batch);
        if (auto done = learner_.learn(picks, scale); !done) return done;
        // Without this, time that a GPU computes would be taken for communication.
        if (auto done = learner_.finish(); !done) return done;
        const Clock::time_point computed = Clock::now();
        if (auto done = reducer_.average(learner_.gradients()); !done) return done;
        comm_s_.push_back(seconds_since(computed));
        // What a GPU still has to do of it is part of the next step.
        if (auto done = update(); !done) return done;
        step_s_.push_back(seconds_since(begin));
        return {};
    }

    Result<void> update() {
        const auto scale = static_cast<float>(options_.loss_scale);
        return learner_.descend({learning_rate(options_.global_batch) / scale, kMomentum});
    }

    /// Tests what has been learnt by the end of an epoch.
    Result<void> test() {
        EpochRecord epoch;
        epoch.epoch = static_cast<int>(trained_.by_epoch.size()) + 1;
        epoch.ended_unix_ms = unix_ms_now();
        const Part tested(data_.test.size(), reducer_);
        const auto right = learner_.test(tested.begin, tested.size());
        if (!right) return std::unexpected(right.error());
        const auto loss = learner_.take_loss();
        if (!loss) return std::unexpected(loss.error());
        // One sum over the ranks serves all: each rank's seconds have a place of their own, for the
        // maximum.
        std::vector<double> sums{static_cast<double>(*right), *loss};
        const std::size_t others = sums.size();
        sums.resize(others + reducer_.size());
        sums[others + reducer_.rank()] = seconds_;
        if (auto done = reducer_.sum(sums); !done) return done;
        epoch.accuracy = sums[0] / static_cast<double>(data_.test.size());
        epoch.loss = sums[1] / static_cast<double>(steps() * options_.global_batch);
        epoch.seconds =
            *std::max_element(sums.begin() + static_cast<std::ptrdiff_t>(others), sums.end());
        epoch.tested_unix_ms = unix_ms_now();
        trained_.by_epoch.push_back(epoch);
        return {};
    }

    Result<Trained> summary() {
        std::vector<double> sums{median_of_steps(step_s_), median_of_steps(comm_s_)};
        if (auto done = reducer_.sum(sums); !done) return fail(done.error(), "times of steps");
        const EpochRecord& last = trained_.by_epoch.back();
        trained_.accuracy = last.accuracy;
        trained_.loss = last.loss;
        trained_.seconds = last.seconds;
        trained_.step_ms = sums[0] * 1e3 / reducer_.size();
        trained_.comm_ms = sums[1] * 1e3 / reducer_.size();
        trained_.compute_ms = trained_.step_ms - trained_.comm_ms;
        if (trained_.step_ms > 0)
            trained_.samples_per_s = options_.global_batch * 1e3 / trained_.step_ms;
        trained_.learning_rate = learning_rate(options_.global_batch);
        return trained_;
    }

    /// Steps of an epoch.
    std::size_t steps() const {
        if (options_.scaling == Scaling::strong) return order_.size() / options_.global_batch;
        const std::size_t part = options_.global_batch / reducer_.size();
        return std::max<std::size_t>(order_.size() / part, 1);
    }

    const TrainOptions& options_;
    const DataSet& data_;
    Reducer& reducer_;
    Learner& learner_;
    const Part part_;
    std::vector<std::uint32_t> order_;
    Random shuffle_;
    std::vector<std::uint32_t> batch_;  ///< the images of a step
    std::size_t next_ = 0;              ///< of order_
    double seconds_ = 0;                ///< of all steps of this rank
    std::vector<double> step_s_, comm_s_;
    Trained trained_;
};

}  // namespace

std::uint64_t unix_ms_now() {
    using std::chrono::milliseconds;
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(since).count());
}

Result<Trained> train(const TrainOptions& options, const DataSet& data, Reducer& reducer,
                      const MakeLearner& make) {
    if (options.global_batch < reducer.size())
        return fail(Errc::invalid_input, "a global batch of {} is too small for {} ranks",
                    options.global_batch, reducer.size());
    const bool too_large = options.global_batch > data.training.size();
    if ((too_large && options.scaling == Scaling::strong) || data.training.size() == 0 ||
        data.test.size() == 0)
        return fail(Errc::invalid_input,
                    "a global batch of {} does not fit {} training and {} test images",
                    options.global_batch, data.training.size(), data.test.size());
    const Part part(options.global_batch, reducer);
    const auto learner = make({options.model, options.seed, part.size(), data});
    if (!learner) return std::unexpected(learner.error());
    return Training(options, data, reducer, **learner).run();
}

}  // namespace dtrun::lab::rank
