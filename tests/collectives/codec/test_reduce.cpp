#include "collectives/codec/reduce.h"

#include "collectives/coordinator/scale.h"
#include "reference.h"
#include "tests/support/catch.h"

#include <cfenv>

using namespace dtrun::collectives;
using namespace dtrun::collectives::reference;

namespace {

constexpr Reduce kReductions[] = {Reduce::sum, Reduce::product, Reduce::min, Reduce::max,
                                  Reduce::average};
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                            DType::i8,  DType::u8,  DType::i32, DType::i64};

using Bytes = std::vector<unsigned char>;

template <class T>
T at(const Bytes& bytes, std::size_t i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
}

template <class T>
T combined(T a, T b, Reduce reduce) {
    const auto number = [](auto x) { return x == x; };
    switch (reduce) {
        case Reduce::product:
            return static_cast<T>(a * b);
        case Reduce::min:
            if (!number(a) || !number(b)) return number(a) ? b : a;
            return b < a ? b : a;
        case Reduce::max:
            if (!number(a) || !number(b)) return number(a) ? b : a;
            return b > a ? b : a;
        default:
            return static_cast<T>(a + b);
    }
}

/// As combined(), where sums and products wrap around.
template <class T>
T wrapped(T a, T b, Reduce reduce) {
    if (reduce == Reduce::min || reduce == Reduce::max) return combined(a, b, reduce);
    const auto wide =
        combined(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b), reduce);
    return static_cast<T>(wide);
}

bool equal(const SmallFloat& small, std::uint16_t code, float expected) {
    if (std::isnan(expected)) return std::isnan(small.value(code));
    if (std::isinf(expected)) return small.value(code) == static_cast<double>(expected);
    return code == small.nearest(static_cast<double>(expected), false);
}

/// The check of the type's kind; `floats` and `integers` are given a value of the type.
bool by_type(DType type, const auto& floats, const auto& words, const auto& integers) {
    switch (type) {
        case DType::f32:
            return floats(float());
        case DType::f64:
            return floats(double());
        case DType::f16:
            return words(kHalf);
        case DType::bf16:
            return words(kBFloat16);
        case DType::i8:
            return integers(std::int8_t());
        case DType::u8:
            return integers(std::uint8_t());
        case DType::i32:
            return integers(std::int32_t());
        case DType::i64:
            return integers(std::int64_t());
    }
    return false;
}

bool right(DType type, Reduce reduce, const Bytes& out, const Bytes& a, const Bytes& b,
           std::size_t i) {
    const auto words = [&](const SmallFloat& small) {
        const auto x = static_cast<float>(small.value(at<std::uint16_t>(a, i)));
        const auto y = static_cast<float>(small.value(at<std::uint16_t>(b, i)));
        return equal(small, at<std::uint16_t>(out, i), combined(x, y, reduce));
    };
    const auto floats = [&]<class T>(T) {
        const T expected = combined(at<T>(a, i), at<T>(b, i), reduce);
        const T found = at<T>(out, i);
        return found == expected || (std::isnan(found) && std::isnan(expected));
    };
    const auto integers = [&]<class T>(T) {
        return at<T>(out, i) == wrapped(at<T>(a, i), at<T>(b, i), reduce);
    };
    return by_type(type, floats, words, integers);
}

/// Any bits for integers and for every eighth block of floats; else floats that are near 1.
Bytes data_of(DType type, std::size_t count, std::mt19937& random) {
    Bytes bytes(count * bytes_of(type));
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    for (std::size_t i = 0; i < count && is_float(type); i++) {
        if (i / 16 % 8 == 7) continue;
        unsigned char* const top = &bytes[(i + 1) * bytes_of(type) - 1];
        *top = static_cast<unsigned char>((*top & 0x80) | 0x3f);
    }
    return bytes;
}

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 200, 333};

}  // namespace

TEST_CASE("reductions of every type and length are right, in place and from odd addresses",
          "[reduce]") {
    std::mt19937 random(3);
    for (const std::string& variant : variants()) {
        const Variant use(variant);
        for (const DType type : kTypes) {
            for (const Reduce reduce : kReductions) {
                std::size_t wrong = 0;
                for (const std::size_t count : kCounts) {
                    const Bytes a = data_of(type, count, random);
                    const Bytes b = data_of(type, count, random);
                    Bytes apart(a.size());
                    reduce_into(apart.data(), a.data(), b.data(), count, type, reduce);
                    Bytes first = a;
                    reduce_into(first.data(), first.data(), b.data(), count, type, reduce);
                    Bytes shifted(b.size() + 1);
                    std::ranges::copy(b, shifted.begin() + 1);
                    reduce_into(shifted.data() + 1, a.data(), shifted.data() + 1, count, type,
                                reduce);
                    for (std::size_t i = 0; i < count; i++) {
                        wrong += !right(type, reduce, apart, a, b, i);
                    }
                    wrong += first != apart;
                    wrong += !std::equal(apart.begin(), apart.end(), shifted.begin() + 1);
                }
                INFO(name_of(type) << ' ' << name_of(reduce) << " with " << variant);
                CHECK(wrong == 0);
            }
        }
    }
}

