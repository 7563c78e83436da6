#include "collectives/algorithms/compressed.h"
#include "collectives/algorithms/compressed_parts.h"
#include "collectives/codec/codec.h"
#include "tests/collectives/native/levels_fixture.h"
#include "tests/support/catch.h"

#include <cmath>
#include <random>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

using Values = std::vector<float>;

const Layout kFewLayouts[] = {{0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1, 2, 2, 2}};
/// Small, so that a few thousand values are many chunks.
constexpr CompressedAllreduce::StepSizes kSmallSteps{.step_bytes = 2048, .message_bytes_min = 512};

Values gaussian(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Values values(count);
    for (float& value : values) value = normal(random);
    return values;
}

double relative_error(const Values& is, const std::vector<double>& should) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < should.size(); ++i) {
        error += std::pow(static_cast<double>(is[i]) - should[i], 2);
        norm += should[i] * should[i];
    }
    return norm == 0 ? 0 : std::sqrt(error / norm);
}

std::vector<double> sum_of(std::uint32_t size, std::size_t count) {
    std::vector<double> sum(count);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        const Values one = gaussian(count, rank);
        for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<double>(one[i]);
    }
    return sum;
}

/// Runs `body` on ranks that are spread like that.
void on_levels(const Layout& layout,
               const std::function<Result<void>(std::uint32_t rank, LevelsRank& it)>& body) {
    MemoryStore store;
    const auto results = run_ranks(static_cast<std::uint32_t>(layout.size()),
                                   std::function([&](std::uint32_t rank) -> Result<void> {
                                       auto made = connect_levels(layout_spec(rank, layout, store));
                                       if (!made) return std::unexpected(made.error());
                                       return body(rank, *made);
                                   }));
    REQUIRE(failures(results) == "");
}

}  // namespace

