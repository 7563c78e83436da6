#include "tests/lab/rank/gpu_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace dtrun::lab::rank {

namespace {

constexpr Descent kDescent{0.05f, 0.9f};

/// The norm of the difference over the norm of `wanted`, of the worst array.
Result<double> distance(std::span<const std::span<float>> wanted,
                        std::span<const std::span<float>> on_gpu, const CopyToHost& copy) {
    double worst = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i].size() != on_gpu[i].size())
            return fail(Errc::internal, "tensor {} has {} values, not {}", i, on_gpu[i].size(),
                        wanted[i].size());
        std::vector<float> got(on_gpu[i].size());
        if (auto done = copy(got.data(), on_gpu[i].data(), on_gpu[i].size_bytes()); !done)
            return std::unexpected(done.error());
        double difference = 0;
        double norm = 0;
        for (std::size_t j = 0; j < got.size(); ++j) {
            difference += std::pow(double{got[j]} - wanted[i][j], 2);
            norm += std::pow(double{wanted[i][j]}, 2);
        }
        const double apart = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
        // NaNs are as far away as can be, whatever comes behind them.
        worst =
            std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(worst, apart);
    }
    return worst;
}

/// Takes a step with both.
Result<void> step(Learner& cpu, Learner& gpu, std::span<const std::uint32_t> picks,
                  const CopyToHost& copy, LearnerDistance& apart) {
    const float scale = 1.0f / static_cast<float>(picks.size());
    for (Learner* const learner : {&cpu, &gpu}) {
        if (auto done = learner->learn(picks, scale); !done) return done;
        if (auto done = learner->finish(); !done) return done;
    }
    const auto gradients = distance(cpu.gradients(), gpu.gradients(), copy);
    if (!gradients) return std::unexpected(gradients.error());
    apart.gradients = std::max(apart.gradients, *gradients);
    for (Learner* const learner : {&cpu, &gpu})
        if (auto done = learner->descend(kDescent); !done) return done;
    return {};
}

}  // namespace

Result<LearnerDistance> compare_learners(const LearnerSpec& spec, const MakeLearner& on_gpu,
                                         const CopyToHost& copy, std::size_t steps) {
    const auto cpu = learner_on_cpu(spec);
    if (!cpu) return std::unexpected(cpu.error());
    const auto gpu = on_gpu(spec);
    if (!gpu) return std::unexpected(gpu.error());
    LearnerDistance apart;
    std::vector<std::uint32_t> picks;
    for (std::size_t i = 0; i < steps; ++i) {
        // Batches of all sizes, the largest first, with images in another order than they are in.
        picks.resize(std::max<std::size_t>(spec.batch / (i + 1), 1));
        for (std::size_t j = 0; j < picks.size(); ++j)
            picks[j] = static_cast<std::uint32_t>((i + 7 * j) % spec.data.training.size());
        if (auto done = step(**cpu, **gpu, picks, copy, apart); !done)
            return std::unexpected(done.error());
    }
    if (auto done = (*gpu)->finish(); !done) return std::unexpected(done.error());
    const auto weights = distance((*cpu)->weights(), (*gpu)->weights(), copy);
    if (!weights) return std::unexpected(weights.error());
    apart.weights = *weights;
    const auto wanted = (*cpu)->take_loss();
    const auto got = (*gpu)->take_loss();
    if (!wanted || !got) return fail(Errc::internal, "no loss");
    apart.loss = std::abs(*got / *wanted - 1);
    const std::size_t tested = spec.data.test.size() - 1;  // from the second on
    const auto right = (*cpu)->test(1, tested);
    const auto right_on_gpu = (*gpu)->test(1, tested);
    if (!right_on_gpu) return std::unexpected(right_on_gpu.error());
    apart.told_apart = *right > *right_on_gpu ? *right - *right_on_gpu : *right_on_gpu - *right;
    return apart;
}

}  // namespace dtrun::lab::rank