TEST_CASE("every half times 1 and plus 0 is itself", "[reduce]") {
    for (const auto& [type, small] : {std::pair{DType::f16, kHalf}, {DType::bf16, kBFloat16}}) {
        std::vector<std::uint16_t> all(65536);
        for (std::size_t i = 0; i < all.size(); i++) all[i] = static_cast<std::uint16_t>(i);
        const std::vector<std::uint16_t> ones(
            all.size(), static_cast<std::uint16_t>(small.nearest(1.0, false)));
        const std::vector<std::uint16_t> zeros(
            all.size(), static_cast<std::uint16_t>(small.sign_bit()));  // -0 + -0 is -0
        for (const std::string& variant : variants()) {
            const Variant use(variant);
            std::vector<std::uint16_t> product(all.size());
            std::vector<std::uint16_t> sum(all.size());
            reduce_into(product.data(), all.data(), ones.data(), all.size(), type, Reduce::product);
            reduce_into(sum.data(), all.data(), zeros.data(), all.size(), type, Reduce::sum);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < all.size(); i++) {
                const bool nan = std::isnan(small.value(all[i]));
                wrong += nan ? !std::isnan(small.value(product[i])) : product[i] != all[i];
                wrong += nan ? !std::isnan(small.value(sum[i])) : sum[i] != all[i];
            }
            INFO(name_of(type) << " with " << variant);
            CHECK(wrong == 0);
        }
    }
}

namespace {

bool divided(DType type, const Bytes& out, const Bytes& in, std::size_t i, std::uint32_t by) {
    const auto words = [&](const SmallFloat& small) {
        const auto x = static_cast<float>(small.value(at<std::uint16_t>(in, i)));
        return equal(small, at<std::uint16_t>(out, i), x / static_cast<float>(by));
    };
    const auto floats = [&]<class T>(T) {
        const T expected = at<T>(in, i) / static_cast<T>(by);
        const T found = at<T>(out, i);
        return found == expected || (std::isnan(found) && std::isnan(expected));
    };
    const auto integers = [&]<class T>(T) {
        return at<T>(out, i) == static_cast<T>(at<T>(in, i) / static_cast<std::int64_t>(by));
    };
    return by_type(type, floats, words, integers);
}

}  // namespace

TEST_CASE("averages are exact quotients, of integers rounded towards zero", "[reduce]") {
    std::mt19937 random(5);
    const std::uint32_t divisors[] = {1, 2, 3, 7, 8, 100, 255, 65'537, 0x7fff'ffff, 0xffff'ffff};
    for (const std::string& variant : variants()) {
        const Variant use(variant);
        for (const DType type : kTypes) {
            std::size_t wrong = 0;
            for (const std::uint32_t by : divisors) {
                for (const std::size_t count : {1, 16, 333}) {
                    const Bytes in = data_of(type, count, random);
                    Bytes out = in;
                    divide(out.data(), count, type, by);
                    for (std::size_t i = 0; i < count; i++) {
                        wrong += !divided(type, out, in, i, by);
                    }
                }
            }
            INFO(name_of(type) << " with " << variant);
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("the largest integers are divided exactly", "[reduce]") {
    using Limits = std::numeric_limits<std::int64_t>;
    for (const std::uint32_t by : {2u, 3u, 5u, 641u, 0xffff'fffbu}) {
        for (std::int64_t i = -300; i <= 300; i++) {
            // Around multiples of the divisor, and at both ends.
            for (const std::int64_t from : {std::int64_t{0}, Limits::max() / 2 / by * by,
                                            Limits::max() - 300, Limits::min() + 300}) {
                const std::int64_t value = from + i;
                std::int64_t data = value;
                divide(&data, 1, DType::i64, by);
                REQUIRE(data == value / static_cast<std::int64_t>(by));
            }
        }
    }
}

TEST_CASE("the caller's way of rounding changes no reduction, average or factor, and is kept",
          "[reduce]") {
    std::mt19937 random(7);
    constexpr std::size_t kCount = 333;
    const auto each = [](const Bytes& a, const Bytes& b, DType type) {
        std::vector<Bytes> all;
        for (const Reduce reduce : kReductions) {
            all.push_back(a);
            reduce_into(all.back().data(), a.data(), b.data(), kCount, type, reduce);
        }
        all.push_back(a);
        divide(all.back().data(), kCount, type, 3);
        all.push_back(a);
        if (type == DType::f32 || type == DType::f64)
            scale(a.data(), all.back().data(), kCount, type, 1.0 / 3);
        return all;
    };
    for (const std::string& variant : variants()) {
        const Variant use(variant);
        for (const DType type : kTypes) {
            const Bytes a = data_of(type, kCount, random), b = data_of(type, kCount, random);
            const auto expected = each(a, b, type);
            std::fesetround(FE_UPWARD);
            const auto out = each(a, b, type);
            const int kept = std::fegetround();
            std::fesetround(FE_TONEAREST);
            INFO(name_of(type) << " with " << variant);
            CHECK(kept == FE_UPWARD);
            CHECK(out == expected);
        }
    }
}
