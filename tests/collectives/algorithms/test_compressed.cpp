#include "collectives/algorithms/compressed.h"
#include "tests/collectives/support/formats.h"
#include "tests/collectives/support/local_group.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>

namespace dtrun::collectives {
namespace {

using Values = std::vector<float>;

/// Small, so that a few thousand values are many chunks.
constexpr CompressedAllreduce::StepSizes kSmallSteps{.step_bytes = 1024, .message_bytes_min = 512};

std::vector<Values> gaussian(std::uint32_t size, std::size_t count, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<Values> all(size, Values(count));
    for (Values& one : all)
        for (float& value : one) value = normal(random);
    return all;
}

std::vector<double> sum_of(const std::vector<Values>& all) {
    std::vector<double> sum(all.front().size());
    for (const Values& one : all)
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    return sum;
}

template <class A, class B>
double relative_error(const A& is, const B& should) {
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < should.size(); ++i) {
        error += std::pow(static_cast<double>(is[i]) - should[i], 2);
        norm += std::pow(static_cast<double>(should[i]), 2);
    }
    return norm == 0 ? 0 : std::sqrt(error / norm);
}

bool same_bits(const Values& a, const Values& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct Setting {
    Reduce reduce = Reduce::sum;
    Compression compression{};
    std::uint64_t call = 1;
    bool in_place = false;
    LocalNetwork::Options network{};
};

/// One call; every rank's result. Fails the test if a rank fails or writes its input.
std::vector<Values> reduce_once(const std::vector<Values>& in, const Setting& setting,
                                std::vector<Values>* errors = nullptr) {
    const auto size = static_cast<std::uint32_t>(in.size());
    LocalNetwork network(size, setting.network);
    std::vector<Values> inputs = in;
    std::vector<Values> out(size, Values(in.front().size(), -7));
    const auto results =
        run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                      const auto group = network.connect(rank);
                      Compression compression = setting.compression;
                      if (errors != nullptr) compression.error = (*errors)[rank].data();
                      float* to = setting.in_place ? inputs[rank].data() : out[rank].data();
                      return CompressedAllreduce(kSmallSteps)
                          .run(*group, rank, size, inputs[rank].data(), to, inputs[rank].size(),
                               setting.reduce, compression, setting.call);
                  }));
    REQUIRE(failures(results) == "");
    if (setting.in_place) return inputs;
    for (std::uint32_t rank = 0; rank < size; ++rank) REQUIRE(same_bits(inputs[rank], in[rank]));
    return out;
}

TEST_CASE("a compressed allreduce is as right as its format allows, and the same on all ranks",
          "[collectives][compressed]") {
    unsigned turn = 0;
    for (const std::uint32_t size : {2u, 3u, 4u, 8u})
        for (const std::size_t count : {0, 1, 255, 256, 257, 20'011}) {
            const std::vector<Values> in = gaussian(size, count);
            const std::vector<double> sum = sum_of(in);
            for (const Format format : kAllFormats) {
                INFO(size << " ranks, " << count << " values, " << name_of(format));
                ++turn;
                Setting setting{.compression = {.format = format}, .in_place = turn % 2 == 0};
                if (turn % 5 == 0) setting.compression.rounding = Rounding::stochastic;
                const std::vector<Values> out = reduce_once(in, setting);
                for (const Values& one : out) CHECK(same_bits(one, out.front()));
                const double slack = turn % 5 == 0 ? 2 : 1;  // for stochastic rounding
                const double error = relative_error(out.front(), sum);
                if (count > 1) CHECK(error <= slack * bound(format));
                // One value may have the format's largest error, and what is added may cancel out.
                if (count == 1)
                    CHECK(std::fabs(out[0][0] - sum[0]) <= 3 * slack * bound(format) * size);
                if (count > 1000) CHECK(error > bound(format) / 10);  // it was compressed
            }
        }
}

TEST_CASE("one rank gets back what it gave, exactly", "[collectives][compressed]") {
    const std::vector<Values> in = gaussian(1, 1000);
    std::vector<Values> errors(1, Values(1000, 0.5F));
    const auto out = reduce_once(in, {.reduce = Reduce::average}, &errors);
    CHECK(same_bits(out[0], in[0]));
    CHECK(same_bits(errors[0], Values(1000, 0.5F)));
}

TEST_CASE("a compressed allreduce gives the same bits whatever comes first",
          "[collectives][compressed]") {
    const std::vector<Values> in = gaussian(4, 9000);
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
        Setting setting{.compression = {.format = Format::e4m3, .rounding = rounding}, .call = 5};
        const auto first = reduce_once(in, setting);
        for (const std::uint64_t seed : {1u, 2u, 3u}) {
            setting.network = {.seed = seed, .delay_max = std::chrono::microseconds(300)};
            CHECK(same_bits(reduce_once(in, setting)[1], first[0]));
        }
        setting.call = 6;
        const bool as_before = same_bits(reduce_once(in, setting)[0], first[0]);
        CHECK(as_before == (rounding == Rounding::nearest));
    }
}

