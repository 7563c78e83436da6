#include "reference.h"
#include "tests/support/catch.h"

#include <cfloat>

using namespace dtrun;
using namespace dtrun::collectives;
using namespace dtrun::collectives::reference;

namespace {

constexpr Format kScaled[] = {Format::e4m3, Format::e5m2, Format::int8};

float scale_of_block(const std::vector<std::byte>& out, std::size_t block) {
    float scale = 0;
    std::memcpy(&scale, out.data() + block * (kBlock + sizeof scale), sizeof scale);
    return scale;
}

double largest_of(Format format) {
    if (format == Format::int8) return 127;
    return format == Format::e4m3 ? 448 : 57344;
}

/// How far a value may be from what it is decoded as: half a step, and f32's own roundings.
double bound(Format format, double value, double scale) {
    const double slack = 1 + 0x1p-20;
    if (format == Format::int8) return slack * scale / 2;
    const double relative = format == Format::e4m3 ? 0x1p-4 : 0x1p-3;
    const double least = format == Format::e4m3 ? 0x1p-10 : 0x1p-17;
    return slack * std::max(std::fabs(value) * relative, scale * least);
}

}  // namespace

TEST_CASE("encoded arrays have a scale for each started block", "[codec]") {
    CHECK(encoded_bytes(Format::f16, 3) == 6);
    CHECK(encoded_bytes(Format::bf16, 0) == 0);
    CHECK(encoded_bytes(Format::e4m3_unscaled, 1000) == 1000);
    CHECK(encoded_bytes(Format::e5m2_unscaled, 7) == 7);
    for (const Format format : kScaled) {
        CHECK(encoded_bytes(format, 0) == 0);
        CHECK(encoded_bytes(format, 1) == 5);
        CHECK(encoded_bytes(format, 256) == 260);
        CHECK(encoded_bytes(format, 257) == 265);
    }
}

