#include "lab/rank/kernels.h"
#include "lab/rank/network.h"
#include "lab/rank/random.h"
#include "tests/lab/rank/thread_reducer.h"
#include "tests/support/catch.h"

#include <cmath>
#include <numeric>

using namespace dtrun::collectives;
using namespace dtrun::lab;
using namespace dtrun::lab::rank;

namespace {

const DataSet& digits() {
    static const DataSet data{draw_digits(4'000, 1), draw_digits(6'000, 2), "generated digits"};
    return data;
}

TrainOptions options_of(std::uint64_t seed) {
    TrainOptions options;
    options.epochs = 4;
    options.global_batch = 200;
    options.seed = seed;
    return options;
}

/// Percent, over seeds.
double mean_accuracy(std::uint64_t seeds, std::uint32_t ranks, TrainOptions options,
                     const ThreadCompression& compression) {
    double sum = 0;
    for (options.seed = 1; options.seed <= seeds; ++options.seed) {
        const auto trained = train_in_threads(ranks, options, digits(), compression);
        REQUIRE(trained.has_value());
        sum += 100 * trained->accuracy;
    }
    return sum / static_cast<double>(seeds);
}

/// The loss of a batch, with one weight changed.
double loss_with(Network& network, std::size_t tensor, std::size_t index, float change,
                 std::span<const std::uint32_t> picks) {
    float& value = network.tensors()[tensor]->values[index];
    const float before = value;
    value += change;
    const double loss = network.learn(digits().training, picks, 1);
    value = before;
    return loss;
}

}  // namespace

TEST_CASE("slopes are what a small change of a weight does to the loss", "[lab][rank]") {
    const Model model = GENERATE(Model::mlp, Model::cnn);
    Network network(model, 5, 16);
    std::vector<std::uint32_t> picks(13);
    std::iota(picks.begin(), picks.end(), 100u);
    Random random(1);
    for (std::size_t tensor = 0; tensor < network.tensors().size(); ++tensor) {
        std::size_t alike = 0;
        for (int i = 0; i < 10; ++i) {
            const std::size_t index =
                random.below(static_cast<std::uint32_t>(network.tensors()[tensor]->values.size()));
            constexpr float kChange = 5e-4f;
            const double measured = (loss_with(network, tensor, index, kChange, picks) -
                                     loss_with(network, tensor, index, -kChange, picks)) /
                                    (2 * kChange);
            network.learn(digits().training, picks, 1);
            const double told = network.tensors()[tensor]->slopes[index];
            alike += std::abs(told - measured) < 0.05 + 0.1 * std::abs(measured);
        }
        // One of them may lie where a neuron switches.
        INFO(name_of(model) << ", tensor " << tensor);
        CHECK(alike >= 9);
    }
}

TEST_CASE("a product of matrices is right for any shape", "[lab][rank]") {
    for (const auto& [rows, inner, columns] :
         {std::tuple<std::size_t, std::size_t, std::size_t>{1, 1, 1}, {3, 4, 10}, {7, 9, 33}}) {
        std::vector<float> a(rows * inner), b(inner * columns), c(rows * columns, 1);
        std::iota(a.begin(), a.end(), -3.0f);
        std::iota(b.begin(), b.end(), -5.0f);
        std::vector<float> transposed(a.size());
        transpose(a.data(), transposed.data(), rows, inner);
        std::vector<float> same = c;
        multiply_add({a.data(), inner, 1}, b.data(), c.data(), rows, inner, columns);
        multiply_add({transposed.data(), 1, rows}, b.data(), same.data(), rows, inner, columns);
        CHECK(c == same);
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < columns; ++j) {
                float sum = 1;
                for (std::size_t k = 0; k < inner; ++k)
                    sum += a[i * inner + k] * b[k * columns + j];
                CHECK(c[i * columns + j] == sum);
            }
    }
}

