#include "tests/collectives/native/levels_fixture.h"
#include "tests/collectives/support/disagreements.h"
#include "tests/collectives/support/group_checks.h"
#include "tests/support/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <latch>

using namespace dtrun;
using namespace dtrun::collectives;
using namespace std::chrono_literals;

namespace {

const Layout kLayouts[] = {
    {0, 0},                    // one host
    {0, 0, 0},                 //
    {0, 0, 0, 0, 0},           //
    {0, 1},                    // a rank on each
    {0, 0, 1, 1},              // in blocks
    {0, 1, 0, 1},              // dealt out
    {0, 0, 0, 1},              // unequal
    {0, 1, 1, 2, 2, 2},        // unequal, three hosts
    {1, 0, 0, 1, 0, 1, 0, 1},  // any order
};

std::string text_of(const Layout& layout) {
    std::string text;
    for (const std::uint32_t host : layout) text += std::to_string(host);
    return text;
}

}  // namespace

TEST_CASE("Every operation gives what it should, however ranks are spread over hosts", "[levels]") {
    for (const Layout& layout : kLayouts) {
        CheckOptions options;
        options.counts = {0, 1, 1027, 40'003};
        options.large_bytes = layout == Layout{0, 1, 0, 1} ? (5 << 20) + 12 : 0;
        options.messages = layout.size() < 5;
        options.thorough = layout.size() == 3;
        if (layout.size() != 3) {
            options.types = {DType::f16};
            options.reduces = {Reduce::average};
        } else {
            options.counts = {0, 1, 1027};
        }
        MemoryStore store;
        const auto results = run_ranks(static_cast<std::uint32_t>(layout.size()),
                                       std::function([&](std::uint32_t rank) -> Result<void> {
                                           const GroupSpec spec = layout_spec(rank, layout, store);
                                           auto made = connect_levels(spec);
                                           if (!made) return std::unexpected(made.error());
                                           return check_group(*made->group, spec, options);
                                       }));
        INFO("hosts " << text_of(layout));
        CHECK(failures(results) == "");
    }
}

TEST_CASE("Large arrays go through the levels in chunks, one array or many", "[levels]") {
    constexpr std::size_t kCount = 1'200'007;  // three chunks and more for each rail
    for (const Layout& layout : {Layout{0, 0, 1, 1}, Layout{0, 1, 0, 0, 1}, Layout{0, 1, 1}}) {
        const auto size = static_cast<std::uint32_t>(layout.size());
        std::vector<Result<void>> connected;
        MemoryStore store;
        auto ranks = connect_all(layout, store, connected);
        REQUIRE(failures(connected) == "");
        const auto results =
            run_ranks(size, std::function([&](std::uint32_t rank) {
                          return check_calls(*ranks[rank].group, rank, size, kCount);
                      }));
        INFO("hosts " << text_of(layout));
        CHECK(failures(results) == "");
    }
}

TEST_CASE("A sum has the same bits on all ranks, whatever its size", "[levels]") {
    for (const Layout& layout : kLayouts) {
        const auto size = static_cast<std::uint32_t>(layout.size());
        for (const std::size_t count : {3u, 20'000u, 400'000u}) {
            std::vector<std::vector<float>> out(size, std::vector<float>(count));
            MemoryStore store;
            const auto results =
                run_ranks(size, std::function([&](std::uint32_t rank) {
                              std::vector<float> in(count);
                              for (std::size_t i = 0; i < count; ++i)
                                  in[i] = 0.1F * static_cast<float>(i % 97) +
                                          1e-3F * static_cast<float>(rank);
                              auto made = connect_levels(layout_spec(rank, layout, store));
                              if (!made) return Result<void>(std::unexpected(made.error()));
                              return made->group->run(op::allreduce(
                                  in.data(), out[rank].data(), count, DType::f32, Reduce::average));
                          }));
            INFO("hosts " << text_of(layout) << ", " << count << " values");
            REQUIRE(failures(results) == "");
            for (const auto& one : out) CHECK(one == out.front());
        }
    }
}

TEST_CASE("A rank that goes away is named by all others, in memory and beyond", "[levels]") {
    for (const Layout& layout : {Layout{0, 0, 0, 0}, Layout{0, 0, 1, 1}, Layout{0, 1, 0, 1, 0}}) {
        MemoryStore store;
        std::vector<Result<void>> connected;
        auto ranks = connect_all(layout, store, connected);
        REQUIRE(failures(connected) == "");
        const auto size = static_cast<std::uint32_t>(layout.size());
        const auto results =
            run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                          std::vector<float> data(1 << 20, 1.0F);
                          for (int round = 0;; ++round) {
                              if (rank == 3 && round == 2) {
                                  ranks[rank].group.reset();
                                  ranks[rank].host_topology.host.reset();
                                  return {};
                              }
                              auto done = ranks[rank].group->run(op::allreduce(
                                  data.data(), data.data(), data.size(), DType::f32, Reduce::max));
                              if (!done) return done;
                          }
                      }));
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            if (rank == 3) continue;
            INFO("hosts " << text_of(layout) << ", rank " << rank);
            REQUIRE_FALSE(results[rank].has_value());
            CHECK(results[rank].error().code == Errc::closed);
            CHECK(ranks[rank].group->lost() == 3u);
            CHECK_THAT(results[rank].error().message, Catch::StartsWith("lost rank 3: "));
        }
    }
}