TEST_CASE("errors of scaled blocks are within half a step, for values of any size", "[codec]") {
    const float deviations[] = {1e-44f, 1e-41f, 1e-38f, 1e-36f, 1e-33f, 1e-20f,
                                1e-3f,  1.0f,   1e4f,   1e20f,  6e37f};
    for (const Format format : kScaled) {
        for (const float deviation : deviations) {
            const std::vector<float> values = normal_values(3 * kBlock + 17, deviation, 5);
            const std::vector<std::byte> out = encoded(format, values);
            const std::vector<float> back = decoded(format, out, values.size());
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < values.size(); i++) {
                const double scale = static_cast<double>(scale_of_block(out, i / kBlock));
                const double value = static_cast<double>(values[i]);
                const double lost = std::fabs(value - static_cast<double>(back[i]));
                // Half of the least denormal number may be lost besides.
                wrong += !(lost <= bound(format, value, scale) + 0x1p-150);
            }
            INFO(name_of(format) << " of " << deviation);
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("the largest value of a block survives", "[codec]") {
    for (const Format format : kScaled) {
        for (const float most : {FLT_MAX, 1e38f, 3.0f, 1e-10f, 1e-30f}) {
            std::vector<float> values = normal_values(kBlock, most * 0.1f, 9);
            for (float& value : values) value = std::min(std::fabs(value), most);
            values[100] = -most;
            const std::vector<std::byte> out = encoded(format, values);
            const std::vector<float> back = decoded(format, out, values.size());
            INFO(name_of(format) << ", " << most);
            CHECK(static_cast<double>(scale_of_block(out, 0)) ==
                  Approx(static_cast<double>(most) / largest_of(format)).epsilon(1e-6));
            CHECK(static_cast<double>(back[100]) ==
                  Approx(-static_cast<double>(most)).epsilon(1e-6));
            CHECK(std::isfinite(back[100]));
        }
    }
}

TEST_CASE("blocks of tiny values lose precision and nothing else", "[codec]") {
    for (const Format format : kScaled) {
        const std::vector<float> values(kBlock, FLT_TRUE_MIN);
        const std::vector<std::byte> out = encoded(format, values);
        CHECK(scale_of_block(out, 0) == FLT_MIN);
        const std::vector<float> back = decoded(format, out, kBlock);
        for (const float value : back) REQUIRE(std::fabs(value) <= FLT_MIN);
    }
}

TEST_CASE("blocks of zeros have scale 0 and are zeros again", "[codec]") {
    for (const Format format : kScaled) {
        const std::vector<float> values(300, 0.0f);
        const std::vector<std::byte> out = encoded(format, values);
        CHECK(std::ranges::all_of(out, [](std::byte byte) { return byte == std::byte{0}; }));
        CHECK(same_bits(decoded(format, out, values.size()), values));
    }
}

TEST_CASE("a value that is not finite makes its block NaN, and no other", "[codec]") {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const std::string& variant : variants()) {
        const Variant use(variant);
        for (const Format format : kScaled) {
            std::vector<float> values = normal_values(4 * kBlock, 1, 3);
            values[300] = -infinity;
            values[700] = infinity;
            values[701] = std::numeric_limits<float>::quiet_NaN();
            std::vector<float> error(values.size(), 0.25f);
            std::vector<std::byte> out(encoded_bytes(format, values.size()));
            encode(format, Rounding::nearest, 0, values.data(), values.size(), out.data(),
                   error.data());
            INFO(name_of(format) << " with " << variant);
            CHECK(scale_of_block(out, 1) == infinity);
            CHECK(std::isnan(scale_of_block(out, 2)));
            const std::vector<float> back = decoded(format, out, values.size());
            std::vector<float> sums(values.size(), 1.0f);
            decode_add(format, out.data(), values.size(), sums.data());
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < values.size(); i++) {
                const bool blown = i / kBlock == 1 || i / kBlock == 2;
                wrong += std::isnan(back[i]) != blown;
                wrong += std::isnan(sums[i]) != blown;
                wrong += !std::isfinite(error[i]) || (blown && error[i] != 0);
            }
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("what encoding costs is added to the error", "[codec]") {
    const std::vector<float> values = normal_values(1000, 3, 21);
    for (const std::string& variant : variants()) {
        const Variant use(variant);
        for (const Format format : kFormats) {
            for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
                const std::vector<float> before = normal_values(values.size(), 0.01f, 22);
                std::vector<float> error = before;
                std::vector<std::byte> out(encoded_bytes(format, values.size()));
                encode(format, rounding, 4, values.data(), values.size(), out.data(), error.data());
                CHECK(out == encoded(format, values, rounding, 4));
                const std::vector<float> back = decoded(format, out, values.size());
                std::vector<float> expected = before;
                for (std::size_t i = 0; i < values.size(); i++) {
                    const float lost = values[i] - back[i];
                    expected[i] += lost;
                }
                INFO(name_of(format) << " with " << variant);
                CHECK(same_bits(error, expected));
            }
        }
    }
}

TEST_CASE("error is 0 where the value or what it becomes is not finite", "[codec]") {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> values{1e6f, -infinity, std::nanf(""), 1.0f, FLT_MAX};
    for (const Format format :
         {Format::f16, Format::bf16, Format::e4m3_unscaled, Format::e5m2_unscaled}) {
        std::vector<float> error(values.size(), 0.5f);
        std::vector<std::byte> out(encoded_bytes(format, values.size()));
        encode(format, Rounding::nearest, 0, values.data(), values.size(), out.data(),
               error.data());
        const std::vector<float> back = decoded(format, out, values.size());
        for (std::size_t i = 0; i < values.size(); i++) {
            const float expected = 0.5f + (values[i] - back[i]);
            CHECK(error[i] == (std::isfinite(expected) ? expected : 0.0f));
        }
    }
}

TEST_CASE("parts that begin with a block are encoded as in the whole", "[codec]") {
    const std::vector<float> values = normal_values(2000, 1, 8);
    for (const Format format : kFormats) {
        const std::vector<std::byte> whole = encoded(format, values);
        std::vector<std::byte> joined(whole.size());
        for (std::size_t i = 0; i < values.size(); i += 3 * kBlock) {
            const std::size_t count = std::min(3 * kBlock, values.size() - i);
            encode(format, Rounding::nearest, 0, values.data() + i, count,
                   joined.data() + encoded_bytes(format, i));
        }
        CHECK(joined == whole);
    }
}
