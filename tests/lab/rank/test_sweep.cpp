#include "lab/rank/memory.h"
#include "lab/rank/sweep.h"
#include "tests/support/catch.h"

#include <chrono>
#include <numeric>

using namespace dtrun::collectives;
using namespace dtrun::lab;
using namespace dtrun::lab::rank;

TEST_CASE("percentiles are times that were measured", "[lab][rank]") {
    std::vector<double> times(200);
    std::iota(times.rbegin(), times.rend(), 1.0);
    const Times summary = summarize(times);
    CHECK(summary.min == 1);
    CHECK(summary.mean == 100.5);
    CHECK(summary.p50 == 100);
    CHECK(summary.p99 == 198);
    CHECK(summary.max == 200);
    std::vector<double> one{3};
    CHECK(summarize(one).p99 == 3);
}

TEST_CASE("iterations fit the time, and there is always one", "[lab][rank]") {
    CHECK(plan_iterations(std::nullopt, 0, 1) == 20);
    CHECK(plan_iterations(7, 0, 100) == 7);
    CHECK(plan_iterations(7, 1, 0.5) == 2);
    CHECK(plan_iterations(7, 1, 0.001) == 7);
    CHECK(plan_iterations(7, 1, 60) == 1);
    CHECK(plan_iterations(0, 1, 60) == 0);
    CHECK(plan_iterations(std::nullopt, 1, 0.01) == 100);
    CHECK(plan_iterations(std::nullopt, 3'600, 0) == 20'000);
}

TEST_CASE("only what can be measured is", "[lab][rank]") {
    CHECK(makes_sense(CollectiveOp::allreduce, DType::f32, Format::f16, 2));
    CHECK_FALSE(makes_sense(CollectiveOp::allreduce, DType::f64, Format::f16, 2));
    CHECK_FALSE(makes_sense(CollectiveOp::reduce, DType::f32, Format::f16, 2));
    CHECK(makes_sense(CollectiveOp::reduce, DType::f64, std::nullopt, 2));
    CHECK_FALSE(makes_sense(CollectiveOp::sendrecv, DType::f64, std::nullopt, 1));
}

TEST_CASE("a sweep with one rank has a right row for every combination", "[lab][rank]") {
    const auto group = RankGroup::join();
    REQUIRE(group.has_value());
    const auto comm = Comm::create(*group, "auto", false);
    REQUIRE(comm.has_value());
    SweepOptions options;
    options.ops = measured_ops();
    options.sizes = {0, 5, 40'000};
    for (std::size_t i = 0; i < kDTypes; ++i) options.dtypes.push_back(static_cast<DType>(i));
    options.formats = {std::nullopt, Format::int8};
    options.iters = 3;
    options.warmup = 1;
    std::size_t rows = 0;
    std::uint64_t wrong = 0;
    const auto told = [&](const Row& row) {
        ++rows;
        wrong += row.wrong;
        CHECK(row.iters == 3);
        CHECK(row.us.max >= row.us.min);
    };
    std::string refused;
    const auto done = sweep(options, *comm, MemoryKind(), told,
                            [&](const dtrun::Error& error) { refused += error.message; });
    CHECK(refused == "");
    CHECK(done.has_value());
    CHECK(wrong == 0);
    // 8 operations of 8 types and 3 sizes, f64 and i64 of 5 bytes aside; a barrier, and compressed sums.
    CHECK(rows == 8 * (kDTypes * 3 - 2) + 1 + 3);
}

TEST_CASE("what can be done in place is right there, too", "[lab][rank]") {
    const auto group = RankGroup::join();
    REQUIRE(group.has_value());
    const auto comm = Comm::create(*group, "auto", false);
    REQUIRE(comm.has_value());
    SweepOptions options;
    options.ops = measured_ops();
    options.sizes = {4, 40'000};
    options.dtypes = {DType::f32, DType::i32};
    options.formats = {std::nullopt};
    options.iters = 3;
    options.in_place = true;
    std::size_t in_place = 0;
    std::uint64_t wrong = 0;
    const auto done = sweep(
        options, *comm, MemoryKind(),
        [&](const Row& row) {
            in_place += row.in_place ? 1 : 0;
            wrong += row.wrong;
            CHECK((!row.in_place || has_in_place(row.op)));
        },
        [](const dtrun::Error& error) { FAIL(error.message); });
    CHECK(done.has_value());
    CHECK(wrong == 0);
    CHECK(in_place ==
          6 * 2 * 2);  // allreduce, allgather, reduce_scatter, reduce, gather and scatter
    CHECK_FALSE(has_in_place(CollectiveOp::broadcast));
}

TEST_CASE("a sweep takes about the time that it is given", "[lab][rank]") {
    const auto group = RankGroup::join();
    REQUIRE(group.has_value());
    const auto comm = Comm::create(*group, "auto", false);
    REQUIRE(comm.has_value());
    SweepOptions options;
    options.ops = {CollectiveOp::allreduce};
    options.sizes = {1u << 20};
    options.dtypes = {DType::f32};
    options.formats = {std::nullopt};
    options.seconds = 0.05;
    const auto begin = std::chrono::steady_clock::now();
    std::size_t iters = 0;
    const auto done = sweep(
        options, *comm, MemoryKind(), [&](const Row& row) { iters = row.iters; },
        [](const dtrun::Error&) {});
    CHECK(done.has_value());
    CHECK(iters > 5);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}