TEST_CASE("training depends on the seed alone and learns", "[lab][rank]") {
    SerialReducer serial;
    TrainOptions options = options_of(3);
    options.epochs = 2;
    const auto one = train(options, digits(), serial);
    const auto same = train(options, digits(), serial);
    REQUIRE(one.has_value());
    CHECK(one->loss == same->loss);
    CHECK(one->accuracy == same->accuracy);
    CHECK(one->accuracy > 0.9);
    CHECK(one->step_ms == Approx(one->compute_ms + one->comm_ms));
    CHECK(one->samples_per_s * one->step_ms == Approx(200 * 1'000));
    CHECK(one->learning_rate == 0.1f);
    options.model = Model::cnn;
    options.epochs = 1;
    const auto cnn = train(options, digits(), serial);
    REQUIRE(cnn.has_value());
    CHECK(cnn->accuracy > 0.85);
}

TEST_CASE("ranks learn what one rank learns, also with unequal parts", "[lab][rank]") {
    SerialReducer serial;
    TrainOptions options = options_of(2);
    options.epochs = 1;
    const auto alone = train(options, digits(), serial);
    for (const std::uint32_t ranks : {2u, 3u}) {
        const auto together = train_in_threads(ranks, options, digits());
        REQUIRE(together.has_value());
        CHECK(together->loss == Approx(alone->loss).epsilon(1e-3));
        CHECK(std::abs(together->accuracy - alone->accuracy) < 0.003);
    }
}

TEST_CASE("batches that do not fit are refused", "[lab][rank]") {
    SerialReducer serial;
    TrainOptions options;
    options.global_batch = 5'000;
    CHECK(train(options, digits(), serial).error().message ==
          "a global batch of 5000 does not fit 4000 training and 6000 test images");
    options.global_batch = 1;
    CHECK_FALSE(train_in_threads(2, options, digits()).has_value());
}

TEST_CASE("8 bits end within 0.3 points of f32", "[lab][rank]") {
    constexpr std::uint64_t kSeeds = 3;
    SerialReducer serial;
    double exact = 0;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
        exact += 100 * train(options_of(seed), digits(), serial)->accuracy / kSeeds;
    CHECK(exact > 94);
    for (const Format format : {Format::e4m3, Format::e5m2, Format::int8}) {
        const double mean =
            mean_accuracy(kSeeds, 2, options_of(1), {format, Rounding::nearest, true});
        INFO(name_of(format) << ": " << mean << " %, f32 " << exact << " %");
        CHECK(std::abs(mean - exact) < 0.3);
    }
}

// Gradients of a mean loss are small, those of a large batch in particular, and most of them are below
// 2^-10; what is left of them are those of images that are hard to tell, so it still learns, slowly.
TEST_CASE("with unscaled 8-bit floats the loss stays larger", "[lab][rank]") {
    DataSet few{draw_digits(1'000, 1), draw_digits(1'000, 2), ""};
    TrainOptions options;
    options.epochs = 60;
    options.global_batch = 1'000;
    const auto scaled = train_in_threads(4, options, few, {Format::e4m3, Rounding::nearest, true});
    const auto unscaled = train_in_threads(4, options, few, {Format::e4m3_unscaled});
    REQUIRE(scaled.has_value());
    REQUIRE(unscaled.has_value());
    CHECK(unscaled->loss > 1.4 * scaled->loss);
}

// The two commands of docs/BENCH.md: `dtrun bench`'s own defaults, on two ranks.
TEST_CASE("unscaled 8-bit floats learn nothing from small gradients, scaled ones the same",
          "[lab][rank]") {
    const DataSet data = generated_digits();
    TrainOptions options;
    options.global_batch = 256;
    const auto accuracy = [&](double loss_scale, const ThreadCompression& compression) {
        options.loss_scale = loss_scale;
        const auto trained = train_in_threads(2, options, data, compression);
        REQUIRE(trained.has_value());
        return 100 * trained->accuracy;
    };
    const ThreadCompression scaled{Format::e4m3, Rounding::nearest, true};
    const double usual = accuracy(1, scaled);
    CHECK(usual > 94);
    CHECK(std::abs(accuracy(0.01, scaled) - usual) < 0.3);
    CHECK(accuracy(0.01, {Format::e4m3_unscaled}) < 15);  // no better than guessing
    CHECK(std::abs(accuracy(128, {Format::e4m3_unscaled}) - usual) < 1);
}

TEST_CASE("every epoch says what had been learnt by its end", "[lab][rank]") {
    TrainOptions options = options_of(3);
    options.epochs = 3;
    const auto trained = train_in_threads(2, options, digits());
    REQUIRE(trained.has_value());
    REQUIRE(trained->by_epoch.size() == 3);
    std::uint64_t before = trained->start_unix_ms;
    double seconds = 0;
    for (const EpochRecord& epoch : trained->by_epoch) {
        CHECK(epoch.epoch == &epoch - trained->by_epoch.data() + 1);
        CHECK(epoch.seconds > seconds);
        CHECK(epoch.ended_unix_ms >= before);
        CHECK(epoch.tested_unix_ms >= epoch.ended_unix_ms);
        seconds = epoch.seconds;
        before = epoch.tested_unix_ms;
    }
    CHECK(trained->by_epoch.back().accuracy == trained->accuracy);
    CHECK(trained->by_epoch.back().loss == trained->loss);
    CHECK(trained->by_epoch.back().seconds == trained->seconds);
    CHECK(trained->by_epoch.front().accuracy < trained->accuracy);
    CHECK(trained->by_epoch.front().loss > trained->loss);
    // An epoch is the same whether others follow it or not.
    options.epochs = 1;
    const auto first = train_in_threads(2, options, digits());
    CHECK(first->accuracy == trained->by_epoch.front().accuracy);
}

TEST_CASE("in weak scaling every rank learns from as many images as one alone", "[lab][rank]") {
    TrainOptions options = options_of(3);
    options.scaling = Scaling::weak;
    options.epochs = 2;
    SerialReducer serial;
    const auto alone = train(options, digits(), serial);
    options.scaling = Scaling::strong;  // which is the same for one rank
    CHECK(train(options, digits(), serial)->accuracy == alone->accuracy);
    options.scaling = Scaling::weak;
    options.global_batch = 400;
    const auto together = train_in_threads(2, options, digits());
    REQUIRE(together.has_value());
    // As many steps of twice as many images.
    CHECK(together->samples_per_s * together->step_ms == Approx(400 * 1'000));
    CHECK(together->accuracy > alone->accuracy - 0.02);
    // The batch of many ranks may be larger than the data.
    options.global_batch = 6'000;
    options.epochs = 1;
    CHECK(train_in_threads(3, options, digits()).has_value());
}
