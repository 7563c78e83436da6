#include "collectives/backends/tcp/group.h"
#include "tests/collectives/support/group_checks.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <chrono>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

/// A host of its own for each rank: 127.0.1.1, 127.0.1.2, ...
GroupSpec spec_of(std::uint32_t rank, std::uint32_t size, KeyStore& store,
                  const std::string& prefix = "test/") {
    GroupSpec spec = thread_spec(rank, size, store, prefix);
    spec.address = fmt::format("127.0.{}.{}", 1 + rank / 200, 1 + rank % 200);
    return spec;
}

Result<void> check(const GroupSpec& spec, const CheckOptions& options) {
    auto group = over_tcp::connect(spec);
    if (!group) return std::unexpected(group.error());
    return check_group(**group, spec, options);
}

}  // namespace

TEST_CASE("Every operation gives what it should, for 1 to 9 ranks", "[tcp]") {
    for (std::uint32_t size = 1; size <= 9; ++size) {
        CheckOptions options;
        options.counts = {0, 1, 1027};
        options.large_bytes = 0;
        options.thorough = size == 3;
        if (size != 3) {
            options.types = {DType::f32, DType::f16, DType::i64};
            options.reduces = {Reduce::sum, Reduce::average};
        }
        if (size == 4 || size == 7) options.counts = {40'003};  // neither small nor large
        if (size == 2 || size == 5) options.large_bytes = (5 << 18) + 12;
        const auto results = run_ranks(
            size, std::function([&](const GroupSpec& spec) { return check(spec, options); }));
        INFO(size << " ranks");
        CHECK(failures(results) == "");
    }
}

TEST_CASE("Encrypted groups give the same, for 2 to 9 ranks", "[tcp]") {
    for (const std::uint32_t size : {2u, 3u, 9u}) {
        CheckOptions options;
        options.types = {DType::f32};
        options.reduces = {Reduce::sum};
        options.counts = {1, 40'003};
        options.large_bytes = size == 3 ? (5 << 18) + 12 : 0;
        const auto results = run_ranks(size, std::function([&](const GroupSpec& given) {
                                           GroupSpec spec = given;
                                           spec.encrypt = true;
                                           return check(spec, options);
                                       }));
        INFO(size << " ranks");
        CHECK(failures(results) == "");
    }
}

TEST_CASE("Large groups have few connections, and make more when messages need them", "[tcp]") {
    constexpr std::uint32_t kRanks = 13;
    CheckOptions options;
    options.types = {DType::f32};
    options.reduces = {Reduce::sum, Reduce::average};
    options.counts = {1, 30'001};
    options.large_bytes = 0;
    options.messages = false;
    MemoryStore store;
    const auto results = run_ranks(
        kRanks, std::function([&](std::uint32_t rank) -> Result<void> {
            const GroupSpec spec = spec_of(rank, kRanks, store);
            auto group = over_tcp::connect(spec);
            if (!group) return std::unexpected(group.error());
            const std::string before = (*group)->facts().details.front().second;
            if (before != "8 of 12 for collectives, 0 for messages")
                return fail(Errc::internal, "connections: {}", before);
            if (auto done = check_group(**group, spec, options); !done) return done;
            // Everybody writes to the sixth next: no neighbours.
            const std::uint32_t to = (rank + 6) % kRanks, from = (rank + kRanks - 6) % kRanks;
            std::uint32_t come = 0;
            const Send send{to, &rank, sizeof rank};
            const Receive receive{from, &come, sizeof come};
            auto sending = (*group)->start({&send, 1}, {});
            if (!sending) return std::unexpected(sending.error());
            auto receiving = (*group)->start({}, {&receive, 1});
            if (!receiving) return std::unexpected(receiving.error());
            if (auto done = (*sending)->wait(); !done) return done;
            if (auto done = (*receiving)->wait(); !done) return done;
            return come == from ? Result<void>() : fail(Errc::internal, "{} from {}", come, from);
        }));
    CHECK(failures(results) == "");
}

TEST_CASE("A large group meets in three round trips a rank", "[tcp]") {
    constexpr std::uint32_t kRanks = 24;
    MemoryStore store;
    std::mutex mutex;
    std::vector<std::unique_ptr<Group>> groups;
    const auto results = run_ranks(kRanks, std::function([&](std::uint32_t rank) -> Result<void> {
                                       auto group = over_tcp::connect(spec_of(rank, kRanks, store));
                                       if (!group) return std::unexpected(group.error());
                                       const std::lock_guard lock(mutex);
                                       groups.push_back(std::move(*group));
                                       return {};
                                   }));
    CHECK(failures(results) == "");
    CHECK(store.round_trips() <= std::size_t{3} * kRanks);
}

TEST_CASE("Groups of the same ranks do not disturb each other", "[tcp]") {
    constexpr std::uint32_t kRanks = 4;
    CheckOptions options;
    options.types = {DType::f32};
    options.reduces = {Reduce::sum};
    options.large_bytes = 300'000;
    MemoryStore store;
    const auto results = run_ranks(
        2 * kRanks, std::function([&](std::uint32_t thread) {
            const std::uint32_t half = thread / kRanks;
            return check(spec_of(thread % kRanks, kRanks, store, half == 0 ? "even/" : "odd/"),
                         options);
        }));
    CHECK(failures(results) == "");
}

TEST_CASE("TcpMessages are matched in the order in which they are started", "[tcp]") {
    const auto results =
        run_ranks(2, std::function([](const GroupSpec& spec) -> Result<void> {
                      auto connected = over_tcp::connect(spec);
                      if (!connected) return std::unexpected(connected.error());
                      Group& group = **connected;
                      constexpr std::size_t kMessages = 40;
                      const std::uint32_t peer = 1 - spec.rank;
                      const auto bytes_of = [](std::size_t i) {
                          return i % 3 == 0 ? 0 : (i % 5) * 100'000 + i;
                      };
                      std::vector<std::vector<unsigned char>> sent, come;
                      std::vector<std::unique_ptr<Pending>> pending;
                      for (std::size_t i = 0; i < kMessages; ++i) {
                          sent.emplace_back(bytes_of(i), static_cast<unsigned char>(i + spec.rank));
                          come.emplace_back(bytes_of(i));
                      }
                      for (std::size_t i = 0; i < kMessages; ++i) {
                          const Send send{peer, sent[i].data(), sent[i].size()};
                          const Receive receive{peer, come[i].data(), come[i].size()};
                          // One rank starts them together, the other one apart.
                          if (spec.rank == 0) {
                              auto both = group.start({&send, 1}, {&receive, 1});
                              if (!both) return std::unexpected(both.error());
                              pending.push_back(std::move(*both));
                          } else {
                              auto one = group.start({&send, 1}, {});
                              auto other = group.start({}, {&receive, 1});
                              if (!one || !other) return fail(Errc::internal, "not started");
                              pending.push_back(std::move(*other));
                              pending.push_back(std::move(*one));
                          }
                          if (i % 7 == 0)
                              if (auto done = group.run(op::barrier()); !done) return done;
                      }
                      for (auto& one : pending)
                          if (auto done = one->wait(); !done) return done;
                      for (std::size_t i = 0; i < kMessages; ++i)
                          if (come[i] != std::vector<unsigned char>(
                                             bytes_of(i), static_cast<unsigned char>(i + peer)))
                              return fail(Errc::internal, "message {} is wrong", i);
                      return {};
                  }));
    CHECK(failures(results) == "");
}

TEST_CASE("256 ranks meet", "[.bench][tcp]") {
    constexpr std::uint32_t kRanks = 256;
    MemoryStore store;
    const auto begin = std::chrono::steady_clock::now();
    std::atomic<double> slowest = 0;
    const auto results = run_ranks(
        kRanks, std::function([&](std::uint32_t rank) -> Result<void> {
            auto group = over_tcp::connect(spec_of(rank, kRanks, store));
            if (!group) return std::unexpected(group.error());
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            double known = slowest;
            while (known < took.count() && !slowest.compare_exchange_weak(known, took.count())) {
            }
            float one = 1, all = 0;
            if (auto done = (*group)->run(op::allreduce(&one, &all, 1, DType::f32, Reduce::sum));
                !done)
                return done;
            return all == kRanks ? (*group)->run(op::barrier())
                                 : fail(Errc::internal, "{} ranks", all);
        }));
    CHECK(failures(results) == "");
    std::cout << fmt::format("{} ranks: {:.3f} s, {} round trips, {:.1f} a rank\n", kRanks,
                             slowest.load(), store.round_trips(),
                             static_cast<double>(store.round_trips()) / kRanks);
}

TEST_CASE("Ranks that come in any order, at any time, find each other", "[tcp]") {
    std::mt19937 random(3);
    for (int round = 0; round < 60; ++round) {
        std::vector<std::chrono::microseconds> late;
        for (int rank = 0; rank < 4; ++rank) late.emplace_back(random() % 300);
        const auto results = run_ranks(4, std::function([&](const GroupSpec& spec) -> Result<void> {
                                           std::this_thread::sleep_for(late[spec.rank]);
                                           auto group = over_tcp::connect(spec);
                                           if (!group) return std::unexpected(group.error());
                                           return (*group)->run(op::barrier());
                                       }));
        REQUIRE(failures(results) == "");
    }
}
