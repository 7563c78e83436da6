#include "reference.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::collectives;
using namespace dtrun::collectives::reference;

namespace {

struct Plain {
    Format format;
    SmallFloat definition;
    bool saturates;
};

constexpr Plain kPlain[] = {
    {Format::f16, kHalf, false},
    {Format::bf16, kBFloat16, false},
    {Format::e4m3_unscaled, kE4M3, true},
    {Format::e5m2_unscaled, kE5M2, true},
};

std::size_t bytes_of(const Plain& plain) {
    return encoded_bytes(plain.format, 1);
}

std::uint32_t code_at(const std::vector<std::byte>& bytes, std::size_t size, std::size_t i) {
    std::uint32_t code = 0;
    std::memcpy(&code, bytes.data() + i * size, size);
    return code;
}

/// What lies between two codes, the codes themselves, and their negatives, with what they become.
struct Cases {
    std::vector<float> values;
    std::vector<std::uint32_t> codes;

    void add(float value, std::uint32_t code, std::uint32_t sign_bit) {
        values.insert(values.end(), {value, -value});
        codes.insert(codes.end(), {code, code | sign_bit});
    }
};

Cases cases_of(const Plain& plain) {
    const SmallFloat& small = plain.definition;
    Cases cases;
    for (std::uint32_t code = 0; code <= small.largest(); code++) {
        const double value = small.value(code);
        const bool last = code == small.largest();
        const double next = last ? 2 * value - small.value(code - 1) : small.value(code + 1);
        const std::uint32_t up = last && plain.saturates ? code : code + 1;
        const auto middle = static_cast<float>((value + next) / 2);
        REQUIRE(static_cast<double>(middle) == (value + next) / 2);
        cases.add(static_cast<float>(value), code, small.sign_bit());
        cases.add(middle, code % 2 == 0 ? code : up, small.sign_bit());
        cases.add(std::nextafterf(middle, 0.0f), code, small.sign_bit());
        cases.add(std::nextafterf(middle, std::numeric_limits<float>::infinity()), up,
                  small.sign_bit());
    }
    return cases;
}

}  // namespace

