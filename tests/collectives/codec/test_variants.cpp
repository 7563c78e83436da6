#include "reference.h"
#include "tests/support/catch.h"

#include <cfenv>

using namespace dtrun;
using namespace dtrun::collectives;
using namespace dtrun::collectives::reference;

namespace {

/// Numbers of all sizes, and here and there what is no number.
std::vector<float> special_values(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++) {
        const auto bits = static_cast<std::uint32_t>(random());
        switch (i / kBlock % 4) {
            case 0:
                values[i] = normal(random) * 1e-3f;
                break;
            case 1:
                values[i] = std::bit_cast<float>(bits);  // NaN and infinity, too
                break;
            case 2:
                values[i] = std::bit_cast<float>(bits & 0x80ff'ffffu);  // tiny and denormal
                break;
            default:
                values[i] = std::bit_cast<float>((bits & 0x81ff'ffffu) | 0x7e00'0000u);
                if (!std::isfinite(values[i])) values[i] = 1e38f;
        }
    }
    return values;
}

struct Outcome {
    std::vector<std::byte> out;
    std::vector<float> error;
    std::vector<float> values;
    std::vector<float> sums;
};

bool operator==(const Outcome& a, const Outcome& b) {
    return a.out == b.out && same_bits(a.error, b.error) && same_bits(a.values, b.values) &&
           same_bits(a.sums, b.sums);
}

/// \param offset  of encoded bytes from an aligned address
Outcome run(Format format, Rounding rounding, const std::vector<float>& values,
            std::size_t offset) {
    const std::size_t count = values.size();
    std::vector<std::byte> out(offset + encoded_bytes(format, count));
    std::vector<float> error(count, 0.125f);
    encode(format, rounding, 99, values.data(), count, out.data() + offset, error.data());
    Outcome outcome{{}, std::move(error), std::vector<float>(count), std::vector<float>(count)};
    decode(format, out.data() + offset, count, outcome.values.data());
    for (std::size_t i = 0; i < count; i++) outcome.sums[i] = static_cast<float>(i) * 0.01f;
    decode_add(format, out.data() + offset, count, outcome.sums.data());
    for (float& sum : outcome.sums) {
        if (std::isnan(sum)) sum = std::numeric_limits<float>::quiet_NaN();
    }
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(offset));
    outcome.out = std::move(out);
    return outcome;
}

}  // namespace

TEST_CASE("all variants give the same bits for arrays of any length", "[codec]") {
    const std::vector<std::string> names = variants();
    const std::vector<float> all = special_values(1200, 1);
    std::size_t wrong = 0;
    for (std::size_t count = 0; count <= 600; count += count < 70 ? 1 : 7) {
        const std::size_t from = count * 37 % 600;
        const std::vector<float> values(all.begin() + static_cast<std::ptrdiff_t>(from),
                                        all.begin() + static_cast<std::ptrdiff_t>(from + count));
        for (const Format format : kFormats) {
            for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
                std::optional<Outcome> first;
                for (const std::string& name : names) {
                    const Variant use(name);
                    Outcome outcome = run(format, rounding, values, count % 67);
                    if (!first)
                        first = std::move(outcome);
                    else
                        wrong += !(outcome == *first);
                }
            }
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("all variants give the same bits for many blocks of special values", "[codec]") {
    const std::vector<float> values = special_values(64 * kBlock + 5, 2);
    for (const Format format : kFormats) {
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
            std::optional<Outcome> first;
            for (const std::string& name : variants()) {
                const Variant use(name);
                Outcome outcome = run(format, rounding, values, 1);
                INFO(name_of(format) << " with " << name);
                if (first) CHECK(outcome == *first);
                first = std::move(outcome);
            }
        }
    }
}

TEST_CASE("arrays that are too large for caches are encoded and decoded as small ones", "[codec]") {
    const std::size_t count = (std::size_t{2} << 20) + 3 * kBlock + 11;  // 8 MiB and some
    const std::vector<float> some = special_values(8 * kBlock, 4);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++) values[i] = some[i % some.size()];
    const Format format = Format::int8;
    const std::size_t bytes = encoded_bytes(format, count);
    std::vector<std::byte> encoded(bytes);
    std::vector<float> decoded(count);
    for (std::size_t i = 0; i < count; i += 64 * kBlock) {
        const std::size_t part = std::min(64 * kBlock, count - i);
        std::byte* const codes = encoded.data() + encoded_bytes(format, i);
        encode(format, Rounding::nearest, 0, values.data() + i, part, codes);
        decode(format, codes, part, decoded.data() + i);
    }
    for (const std::string& name : variants()) {
        if (name == "scalar") continue;  // has nothing of that kind, and takes long
        const Variant use(name);
        for (const std::size_t offset : {0u, 5u}) {
            std::vector<std::byte> codes(bytes + offset);
            std::vector<float> back(count + offset);
            encode(format, Rounding::nearest, 0, values.data(), count, codes.data() + offset);
            decode(format, encoded.data(), count, back.data() + offset);
            INFO(name << " at " << offset);
            CHECK(std::memcmp(codes.data() + offset, encoded.data(), bytes) == 0);
            CHECK(std::memcmp(back.data() + offset, decoded.data(), count * sizeof(float)) == 0);
            for (std::size_t i = 0; i < offset; i++) CHECK(codes[i] == std::byte{0});
        }
    }
}

TEST_CASE("the caller's way of rounding changes nothing and is kept", "[codec]") {
    const std::vector<float> values = special_values(5 * kBlock, 6);
    for (const std::string& name : variants()) {
        const Variant use(name);
        for (const Format format : kFormats) {
            const Outcome expected = run(format, Rounding::nearest, values, 0);
            std::vector<std::byte> out(expected.out.size());
            std::vector<float> back(values.size());
            std::fesetround(FE_UPWARD);
            encode(format, Rounding::nearest, 0, values.data(), values.size(), out.data());
            decode(format, out.data(), values.size(), back.data());
            const int kept = std::fegetround();
            std::fesetround(FE_TONEAREST);
            INFO(name_of(format) << " with " << name);
            CHECK(kept == FE_UPWARD);
            CHECK(out == expected.out);
            CHECK(same_bits(back, expected.values));
        }
    }
}