TEST_CASE("abort() ends a call that waits in memory, there and at the others", "[levels]") {
    MemoryStore store;
    std::vector<Result<void>> connected;
    auto ranks = connect_all({0, 0, 0}, store, connected);
    REQUIRE(failures(connected) == "");
    std::latch ready(3);
    const auto results = run_ranks(3, std::function([&](std::uint32_t rank) -> Result<void> {
                                       if (rank == 2) {  // for whom the others wait
                                           ready.arrive_and_wait();
                                           std::this_thread::sleep_for(20ms);  // until they sleep
                                           ranks[1].group->abort();
                                           return {};
                                       }
                                       ready.count_down();
                                       return ranks[rank].group->run(op::barrier());
                                   }));
    REQUIRE_FALSE(results[0].has_value());
    REQUIRE_FALSE(results[1].has_value());
    CHECK(results[0].error().code == Errc::closed);
    CHECK(results[1].error().code == Errc::cancelled);
    CHECK(ranks[1].group->run(op::barrier()).error().code == Errc::cancelled);
}

TEST_CASE("Ranks of a host that disagree wait until they are told, and nothing is overwritten",
          "[levels]") {
    struct Connected {
        std::vector<LevelsRank> ranks;
        Group& group(std::uint32_t rank) { return *ranks[rank].group; }
    };
    check_disagreements([](MemoryStore& store) {
        std::vector<Result<void>> results;
        Connected connected{connect_all({0, 0}, store, results)};
        REQUIRE(failures(results) == "");
        return connected;
    });
}

TEST_CASE(
    "Ranks of a host that broadcast what each has itself are found out by their next operation",
    "[levels]") {
    MemoryStore store;
    std::vector<Result<void>> connected;
    auto ranks = connect_all({0, 0}, store, connected);
    REQUIRE(failures(connected) == "");
    const auto results = run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                                       auto value = static_cast<int>(rank);
                                       Group& group = *ranks[rank].group;
                                       // Nobody waits in it: both are the root.
                                       auto done =
                                           group.run(op::broadcast(&value, sizeof value, rank));
                                       if (!done) return done;
                                       std::jthread watch([&] {
                                           std::this_thread::sleep_for(200ms);
                                           group.abort();
                                       });
                                       return group.run(op::barrier());
                                   }));
    CHECK_FALSE(results[0].has_value());
    CHECK_FALSE(results[1].has_value());
}

TEST_CASE("A fork of a rank can end without harm, also in shared memory", "[levels]") {
    MemoryStore store;
    std::vector<Result<void>> connected;
    auto ranks = connect_all({0, 0}, store, connected);
    REQUIRE(failures(connected) == "");
    const pid_t child = fork();
    if (child == 0) {
        ranks.clear();
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    const auto results = run_ranks(2, std::function([&](std::uint32_t rank) {
                                       return ranks[rank].group->run(op::barrier());
                                   }));
    CHECK(failures(results) == "");
}