TEST_CASE("A compressed allreduce between hosts is right, and the same on all ranks",
          "[levels][compressed]") {
    for (const Layout& layout : kFewLayouts)
        for (const std::size_t count : {1u, 257u, 30'011u})
            for (const Format format : {Format::int8, Format::f16}) {
                const auto size = static_cast<std::uint32_t>(layout.size());
                std::vector<Values> out(size, Values(count));
                on_levels(layout, [&](std::uint32_t rank, LevelsRank& it) {
                    const Values in = gaussian(count, rank);
                    const TypedSegment all{in.data(), out[rank].data(), count};
                    return CompressedAllreduce(kSmallSteps)
                        .run(*it.group, it.host_topology.topology, it.host_topology.host.get(),
                             {&all, 1}, Reduce::sum, {.format = format}, 7);
                });
                INFO(size << " ranks, " << count << " values, " << name_of(format));
                for (const Values& one : out) CHECK(one == out.front());
                if (count > 1)
                    CHECK(relative_error(out[0], sum_of(size, count)) <=
                          (format == Format::int8 ? 1.2e-2 : 5e-4));
            }
}

TEST_CASE("Values are encoded in the blocks of their array, wherever a host's sums are cut",
          "[levels][compressed]") {
    // So many that a rail adds up a step's values in several parts, of which most end within a block.
    constexpr std::size_t kCount = 700'011;
    const Layout layout{0, 0, 0, 1, 1, 1};
    for (const Format format : {Format::f16, Format::int8}) {
        std::vector<Values> out(layout.size(), Values(kCount)), errors = out;
        on_levels(layout, [&](std::uint32_t rank, LevelsRank& it) {
            Values in(kCount);
            for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(i % 97 + rank);
            const TypedSegment all{in.data(), out[rank].data(), kCount, errors[rank].data()};
            return CompressedAllreduce().run(*it.group, it.host_topology.topology,
                                             it.host_topology.host.get(), {&all, 1}, Reduce::sum,
                                             {.format = format}, 7);
        });
        INFO(name_of(format));
        for (const Values& one : out) CHECK(one == out.front());
        // What came out and what was lost are what went in, and sums of these numbers are exact in 16 bits.
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
            float lost = 0;
            for (const Values& one : errors) lost += one[i];
            const float sum = static_cast<float>(6 * (i % 97) + 15);
            wrong += std::abs(out[0][i] + lost - sum) > 1e-3F ? 1 : 0;
            wrong += format == Format::f16 && lost != 0 ? 1 : 0;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("Halves are compressed as their values are", "[levels][compressed]") {
    constexpr std::size_t kCount = 5'000;
    for (const DType type : {DType::f16, DType::bf16}) {
        const Format as = type == DType::f16 ? Format::f16 : Format::bf16;
        std::vector<std::vector<std::byte>> out(4, std::vector<std::byte>(2 * kCount));
        on_levels({0, 0, 1, 1}, [&](std::uint32_t rank, LevelsRank& it) {
            const Values in = gaussian(kCount, rank);
            std::vector<std::byte> halves(2 * kCount);
            encode(as, Rounding::nearest, 0, in.data(), kCount, halves.data());
            const TypedSegment all{halves.data(), out[rank].data(), kCount, nullptr, type};
            return CompressedAllreduce(kSmallSteps)
                .run(*it.group, it.host_topology.topology, it.host_topology.host.get(), {&all, 1},
                     Reduce::average, {.format = Format::int8}, 7);
        });
        Values result(kCount);
        decode(as, out[0].data(), kCount, result.data());
        auto mean = sum_of(4, kCount);
        for (double& value : mean) value /= 4;
        CHECK(relative_error(result, mean) <= 1.5e-2);
        for (const auto& one : out) CHECK(one == out.front());
    }
}

TEST_CASE("An average of numbers that fit into a format fits, too", "[levels][compressed]") {
    constexpr std::size_t kCount = 3'000;
    for (const Layout& layout : kFewLayouts) {
        const auto size = static_cast<std::uint32_t>(layout.size());
        std::vector<Values> averages(size, Values(kCount)), parts(size, Values(kCount));
        std::vector<Values> errors(size, Values(kCount));
        on_levels(layout, [&](std::uint32_t rank, LevelsRank& it) -> Result<void> {
            const Values in(kCount, rank % 2 == 0 ? 65'000.0F : 60'001.0F);
            const TypedSegment all{in.data(), averages[rank].data(), kCount, errors[rank].data()};
            auto done = CompressedAllreduce(kSmallSteps)
                            .run(*it.group, it.host_topology.topology, it.host_topology.host.get(),
                                 {&all, 1}, Reduce::average, {.format = Format::f16}, 7);
            if (!done) return done;
            const Values whole(size * kCount, in[0]);
            return compressed_reduce_scatter(*it.group, it.host_topology.topology,
                                             it.host_topology.host.get(), whole.data(),
                                             parts[rank].data(), kCount, DType::f32,
                                             Reduce::average, {.format = Format::f16}, 8);
        });
        double mean = 0;
        for (std::uint32_t rank = 0; rank < size; ++rank)
            mean += (rank % 2 == 0 ? 65'000.0 : 60'001.0) / size;
        INFO(size << " ranks");
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            CHECK(averages[rank] == averages[0]);
            CHECK(std::abs(static_cast<double>(averages[rank][17]) - mean) <= 64);
            CHECK(std::abs(static_cast<double>(parts[rank][17]) - mean) <= 64);
        }
        // What was lost, added to all ranks' values, is the difference to the average.
        for (const std::size_t i : {0u, 1'023u, 2'999u}) {
            double lost = 0;
            for (const Values& one : errors) lost += static_cast<double>(one[i]);
            CHECK(std::abs(static_cast<double>(averages[0][i]) + lost / size - mean) <= 0.1);
        }
    }
}

TEST_CASE("Error feedback makes up for what compression between hosts has lost",
          "[levels][compressed]") {
    constexpr std::size_t kCount = 3'000;
    constexpr int kSteps = 50;
    for (const Layout& layout : {Layout{0, 0, 1, 1}, Layout{0, 1, 1, 2, 2, 2}}) {
        const auto size = static_cast<std::uint32_t>(layout.size());
        double lost[2];
        for (const bool feedback : {false, true}) {
            std::vector<double> total(kCount);
            on_levels(layout, [&](std::uint32_t rank, LevelsRank& it) -> Result<void> {
                const Values in = gaussian(kCount, rank);
                Values out(kCount), error(kCount);
                CompressedAllreduce allreduce(kSmallSteps);
                const TypedSegment all{in.data(), out.data(), kCount,
                                       feedback ? error.data() : nullptr};
                for (int step = 0; step < kSteps; ++step) {
                    auto done =
                        allreduce.run(*it.group, it.host_topology.topology,
                                      it.host_topology.host.get(), {&all, 1}, Reduce::average,
                                      {.format = Format::e4m3}, static_cast<std::uint64_t>(step));
                    if (!done) return done;
                    for (std::size_t i = 0; i < kCount && rank == 0; ++i)
                        total[i] += static_cast<double>(out[i]);
                }
                return {};
            });
            auto should = sum_of(size, kCount);
            for (double& value : should) value *= static_cast<double>(kSteps) / size;
            Values is(total.begin(), total.end());
            lost[feedback ? 1 : 0] = relative_error(is, should);
        }
        CHECK(lost[1] < lost[0] / 5);
    }
}

TEST_CASE("A compressed reduce-scatter and allgather give each rank what it should have",
          "[levels][compressed]") {
    for (const Layout& layout : kFewLayouts)
        for (const std::size_t count : {1u, 300u, 5'001u}) {
            const auto size = static_cast<std::uint32_t>(layout.size());
            std::vector<Values> parts(size, Values(count));
            std::vector<Values> gathered(size, Values(count * size));
            on_levels(layout, [&](std::uint32_t rank, LevelsRank& it) -> Result<void> {
                const Values in = gaussian(count * size, rank);
                auto done = compressed_reduce_scatter(*it.group, it.host_topology.topology,
                                                      it.host_topology.host.get(), in.data(),
                                                      parts[rank].data(), count, DType::f32,
                                                      Reduce::sum, {.format = Format::int8}, 3);
                if (!done) return done;
                return compressed_allgather(*it.group, it.host_topology.topology,
                                            parts[rank].data(), gathered[rank].data(), count,
                                            DType::f32, {.format = Format::int8}, 4);
            });
            INFO(size << " ranks, parts of " << count);
            const auto sum = sum_of(size, count * size);
            for (std::uint32_t rank = 0; rank < size; ++rank) {
                const std::vector<double> own(sum.begin() + static_cast<long>(rank * count),
                                              sum.begin() + static_cast<long>((rank + 1) * count));
                if (count > 1) CHECK(relative_error(parts[rank], own) <= 1.2e-2);
                CHECK(gathered[rank] == gathered[0]);
            }
            if (count > 1) CHECK(relative_error(gathered[0], sum) <= 2e-2);
        }
}

TEST_CASE("A rank that leaves its host's memory ends a compressed allreduce everywhere",
          "[levels][compressed]") {
    MemoryStore store;
    std::vector<Result<void>> connected;
    auto ranks = connect_all({0, 0, 1, 1}, store, connected);
    REQUIRE(failures(connected) == "");
    const auto results = run_ranks(
        4, std::function([&](std::uint32_t rank) -> Result<void> {
            if (rank == 1) {  // says nothing over TCP, where others wait for its host's sums
                ranks[rank].host_topology.host.reset();
                return {};
            }
            Values data(1 << 16, 1.0F);
            const TypedSegment all{data.data(), data.data(), data.size()};
            const LevelsRank& it = ranks[rank];
            it.group->expect(7);
            return CompressedAllreduce(kSmallSteps)
                .run(*it.group, it.host_topology.topology, it.host_topology.host.get(), {&all, 1},
                     Reduce::sum, {.format = Format::int8}, 7);
        }));
    for (const std::uint32_t rank : {0U, 2U, 3U}) {
        INFO("rank " << rank);
        REQUIRE_FALSE(results[rank].has_value());
        CHECK(results[rank].error().code == Errc::closed);
        CHECK(ranks[rank].group->lost() == 1U);
    }
}
