#include "collectives/tcp/door.h"
#include "collectives/tcp/group.h"
#include "tests/collectives/support/disagreements.h"
#include "tests/collectives/support/thread_ranks.h"

#include <catch2/catch.hpp>

#include <latch>
#include <mutex>

#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dtrun;
using namespace dtrun::collectives;
using namespace std::chrono_literals;

namespace {

/// Groups of `size` threads, connected.
std::vector<std::unique_ptr<Group>> make_groups(std::uint32_t size, MemoryStore& store) {
    std::vector<std::unique_ptr<Group>> groups(size);
    const auto results = run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                                       auto group =
                                           over_tcp::connect(thread_spec(rank, size, store));
                                       if (!group) return std::unexpected(group.error());
                                       groups[rank] = std::move(*group);
                                       return {};
                                   }));
    REQUIRE(failures(results) == "");
    return groups;
}

}  // namespace

TEST_CASE("abort() ends a call that waits, there and at the others", "[tcp]") {
    for (const bool messages : {false, true}) {
        MemoryStore store;
        auto groups = make_groups(3, store);
        // Connections for messages are made by the first ones.
        const auto greeted =
            run_ranks(3, std::function([&](std::uint32_t rank) {
                          char out = 0, in[3];
                          std::vector<Send> sends;
                          std::vector<Receive> receives;
                          for (std::uint32_t peer = 0; peer < 3; ++peer) {
                              if (peer == rank) continue;
                              sends.push_back({peer, &out, 1});
                              receives.push_back({peer, &in[peer], 1});
                          }
                          auto pending = groups[rank]->start(sends, receives);
                          return pending ? (*pending)->wait() : std::unexpected(pending.error());
                      }));
        REQUIRE(failures(greeted) == "");

        std::latch ready(3);
        const auto results =
            run_ranks(3, std::function([&](std::uint32_t rank) -> Result<void> {
                          if (rank == 2) {  // for whom the others wait
                              ready.arrive_and_wait();
                              groups[1]->abort();
                              return {};
                          }
                          if (!messages) {
                              ready.count_down();
                              return groups[rank]->barrier();
                          }
                          std::byte data[8];
                          const Receive receive{2, data, sizeof data};
                          auto pending = groups[rank]->start({}, {&receive, 1});
                          ready.count_down();
                          return pending ? (*pending)->wait() : std::unexpected(pending.error());
                      }));
        INFO((messages ? "messages" : "barrier"));
        REQUIRE_FALSE(results[0].has_value());
        REQUIRE_FALSE(results[1].has_value());
        CHECK(results[0].error().code == Errc::closed);
        CHECK(groups[0]->lost().has_value());  // rank 2 may have passed it on first
        CHECK(results[1].error().code == Errc::cancelled);
        CHECK(groups[1]->barrier().error().code == Errc::cancelled);
        CHECK_FALSE(groups[1]->lost().has_value());
    }
}

TEST_CASE("A rank that goes away is named by all that wait for it or for each other", "[tcp]") {
    constexpr std::uint32_t kRanks = 5;
    MemoryStore store;
    auto groups = make_groups(kRanks, store);
    const auto results =
        run_ranks(kRanks, std::function([&](std::uint32_t rank) -> Result<void> {
                      std::vector<float> data(3 << 20, 1.0F);
                      for (int round = 0;; ++round) {
                          if (rank == 3 && round == 2) {
                              groups[rank].reset();
                              return {};
                          }
                          const auto done = groups[rank]->allreduce(
                              data.data(), data.data(), data.size(), DType::f32, Reduce::max);
                          if (!done) return done;
                      }
                  }));
    for (const std::uint32_t rank : {0u, 1u, 2u, 4u}) {
        INFO("rank " << rank);
        REQUIRE_FALSE(results[rank].has_value());
        CHECK(results[rank].error().code == Errc::closed);
        CHECK(groups[rank]->lost() == 3u);
        CHECK_THAT(results[rank].error().message, Catch::StartsWith("lost rank 3: "));
    }
}

TEST_CASE("A message that is half through when its sender goes ends", "[tcp]") {
    MemoryStore store;
    auto groups = make_groups(2, store);
    constexpr std::size_t kBytes = 64UL << 20;
    std::latch begun(1);
    const auto results = run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                                       std::vector<std::byte> data(kBytes);
                                       if (rank == 0) {
                                           const Receive receive{1, data.data(), kBytes};
                                           auto pending = groups[0]->start({}, {&receive, 1});
                                           if (!pending) return std::unexpected(pending.error());
                                           const auto done = (*pending)->wait();
                                           return done;
                                       }
                                       const Send send{0, data.data(), kBytes};
                                       auto pending = groups[1]->start({&send, 1}, {});
                                       if (!pending) return std::unexpected(pending.error());
                                       groups[1]->abort();
                                       return (*pending)->wait();
                                   }));
    REQUIRE_FALSE(results[0].has_value());
    REQUIRE_FALSE(results[1].has_value());
    CHECK(results[1].error().code == Errc::cancelled);
    CHECK(results[0].error().code == Errc::closed);
    CHECK(groups[0]->lost() == 1u);
}