TEST_CASE("an average is divided before it is encoded, so that halves do not overflow",
          "[collectives][compressed]") {
    const std::vector<Values> in(4, Values(300, 40'000));
    Setting setting{.reduce = Reduce::average, .compression = {.format = Format::f16}};
    CHECK(reduce_once(in, setting)[3] == Values(300, 40'000));
    setting.reduce = Reduce::sum;
    CHECK(std::isinf(reduce_once(in, setting)[3][299]));
}

/// The relative error of the sum of results over many steps with the same gradients.
double accumulated_error(Format format, Reduce reduce, bool feedback) {
    constexpr std::uint32_t kSize = 3;
    constexpr std::size_t kCount = 2000;
    constexpr int kSteps = 100;
    const std::vector<Values> in = gaussian(kSize, kCount);
    LocalNetwork network(kSize);
    std::vector<double> total(kCount);
    const auto results =
        run_ranks(kSize, std::function([&](std::uint32_t rank) -> Result<void> {
                      const auto group = network.connect(rank);
                      CompressedAllreduce allreduce(kSmallSteps);
                      Values error(kCount);
                      Values out(kCount);
                      const Compression compression{.format = format,
                                                    .error = feedback ? error.data() : nullptr};
                      for (std::uint64_t step = 0; step < kSteps; ++step) {
                          auto ok = allreduce.run(*group, rank, kSize, in[rank].data(), out.data(),
                                                  kCount, reduce, compression, step);
                          if (!ok) return ok;
                          if (rank == 0)
                              for (std::size_t i = 0; i < kCount; ++i) total[i] += out[i];
                      }
                      return {};
                  }));
    REQUIRE(failures(results) == "");
    std::vector<double> should = sum_of(in);
    for (double& value : should) value *= reduce == Reduce::average ? kSteps / 3.0 : kSteps;
    return relative_error(total, should);
}

TEST_CASE("error feedback makes up for what compression has lost", "[collectives][compressed]") {
    for (const Format format : {Format::e4m3, Format::int8, Format::e5m2})
        for (const Reduce reduce : {Reduce::sum, Reduce::average}) {
            INFO(name_of(format) << " " << name_of(reduce));
            const double without = accumulated_error(format, reduce, false);
            CHECK(accumulated_error(format, reduce, true) < without / 5);
        }
}

/// Reduces arrays of `counts` values, which lie one behind the other, in place in one call.
std::vector<Result<void>> reduce_together(std::vector<Values>& data, std::vector<Values>& errors,
                                          const std::vector<std::size_t>& counts,
                                          const Setting& setting) {
    const auto size = static_cast<std::uint32_t>(data.size());
    LocalNetwork network(size);
    return run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                         const auto group = network.connect(rank);
                         std::vector<Segment> segments;
                         std::size_t at = 0;
                         for (const std::size_t count : counts) {
                             float* here = data[rank].data() + at;
                             segments.push_back({here, here, count, errors[rank].data() + at});
                             at += count;
                         }
                         return CompressedAllreduce(kSmallSteps)
                             .run(*group, rank, size, segments, setting.reduce, setting.compression,
                                  setting.call);
                     }));
}

TEST_CASE("tensors that are reduced together give the bits of one that consists of them",
          "[collectives][compressed]") {
    // Small ones, or in a format without scales, so that no gaps are between them.
    const auto [format, counts] = GENERATE(table<Format, std::vector<std::size_t>>({
        {Format::f16, {700, 0, 1, 5000, 255, 0, 4096, 31}},
        {Format::int8, {700, 0, 1, 1500, 255, 0, 2047, 31}},
    }));
    const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::vector<Values> in = gaussian(3, all);
    const Setting setting{.compression = {.format = format}};
    std::vector<Values> errors_of_one = gaussian(3, all, 9);
    std::vector<Values> errors = errors_of_one;
    const std::vector<Values> one = reduce_once(in, setting, &errors_of_one);
    std::vector<Values> data = in;
    REQUIRE(failures(reduce_together(data, errors, counts, setting)) == "");
    for (std::size_t rank = 0; rank < data.size(); ++rank) {
        CHECK(same_bits(data[rank], one[rank]));
        CHECK(same_bits(errors[rank], errors_of_one[rank]));
    }
}

TEST_CASE("a large tensor shares no scale with what is beside it", "[collectives][compressed]") {
    for (const Format format : {Format::int8, Format::e4m3, Format::e5m2}) {
        INFO(name_of(format));
        // A vector of large values on both sides of a matrix of small ones, none a multiple of a block.
        const std::vector<std::size_t> counts{100, 3001, 77};
        std::vector<Values> in = gaussian(3, 3178);
        for (Values& one : in)
            for (std::size_t i = 0; i < one.size(); ++i)
                if (i < 100 || i >= 3101) one[i] *= 10'000;
        std::vector<Values> data = in;
        std::vector<Values> errors(3, Values(3178));
        REQUIRE(failures(reduce_together(data, errors, counts,
                                         {.compression = {.format = format}})) == "");
        const std::vector<double> sum = sum_of(in);
        CHECK(relative_error(std::span(data[0]).subspan(100, 3001),
                             std::span(sum).subspan(100, 3001)) < bound(format));
        CHECK(same_bits(data[0], data[1]));
        CHECK(same_bits(data[0], data[2]));
    }
}

TEST_CASE("errors of tensors that keep none are not written, beside one that does",
          "[collectives][compressed]") {
    const std::vector<Values> in = gaussian(2, 600);
    LocalNetwork network(2);
    std::vector<Values> out = in;
    std::vector<Values> errors(2, Values(300));
    const auto results = run_ranks(
        2, std::function([&](std::uint32_t rank) -> Result<void> {
            const auto group = network.connect(rank);
            float* data = out[rank].data();
            const Segment segments[] = {{data, data, 300, nullptr},
                                        {data + 300, data + 300, 300, errors[rank].data()}};
            return CompressedAllreduce().run(*group, rank, 2, segments, Reduce::sum, {}, 1);
        }));
    REQUIRE(failures(results) == "");
    CHECK(same_bits(out[0], out[1]));
    CHECK_FALSE(same_bits(errors[0], Values(300)));
}

TEST_CASE("numbers that are not finite are seen on every rank", "[collectives][compressed]") {
    constexpr std::size_t kBad = 1000;
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        for (const Format format : kAllFormats)
            for (const std::uint32_t owner : {0u, 1u, 2u}) {
                INFO(name_of(format) << ", " << bad << " on rank " << owner);
                std::vector<Values> in = gaussian(3, 3000);
                in[owner][kBad] = bad;
                std::vector<Values> errors(3, Values(3000));
                const auto out = reduce_once(in, {.compression = {.format = format}}, &errors);
                for (std::uint32_t rank = 0; rank < 3; ++rank) {
                    CHECK_FALSE(std::isfinite(out[rank][kBad]));
                    CHECK(std::isfinite(out[rank][kBad + kBlock]));
                    CHECK(same_bits(out[rank], out[0]));
                    for (const float error : errors[rank]) REQUIRE(std::isfinite(error));
                }
            }
}

TEST_CASE("what cannot be compressed is refused", "[collectives][compressed]") {
    LocalNetwork network(1);
    const auto group = network.connect(0);
    float value = 1;
    const auto refused =
        CompressedAllreduce().run(*group, 0, 1, &value, &value, 1, Reduce::max, {}, 1);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::invalid_input);
    CHECK(refused.error().message == "only sum and average can be compressed, not max");
}

TEST_CASE("a compressed allreduce ends when a rank is lost", "[collectives][compressed]") {
    const std::vector<Values> in = gaussian(3, 50'000);
    LocalNetwork network(3);
    const auto results = run_ranks(3, std::function([&](std::uint32_t rank) -> Result<void> {
                                       const auto group = network.connect(rank);
                                       if (rank == 1) {
                                           network.kill(rank);
                                           return {};
                                       }
                                       Values out(in[rank].size());
                                       return CompressedAllreduce(kSmallSteps)
                                           .run(*group, rank, 3, in[rank].data(), out.data(),
                                                out.size(), Reduce::sum, {}, 1);
                                   }));
    for (const std::uint32_t rank : {0u, 2u}) {
        REQUIRE_FALSE(results[rank].has_value());
        CHECK(results[rank].error().code == Errc::closed);
    }
}

}  // namespace
}  // namespace dtrun::collectives