TEST_CASE("every pattern of the formats without a scale is decoded as defined", "[codec]") {
    for (const Plain& plain : kPlain) {
        const std::size_t size = bytes_of(plain);
        const std::size_t patterns = std::size_t{1} << (8 * size);
        std::vector<std::byte> in(patterns * size);
        for (std::uint32_t i = 0; i < patterns; i++) std::memcpy(in.data() + i * size, &i, size);
        for (const std::string& variant : variants()) {
            const Variant use(variant);
            const std::vector<float> values = decoded(plain.format, in, patterns);
            std::vector<float> sums(patterns, 1.5f);
            decode_add(plain.format, in.data(), patterns, sums.data());
            std::size_t wrong = 0;
            for (std::uint32_t i = 0; i < patterns; i++) {
                wrong += !same(values[i], plain.definition.value(i));
                const float sum = 1.5f + static_cast<float>(plain.definition.value(i));
                wrong += !same(sums[i], static_cast<double>(sum));
            }
            INFO(name_of(plain.format) << " with " << variant);
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("every pattern of scaled 8-bit formats is decoded as defined", "[codec]") {
    const float scale = 0.37f;
    for (const Format format : {Format::e4m3, Format::e5m2, Format::int8}) {
        std::vector<std::byte> in(encoded_bytes(format, kBlock));
        std::memcpy(in.data(), &scale, sizeof scale);
        for (std::size_t i = 0; i < kBlock; i++) in[sizeof scale + i] = static_cast<std::byte>(i);
        for (const std::string& variant : variants()) {
            const Variant use(variant);
            const std::vector<float> values = decoded(format, in, kBlock);
            std::size_t wrong = 0;
            for (std::uint32_t i = 0; i < kBlock; i++) {
                const double number = format == Format::int8   ? static_cast<std::int8_t>(i)
                                      : format == Format::e4m3 ? kE4M3.value(i)
                                                               : kE5M2.value(i);
                wrong += !same(values[i], static_cast<double>(static_cast<float>(number) * scale));
            }
            INFO(name_of(format) << " with " << variant);
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("values are rounded to the nearest code, half way to the even one", "[codec]") {
    for (const Plain& plain : kPlain) {
        const Cases cases = cases_of(plain);
        for (const std::string& variant : variants()) {
            const Variant use(variant);
            const std::vector<std::byte> out = encoded(plain.format, cases.values);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < cases.values.size(); i++) {
                wrong += code_at(out, bytes_of(plain), i) != cases.codes[i];
            }
            INFO(name_of(plain.format) << " with " << variant);
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("in a block whose scale is 1, codes are those of the format without a scale", "[codec]") {
    for (const auto& [scaled, plain] :
         {std::pair{Format::e4m3, kPlain[2]}, {Format::e5m2, kPlain[3]}}) {
        const Cases cases = cases_of(plain);
        const auto most = static_cast<float>(plain.definition.value(plain.definition.largest()));
        std::vector<float> values;
        std::vector<std::uint32_t> codes;
        for (std::size_t i = 0; i < cases.values.size(); i++) {
            if (std::fabs(cases.values[i]) > most) continue;
            if (values.size() % kBlock == 0) {
                values.push_back(most);
                codes.push_back(plain.definition.largest());
            }
            values.push_back(cases.values[i]);
            codes.push_back(cases.codes[i]);
        }
        for (const std::string& variant : variants()) {
            const Variant use(variant);
            const std::vector<std::byte> out = encoded(scaled, values);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < values.size(); i++) {
                const std::size_t at = i + sizeof(float) * (i / kBlock + 1);
                wrong += code_at(out, 1, at) != codes[i];
            }
            INFO(name_of(scaled) << " with " << variant);
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("int8 rounds to the nearest integer, half way to the even one", "[codec]") {
    std::vector<float> values{127.0f};
    std::vector<int> codes{127};
    for (int i = -127; i < 127 && values.size() < 3 * kBlock; i++) {
        const float middle = static_cast<float>(i) + 0.5f;
        if (values.size() % kBlock == 0) {
            values.push_back(-127.0f);
            codes.push_back(-127);
        }
        values.push_back(middle);
        codes.push_back(i % 2 == 0 ? i : i + 1);
        if (values.size() % kBlock == 0) continue;
        values.push_back(std::nextafterf(middle, -200.0f));
        codes.push_back(i);
    }
    values.resize(values.size() / kBlock * kBlock);
    for (const std::string& variant : variants()) {
        const Variant use(variant);
        const std::vector<std::byte> out = encoded(Format::int8, values);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < values.size(); i++) {
            const auto code = static_cast<std::int8_t>(out[i + 4 * (i / kBlock + 1)]);
            wrong += code != codes[i];
        }
        INFO(variant);
        CHECK(wrong == 0);
    }
}

TEST_CASE("random bit patterns are rounded as the definition says", "[codec]") {
    std::mt19937 random(11);
    std::vector<float> values(3000);
    for (float& value : values) {
        do {
            value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        } while (!std::isfinite(value));
    }
    for (const Plain& plain : kPlain) {
        const std::vector<std::byte> out = encoded(plain.format, values);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < values.size(); i++) {
            wrong += code_at(out, bytes_of(plain), i) !=
                     plain.definition.nearest(static_cast<double>(values[i]), plain.saturates);
        }
        INFO(name_of(plain.format));
        CHECK(wrong == 0);
    }
}

TEST_CASE("what is not finite stays so as far as the format has it", "[codec]") {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto signalling = std::bit_cast<float>(0xff80'0001u);
    const std::vector<float> values{infinity, -infinity, nan, -nan, signalling, 1e30f, -1e30f};
    for (const std::string& variant : variants()) {
        const Variant use(variant);
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
            for (const Plain& plain : kPlain) {
                const std::vector<std::byte> out = encoded(plain.format, values, rounding, 3);
                const std::vector<float> back = decoded(plain.format, out, values.size());
                INFO(name_of(plain.format) << " with " << variant);
                const bool infinite = plain.format != Format::e4m3_unscaled;
                CHECK((infinite ? back[0] == infinity : std::isnan(back[0])));
                CHECK((infinite ? back[1] == -infinity : std::isnan(back[1])));
                for (std::size_t i = 2; i < 5; i++) CHECK(std::isnan(back[i]));
                const auto most =
                    static_cast<float>(plain.definition.value(plain.definition.largest()));
                if (plain.saturates) CHECK(back[5] == most);
                if (plain.saturates) CHECK(back[6] == -most);
                if (plain.format == Format::f16) CHECK(back[5] == infinity);
            }
        }
    }
}

TEST_CASE("instructions that nobody knows are refused", "[codec]") {
    CHECK_FALSE(set_codec_dispatch("mmx"));
}
