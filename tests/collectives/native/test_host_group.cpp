#include "tests/collectives/native/levels_fixture.h"
#include "tests/support/catch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

using namespace dtrun;
using namespace dtrun::collectives;
using namespace std::chrono_literals;

namespace {

/// Calls of operations that wait for few, for some and for all, in any order, with any size. What comes out is
/// compared with what each rank knows that the others have given.
Result<void> any_calls(HostGroup& host, std::uint64_t seed, int calls) {
    std::mt19937_64 random(seed);
    const std::uint32_t places = host.places();
    for (int call = 0; call < calls; ++call) {
        const std::uint64_t kind = random() % 5;
        const std::uint32_t root = static_cast<std::uint32_t>(random() % places);
        const std::size_t count = std::size_t{1} << random() % 17;
        host.begin(static_cast<std::uint64_t>(call));
        const auto value = [&](std::uint32_t place) {
            return static_cast<std::uint32_t>(call * 131 + place * 7);
        };
        std::vector<std::uint32_t> data(count, value(host.place())), out(count * places);
        std::uint32_t expected = 0;
        for (std::uint32_t place = 0; place < places; ++place) expected += value(place);
        Result<void> done;
        bool right = true;
        if (kind == 0) {
            done = host.allreduce(data.data(), out.data(), count, DType::i32, Reduce::sum);
            right = out[0] == expected && out[count - 1] == expected;
        } else if (kind == 1) {
            done = host.broadcast(data.data(), 4 * count, root);
            right = data[0] == value(root) && data[count - 1] == value(root);
        } else if (kind == 2) {
            done = host.reduce(data.data(), out.data(), count, DType::i32, Reduce::sum, root);
            right = host.place() != root || (out[0] == expected && out[count - 1] == expected);
        } else if (kind == 3) {
            done = host.gather(data.data(), out.data(), 4 * count, root);
            for (std::uint32_t place = 0; place < places && host.place() == root; ++place)
                right = right && out[place * count] == value(place) &&
                        out[place * count + count - 1] == value(place);
        } else {
            done = host.barrier();
        }
        if (!done) return done;
        if (!right) return fail(Errc::internal, "call {} of kind {} is wrong", call, kind);
        if (random() % 50 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    }
    return {};
}

}  // namespace

TEST_CASE("Any calls in any order are kept apart, with ranks that are late", "[levels]") {
    const char* const given = std::getenv("DTRUN_SEED");
    const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20'261'126;
    INFO("DTRUN_SEED=" << seed);
    for (const std::uint32_t places : {2u, 3u, 5u}) {
        MemoryStore store;
        const Layout layout(places, 0);
        const auto results =
            run_ranks(places, std::function([&](std::uint32_t rank) -> Result<void> {
                          auto host = HostGroup::join(layout_spec(rank, layout, store));
                          if (!host) return std::unexpected(host.error());
                          return any_calls(**host, seed, 600);
                      }));
        CHECK(failures(results) == "");
    }
}

TEST_CASE("A process that is killed is noticed by one that waits for it", "[levels]") {
    // Each process has its own copy of the store, so the memory is shared by hand: a fork before anything is made.
    MemoryStore store;
    std::vector<Result<void>> results;
    const Layout layout{0, 0};
    Result<void> ended;
    auto ranks = connect_all(layout, store, results);
    REQUIRE(failures(results) == "");
    HostGroup& first = *ranks[0].host_topology.host;
    const pid_t child = fork();
    if (child == 0) {
        ranks[1].host_topology.host->take_over();
        if (!ranks[1].host_topology.host->barrier()) _exit(1);
        pause();
        _exit(2);
    }
    REQUIRE(first.barrier().has_value());
    kill(child, SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    ended = first.barrier();
    CHECK(std::chrono::steady_clock::now() - begin < 5s);
    REQUIRE_FALSE(ended.has_value());
    CHECK(ended.error().code == Errc::closed);
    CHECK(first.lost() == 1u);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
}

TEST_CASE("Ranks that may not share memory say why, and go on without", "[levels]") {
    setenv("DTRUN_SHARED_MEMORY", "no", 1);
    MemoryStore store;
    std::vector<Result<void>> results;
    auto ranks = connect_all({0, 0, 1}, store, results);
    unsetenv("DTRUN_SHARED_MEMORY");
    REQUIRE(failures(results) == "");
    CHECK(ranks[0].host_topology.host == nullptr);
    CHECK(ranks[0].host_topology.why_apart == "DTRUN_SHARED_MEMORY is no");
    const auto told = [&](std::size_t rank) {
        return std::ranges::count(
            ranks[rank].group->facts().details,
            std::pair<std::string, std::string>("shared memory", "no: DTRUN_SHARED_MEMORY is no"));
    };
    CHECK(told(0) == 1);
    CHECK(told(2) == 0);
    CHECK(ranks[2].host_topology.topology.is_apart());
    const auto met = run_ranks(3, std::function([&](std::uint32_t rank) {
                                   return ranks[rank].group->run(op::barrier());
                               }));
    CHECK(failures(met) == "");
}
