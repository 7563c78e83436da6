#include "collectives/codec/format_table.h"
#include "collectives/codec/reduce.h"
#include "lab/rank/check.h"
#include "tests/support/catch.h"

#include <cmath>
#include <cstring>

using dtrun::collectives::kDTypes;
using dtrun::collectives::kFormats;
using dtrun::collectives::Reduce;
using dtrun::collectives::Rounding;
using namespace dtrun::lab;
using namespace dtrun::lab::rank;

namespace {

using Bytes = std::vector<std::byte>;

/// What every rank gives.
std::vector<Bytes> inputs(CollectiveOp op, DType type, const std::optional<Format>& format,
                          const Extent& extent, std::uint32_t ranks) {
    std::vector<Bytes> all;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        all.emplace_back(extent.in * bytes_of(type));
        Check(op, type, format, rank, ranks).fill(extent, all.back());
    }
    return all;
}

/// What an operation gives to a rank, done byte by byte.
Bytes perform(CollectiveOp op, DType type, const Extent& extent, const std::vector<Bytes>& in,
              std::uint32_t rank) {
    const auto ranks = static_cast<std::uint32_t>(in.size());
    const std::size_t part = extent.count * bytes_of(type);
    Bytes out(extent.out * bytes_of(type));
    if (part == 0) return out;
    const auto copy = [&](std::size_t to, std::uint32_t from, std::size_t first) {
        std::memcpy(out.data() + to * part, in[from].data() + first * part, part);
    };
    if (op == CollectiveOp::allreduce || op == CollectiveOp::reduce ||
        op == CollectiveOp::reduce_scatter) {
        const std::size_t first = op == CollectiveOp::reduce_scatter ? rank * part : 0;
        for (std::uint32_t from = 0; from < ranks; ++from)
            reduce_into(out.data(), out.data(), in[from].data() + first, extent.count, type,
                        Reduce::sum);
    } else if (op == CollectiveOp::broadcast) {
        copy(0, 0, 0);
    } else if (op == CollectiveOp::scatter) {
        copy(0, 0, rank);
    } else if (op == CollectiveOp::sendrecv) {
        copy(0, (rank + ranks - 1) % ranks, 0);
    } else if (op != CollectiveOp::barrier) {
        for (std::uint32_t from = 0; from < ranks; ++from)
            copy(from, from, op == CollectiveOp::alltoall ? rank : 0);
    }
    return out;
}

}  // namespace

