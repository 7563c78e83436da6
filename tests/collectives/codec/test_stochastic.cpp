#include "reference.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::collectives;
using namespace dtrun::collectives::reference;

namespace {

/// The distance of the numbers next to `value`, at most.
double step(Format format, double value, double scale) {
    const double magnitude = std::fabs(value);
    switch (format) {
        case Format::f16:
            return std::max(magnitude * 0x1p-10, 0x1p-24);
        case Format::bf16:
            return magnitude * 0x1p-7;
        case Format::int8:
            return scale;
        case Format::e4m3:
        case Format::e4m3_unscaled:
            return std::max(magnitude * 0x1p-3, 0x1p-9 * scale);
        default:
            return std::max(magnitude * 0x1p-2, 0x1p-16 * scale);
    }
}

double scale_of(Format format, double largest) {
    if (format == Format::e4m3) return largest / 448;
    if (format == Format::e5m2) return largest / 57344;
    return format == Format::int8 ? largest / 127 : 1;
}

}  // namespace

TEST_CASE("the same seed gives the same bits, another one others", "[codec]") {
    const std::vector<float> values = normal_values(1000, 1, 1);
    for (const Format format : kFormats) {
        const auto first = encoded(format, values, Rounding::stochastic, 41);
        CHECK(first == encoded(format, values, Rounding::stochastic, 41));
        CHECK(first != encoded(format, values, Rounding::stochastic, 42));
        CHECK(first != encoded(format, values, Rounding::stochastic, 41ull << 32));
        CHECK(first != encoded(format, values, Rounding::nearest, 41));
    }
}

TEST_CASE("values that the format has are never moved", "[codec]") {
    for (const Format format : kFormats) {
        const std::vector<float> any = normal_values(kBlock, 1, 2);
        const std::vector<float> exact = decoded(format, encoded(format, any), kBlock);
        for (std::uint64_t seed = 0; seed < 50; seed++) {
            const auto out = encoded(format, exact, Rounding::stochastic, seed);
            const std::vector<float> back = decoded(format, out, kBlock);
            std::size_t moved = 0;
            for (std::size_t i = 0; i < kBlock; i++) {
                // Scales are quotients, so that products with them may be off by f32's rounding.
                const double by = std::fabs(static_cast<double>(back[i] - exact[i]));
                moved += by > 1e-6 * std::fabs(static_cast<double>(exact[i]));
            }
            INFO(name_of(format));
            // One of 2^16 steps may be taken for such a rounding.
            CHECK(moved <= 1);
        }
    }
}

TEST_CASE("values move by less than a step, and on average stay where they are", "[codec]") {
    constexpr int seeds = 1500;
    for (const Format format : kFormats) {
        std::vector<float> values = normal_values(kBlock, 1, 3);
        values[0] = 4;        // the largest, from which the scale follows
        values[1] = 0.5e-4f;  // far below a step of int8
        values[2] = -3.3e-4f;
        std::vector<double> sum(kBlock, 0);
        std::vector<double> squares(kBlock, 0);
        std::vector<double> most(kBlock, 0);
        for (int seed = 0; seed < seeds; seed++) {
            const auto out =
                encoded(format, values, Rounding::stochastic, static_cast<std::uint64_t>(seed));
            const std::vector<float> back = decoded(format, out, kBlock);
            for (std::size_t i = 0; i < kBlock; i++) {
                const double lost = static_cast<double>(back[i]) - static_cast<double>(values[i]);
                sum[i] += lost;
                squares[i] += lost * lost;
                most[i] = std::max(most[i], std::fabs(lost));
            }
        }
        double worst = 0;
        double all = 0;
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < kBlock; i++) {
            const double allowed =
                step(format, static_cast<double>(values[i]), scale_of(format, 4));
            wrong += !(most[i] <= allowed * 1.000001);
            // As if the rarer of the two neighbours had come up once, where it never did.
            const double deviation =
                std::sqrt(std::max(squares[i] / seeds, allowed * allowed / seeds) / seeds);
            const double off = sum[i] / seeds / deviation;
            worst = std::max(worst, std::fabs(off));
            all += off;
        }
        INFO(name_of(format));
        CHECK(wrong == 0);
        CHECK(worst < 5);  // of 256 values; 3e-7 beyond it each
        CHECK(std::fabs(all) / std::sqrt(static_cast<double>(kBlock)) < 5);
    }
}

TEST_CASE("neighbouring values are rounded independently", "[codec]") {
    // 0.3 of the way between two numbers, everywhere: as many as that go up in each block.
    const std::vector<float> values(64 * kBlock, 1.0f + 0.3f / 8);
    const auto out = encoded(Format::e4m3_unscaled, values, Rounding::stochastic, 77);
    const std::vector<float> back = decoded(Format::e4m3_unscaled, out, values.size());
    double up = 0;
    double both = 0;
    for (std::size_t i = 0; i < values.size(); i++) {
        up += back[i] > 1;
        both += i > 0 && back[i] > 1 && back[i - 1] > 1;
    }
    const auto count = static_cast<double>(values.size());
    CHECK(up / count == Approx(0.3).margin(5 * std::sqrt(0.21 / count)));
    CHECK(both / count == Approx(0.09).margin(5 * std::sqrt(0.09 * 0.91 / count)));
}
