#include "collectives/algorithms/adasum.h"
#include "tests/collectives/support/elements.h"
#include "tests/collectives/support/local_group.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <random>

namespace dtrun::collectives {
namespace {

using Bytes = std::vector<std::byte>;
using Gradient = std::vector<double>;

Gradient pair(const Gradient& a, const Gradient& b) {
    double dot = 0;
    double of_a = 0;
    double of_b = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        dot += a[i] * b[i];
        of_a += a[i] * a[i];
        of_b += b[i] * b[i];
    }
    Gradient sum(a.size());
    for (std::size_t i = 0; i < a.size(); ++i)
        sum[i] = (of_a == 0 ? a[i] : (1 - dot / (2 * of_a)) * a[i]) +
                 (of_b == 0 ? b[i] : (1 - dot / (2 * of_b)) * b[i]);
    return sum;
}

/// The formula, whole gradients at a time.
Gradient reference(std::vector<Gradient> all) {
    const std::size_t paired = std::bit_floor(all.size());
    for (std::size_t i = paired; i < all.size(); ++i)
        all[i - paired] = pair(all[i - paired], all[i]);
    for (std::size_t distance = 1; distance < paired; distance *= 2)
        for (std::size_t i = 0; i < paired; i += 2 * distance)
            all[i] = pair(all[i], all[i + distance]);
    return all.front();
}

/// Gradients with something in common, rounded to the type.
std::vector<Gradient> gradients(std::uint32_t size, std::size_t count, DType type) {
    std::mt19937 random(size);
    std::normal_distribution<double> normal;
    Gradient common(count);
    for (double& value : common) value = normal(random);
    std::vector<Gradient> all(size, common);
    std::byte bytes[8];
    for (Gradient& one : all)
        for (double& value : one) {
            store_element(bytes, type, value + normal(random));
            value = static_cast<double>(load_element(bytes, type));
        }
    return all;
}

/// Every rank's result. Fails the test if a rank fails.
/// \param rounding  of the thread of rank 1, before and after
std::vector<Bytes> reduce(const std::vector<Gradient>& in, DType type, bool in_place,
                          LocalNetwork::Options options = {}, int rounding = FE_TONEAREST) {
    const auto size = static_cast<std::uint32_t>(in.size());
    LocalNetwork network(size, options);
    std::vector<Bytes> out(size);
    const auto results =
        run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                      const auto group = network.connect(rank);
                      if (rank == 1) std::fesetround(rounding);
                      const std::size_t width = bytes_of(type);
                      Bytes mine(in[rank].size() * width);
                      for (std::size_t i = 0; i < in[rank].size(); ++i)
                          store_element(&mine[i * width], type, in[rank][i]);
                      out[rank] = in_place ? mine : Bytes(mine.size());
                      const Bytes before = mine;
                      auto ok = adasum_allreduce(*group, rank, size,
                                                 in_place ? out[rank].data() : mine.data(),
                                                 out[rank].data(), in[rank].size(), type);
                      if (ok && mine != before)
                          return fail(Errc::internal, "the input was written");
                      return ok;
                  }));
    REQUIRE(failures(results) == "");
    return out;
}

double relative_error(const Bytes& is, DType type, const Gradient& should) {
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < should.size(); ++i) {
        const auto value = static_cast<double>(load_element(&is[i * bytes_of(type)], type));
        error += std::pow(value - should[i], 2);
        norm += std::pow(should[i], 2);
    }
    return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

TEST_CASE("Adasum is what its formula says, and the same on all ranks", "[collectives][adasum]") {
    const std::pair<DType, double> types[] = {
        {DType::f32, 1e-6}, {DType::f64, 1e-13}, {DType::f16, 1e-3}, {DType::bf16, 8e-3}};
    for (const std::uint32_t size : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u})
        for (const std::size_t count : {0, 1, 3, 9, 2003})
            for (const auto& [type, bound] : types) {
                INFO(size << " ranks, " << count << " " << name_of(type));
                const std::vector<Gradient> in = gradients(size, count, type);
                const std::vector<Bytes> out = reduce(in, type, count % 2 == 0);
                CHECK(relative_error(out[0], type, reference(in)) <= bound);
                for (const Bytes& one : out) CHECK(one == out[0]);
            }
}

TEST_CASE("Adasum averages gradients that agree and adds those that have nothing in common",
          "[collectives][adasum]") {
    const Gradient one{3, 4, 0, 0};
    const Gradient other{0, 0, 1, -2};
    const auto value = [](const std::vector<Bytes>& out, std::size_t i) {
        return load_element(&out[1][i * 4], DType::f32);
    };
    const auto agree = reduce({one, one, one, one}, DType::f32, false);
    const auto differ = reduce({one, other}, DType::f32, false);
    const auto nothing = reduce({one, Gradient(4)}, DType::f32, false);
    const auto all_zero = reduce({Gradient(4), Gradient(4), Gradient(4)}, DType::f32, false);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(value(agree, i) == one[i]);
        CHECK(value(differ, i) == one[i] + other[i]);
        CHECK(value(nothing, i) == one[i]);
        CHECK(value(all_zero, i) == 0);
    }
}

TEST_CASE("Adasum gives the same bits whatever comes first", "[collectives][adasum]") {
    const std::vector<Gradient> in = gradients(6, 501, DType::f32);
    const auto first = reduce(in, DType::f32, false);
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
        const LocalNetwork::Options late{.seed = seed, .delay_max = std::chrono::microseconds(300)};
        CHECK(reduce(in, DType::f32, false, late)[5] == first[0]);
    }
}

TEST_CASE("Adasum gives the same bits whatever way of rounding a rank's thread has chosen",
          "[collectives][adasum]") {
    for (const DType type : {DType::f32, DType::f64, DType::f16}) {
        const std::vector<Gradient> in = gradients(3, 501, type);
        const auto expected = reduce(in, type, false);
        CHECK(reduce(in, type, false, {}, FE_UPWARD) == expected);
    }
}

TEST_CASE("Adasum of integers is refused", "[collectives][adasum]") {
    LocalNetwork network(1);
    const auto group = network.connect(0);
    const auto refused = adasum_allreduce(*group, 0, 1, nullptr, nullptr, 0, DType::i32);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message == "Adasum is for floating point, not i32");
}

}  // namespace
}  // namespace dtrun::collectives