TEST_CASE("a right result of any operation, type and size is found right", "[lab][rank]") {
    const auto ranks = GENERATE(1u, 2u, 3u, 8u);
    const std::size_t bytes = GENERATE(0u, 1u, 200u, 60'001u);
    for (const CollectiveOp op : measured_ops())
        for (std::size_t i = 0; i < kDTypes; ++i) {
            const auto type = static_cast<DType>(i);
            const Extent extent = extent_of(op, type, bytes, ranks);
            const auto in = inputs(op, type, std::nullopt, extent, ranks);
            std::uint64_t wrong = 0;
            for (std::uint32_t rank = 0; rank < ranks; ++rank)
                wrong += Check(op, type, std::nullopt, rank, ranks)
                             .compare(extent, perform(op, type, extent, in, rank))
                             .wrong;
            INFO(name_of(op) << " of " << name_of(type) << ", " << bytes << " bytes, " << ranks);
            CHECK(wrong == 0);
        }
}

TEST_CASE("one element that is off by one is found, and what was there before", "[lab][rank]") {
    constexpr std::uint32_t kRanks = 3;
    for (const CollectiveOp op : measured_ops()) {
        if (op == CollectiveOp::barrier) continue;
        for (std::size_t i = 0; i < kDTypes; ++i) {
            const auto type = static_cast<DType>(i);
            const Extent extent = extent_of(op, type, 100'000, kRanks);
            const auto in = inputs(op, type, std::nullopt, extent, kRanks);
            const Check check(op, type, std::nullopt, 0, kRanks);
            Bytes out = perform(op, type, extent, in, 0);
            out[out.size() - bytes_of(type)] ^= std::byte{1};
            INFO(name_of(op) << " of " << name_of(type));
            const Check::Verdict verdict = check.compare(extent, out);
            CHECK(verdict.wrong == 1);
            CHECK(verdict.expected_squared > 0);
            Check::spoil(out);
            CHECK(check.compare(extent, out).wrong > extent.out / 2);
        }
    }
}

TEST_CASE("a result that is not finite is wrong", "[lab][rank]") {
    const Extent extent = extent_of(CollectiveOp::allreduce, DType::f32, 4'000, 2);
    const Check check(CollectiveOp::allreduce, DType::f32, Format::int8, 0, 2);
    const std::vector<float> out(1'000, std::nanf(""));
    CHECK(check.compare(extent, std::as_bytes(std::span(out))).wrong == 1'000);
}

TEST_CASE("a compressed sum is right within its rounding, and wrong beyond", "[lab][rank]") {
    const auto ranks = GENERATE(2u, 4u, 16u);
    const auto row = GENERATE(from_range(std::begin(kFormats), std::end(kFormats)));
    const Format format = row.format;
    const Extent extent = extent_of(CollectiveOp::allreduce, DType::f32, 80'000, ranks);
    std::vector<float> sums(extent.count);
    Bytes encoded(encoded_bytes(format, extent.count));
    for (const Bytes& in : inputs(CollectiveOp::allreduce, DType::f32, format, extent, ranks)) {
        std::vector<float> values(extent.count);
        std::memcpy(values.data(), in.data(), in.size());
        encode(format, Rounding::nearest, 0, values.data(), values.size(), encoded.data());
        decode_add(format, encoded.data(), sums.size(), sums.data());
    }
    encode(format, Rounding::nearest, 0, sums.data(), sums.size(), encoded.data());
    decode(format, encoded.data(), sums.size(), sums.data());
    const Check check(CollectiveOp::allreduce, DType::f32, format, 0, ranks);
    const Check::Verdict verdict = check.compare(extent, std::as_bytes(std::span(sums)));
    INFO(name_of(format) << ", " << ranks << " ranks");
    CHECK(verdict.wrong == 0);
    const double error = std::sqrt(verdict.error_squared / verdict.expected_squared);
    CHECK(error > 1e-5);
    CHECK(error < 0.1);
    for (float& sum : sums) sum += 1.1f * static_cast<float>(ranks);
    CHECK(check.compare(extent, std::as_bytes(std::span(sums))).wrong > extent.count / 2);
}

TEST_CASE("sizes are rounded down to what all ranks have as much of", "[lab][rank]") {
    const Extent gathered = extent_of(CollectiveOp::allgather, DType::f64, 1'000, 3);
    CHECK(gathered.count == 41);
    CHECK(gathered.in == 41);
    CHECK(gathered.out == 123);
    CHECK(gathered.bytes == 984);
    CHECK(gathered.bus_factor == Approx(2.0 / 3));
    const Extent reduced = extent_of(CollectiveOp::allreduce, DType::f32, 4'003, 4);
    CHECK(reduced.count == 1'000);
    CHECK(reduced.bytes == 4'000);
    CHECK(reduced.bus_factor == Approx(1.5));
    CHECK(wire_bytes(reduced, std::nullopt) == 6'000);
    CHECK(wire_bytes(reduced, Format::f16) == 3'000);
    CHECK(wire_bytes(reduced, Format::int8) == (1'000 + 4 * 4) * 3 / 2);
    CHECK(extent_of(CollectiveOp::scatter, DType::i8, 2, 4).bytes == 0);
    CHECK(extent_of(CollectiveOp::barrier, DType::f32, 1'000, 4).bytes == 0);
}