TEST_CASE("A rank that has said all it had to may leave", "[tcp]") {
    constexpr std::size_t kBytes = 3'000'001;
    const auto results = run_ranks(
        3, std::function([](const GroupSpec& spec) -> Result<void> {
            auto group = over_tcp::connect(spec);
            if (!group) return std::unexpected(group.error());
            std::vector<unsigned char> data(kBytes, static_cast<unsigned char>(spec.rank));
            // A chain: 0 leaves first, while 1 and 2 still have to do with each other.
            if (spec.rank > 0) {
                const Receive receive{spec.rank - 1, data.data(), kBytes};
                auto pending = (*group)->start({}, {&receive, 1});
                if (!pending) return std::unexpected(pending.error());
                if (auto done = (*pending)->wait(); !done) return done;
            }
            if (spec.rank < 2) {
                const Send send{spec.rank + 1, data.data(), kBytes};
                auto pending = (*group)->start({&send, 1}, {});
                if (!pending) return std::unexpected(pending.error());
                if (auto done = (*pending)->wait(); !done) return done;
            }
            return std::ranges::count(data, 0) == kBytes ? Result<void>()
                                                         : fail(Errc::internal, "wrong data");
        }));
    CHECK(failures(results) == "");
}

TEST_CASE("Ranks that disagree wait until they are told, and nothing is overwritten", "[tcp]") {
    struct Connected {
        std::vector<std::unique_ptr<Group>> groups;
        Group& group(std::uint32_t rank) { return *groups[rank]; }
    };
    check_disagreements([](MemoryStore& store) { return Connected{make_groups(2, store)}; });
}

TEST_CASE("Who has not come is named", "[tcp]") {
    MemoryStore store;
    const auto results =
        run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                      GroupSpec spec = thread_spec(rank, 4, store);
                      spec.members = {10, 11, 12, 13};
                      spec.timeout = 200ms;
                      auto group = over_tcp::connect(spec);
                      return group ? Result<void>() : std::unexpected(group.error());
                  }));
    for (const auto& result : results) {
        REQUIRE_FALSE(result.has_value());
        CHECK(result.error().code == Errc::timed_out);
        CHECK(result.error().message == "ranks 12, 13 have not come within 0.2 s");
    }
}

TEST_CASE("A rank that cannot come tells the others why", "[tcp]") {
    const auto results =
        run_ranks(2, std::function([](const GroupSpec& spec) -> Result<void> {
                      GroupSpec own = spec;
                      if (own.rank == 1) own.interfaces = {"nosuch7"};
                      auto group = over_tcp::connect(own);
                      return group ? Result<void>() : std::unexpected(group.error());
                  }));
    REQUIRE_FALSE(results[0].has_value());
    CHECK_THAT(results[0].error().message,
               Catch::StartsWith("rank 1: no network interface nosuch7"));
}

TEST_CASE("A fork of a rank can end without harm", "[tcp]") {
    MemoryStore store;
    auto groups = make_groups(2, store);
    const pid_t child = fork();
    if (child == 0) {
        groups.clear();
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    const auto results =
        run_ranks(2, std::function([&](std::uint32_t rank) { return groups[rank]->barrier(); }));
    CHECK(failures(results) == "");
}

TEST_CASE("Who receives a message of another size is told at once, and nothing is overwritten",
          "[tcp]") {
    MemoryStore store;
    auto groups = make_groups(2, store);
    std::vector<float> data(12, 7.0F);
    const auto results =
        run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                      std::vector<float> out(10);
                      const Send send{1, out.data(), 40};
                      const Receive receive{0, data.data(), 44};
                      auto pending = rank == 0 ? groups[0]->start({&send, 1}, {})
                                               : groups[1]->start({}, {&receive, 1});
                      return pending ? (*pending)->wait() : std::unexpected(pending.error());
                  }));
    REQUIRE_FALSE(results[1].has_value());
    CHECK(results[1].error().message == "rank 0 has sent 40 B where this one receives 44 B");
    CHECK(data == std::vector<float>(12, 7.0F));
}

TEST_CASE("Who comes in a rank's name without knowing what ranks know is turned away", "[tcp]") {
    MemoryStore store;
    const auto results = run_ranks(
        3, std::function([&](std::uint32_t rank) -> Result<void> {
            const std::string card = "test/tcp/1";
            if (rank == 2) {  // a stranger, who says that he is rank 0, before that one comes
                const auto values = store.get({&card, 1}, 10s);
                if (!values) return std::unexpected(values.error());
                const auto address =
                    over_tcp::parse_address(values->front().substr(0, values->front().rfind(' ')));
                if (!address) return std::unexpected(address.error());
                const auto socket = over_tcp::Socket::connect(*address);
                if (!socket) return std::unexpected(socket.error());
                over_tcp::Greeting greeting;
                greeting.kind = static_cast<std::uint32_t>(over_tcp::Kind::streams);
                greeting.to = 1;
                std::this_thread::sleep_for(50ms);
                const iovec part{&greeting, sizeof greeting};
                const auto sent = socket->send({&part, 1});
                const KeyStore::Pair come("stranger", "");
                if (auto told = store.set({&come, 1}); !told) return told;
                std::this_thread::sleep_for(200ms);
                return sent ? Result<void>() : std::unexpected(sent.error());
            }
            const std::string stranger = "stranger";
            if (rank == 0)
                if (auto come = store.get({&stranger, 1}, 10s); !come)
                    return std::unexpected(come.error());
            auto group = over_tcp::connect(thread_spec(rank, 2, store));
            return group ? (*group)->barrier() : std::unexpected(group.error());
        }));
    CHECK(failures(results) == "");
}
