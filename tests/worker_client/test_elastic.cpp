// A client that lives through several generations under an agent.
#include "tests/support/catch.h"
#include "tests/worker_client/client_support.h"
#include "tests/worker_client/fake_server.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>

namespace dtrun::testing {
namespace {

using namespace std::chrono_literals;

}  // namespace

TEST_CASE("only a rank that has said so, in a job that is elastic, can rejoin",
          "[client][elastic]") {
    const FakeServer fixed = FakeServer::agent(1);
    {
        const Variables variables({{"DTRUN_SOCKET", fixed.address()}, {"DTRUN_RANK", "0"}});
        Worker worker(elastic);
        CHECK_FALSE(worker.can_rejoin());
        CHECK_THROWS_WITH(worker.rejoin(0ms), Catch::Contains("start it with --min-np"));
    }

    const FakeServer agent = FakeServer::elastic_agent(1);
    {
        const Variables variables({{"DTRUN_SOCKET", agent.address()},
                                   {"DTRUN_RANK", "0"},
                                   {"DTRUN_GENERATION", "1"},
                                   {"DTRUN_ELASTIC", "1"}});
        Worker silent;
        CHECK_FALSE(silent.can_rejoin());
        CHECK_THROWS_WITH(silent.rejoin(0ms), Catch::Contains("dtrun_options.elastic"));
    }
    CHECK(agent.saw("hello 0"));
    Worker worker = elastic_rank_of_agent(agent.address(), 0);
    CHECK(worker.can_rejoin());
    CHECK(agent.saw("hello 0 elastic"));
    if (!kCanFork) return;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(worker.can_rejoin() ? 1 : 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("a rank that got no board of changes can rejoin all the same", "[client][elastic]") {
    FakeServer agent = FakeServer::agent(1);
    Worker worker = elastic_rank_of_agent(agent.address(), 0);
    CHECK(worker.can_rejoin());
    CHECK(code_of([&] { worker.rejoin(20ms); }) == DTRUN_TIMED_OUT);
    CHECK(agent.saw("rejoin 1"));
}

TEST_CASE("a rank that rejoins has another place, and an empty store", "[client][elastic]") {
    FakeServer agent = FakeServer::elastic_agent(2);
    Worker one = elastic_rank_of_agent(agent.address(), 0);
    Worker two = elastic_rank_of_agent(agent.address(), 1);
    one.set("key", "old");
    std::thread beginner([&] {
        for (std::ptrdiff_t asked = 0; asked < 2; std::this_thread::yield()) {
            const auto log = agent.log();
            asked = std::count(log.begin(), log.end(), "rejoin 1");
        }
        agent.begin(2);
    });
    on_all(2, [&](std::uint32_t rank) { (rank == 0 ? one : two).rejoin(5s); });
    beginner.join();
    CHECK(one.generation() == 2);
    CHECK(one.token() == 2);
    CHECK(one.rank() + two.rank() == 1);
    CHECK(one.find("key") == std::nullopt);
    one.set("key", "new");
    CHECK(two.get("key") == "new");
    on_all(2, [&](std::uint32_t rank) { (rank == 0 ? one : two).barrier("again", 5s); });
}

TEST_CASE("a rejoin that has timed out can be called again, and asks once", "[client][elastic]") {
    FakeServer agent = FakeServer::elastic_agent(1);
    Worker worker = elastic_rank_of_agent(agent.address(), 0);
    CHECK(code_of([&] { worker.rejoin(20ms); }) == DTRUN_TIMED_OUT);
    CHECK(code_of([&] { worker.rejoin(20ms); }) == DTRUN_TIMED_OUT);
    agent.begin(2);
    worker.rejoin(5s);
    CHECK(worker.generation() == 2);
    const auto log = agent.log();
    CHECK(std::count(log.begin(), log.end(), "rejoin 1") == 1);
}

TEST_CASE("a change is seen without a call to the agent, until its generation has begun",
          "[client][elastic]") {
    FakeServer agent = FakeServer::elastic_agent(1);
    Worker worker = elastic_rank_of_agent(agent.address(), 0);
    CHECK_FALSE(worker.change());
    CHECK_FALSE(worker.wait_for_change(20ms));
    agent.change(2, DTRUN_CHANGE_JOINED, 40);
    const auto change = worker.wait_for_change(5s);
    REQUIRE(change);
    CHECK(change->generation == 1);
    CHECK(change->next == 2);
    CHECK(change->reason == DTRUN_CHANGE_JOINED);
    CHECK(change->stop_step == 40);
    CHECK(worker.change()->next == 2);
    worker.set("key", "value");  // this generation goes on until all have left it
    std::thread beginner([&] {
        CHECK(agent.saw("rejoin 1"));
        agent.begin(2);
    });
    worker.rejoin(5s);
    beginner.join();
    CHECK_FALSE(worker.change());
    CHECK_FALSE(worker.next_event(0ms));  // that of the change is no news any more
}

TEST_CASE("when a rank is lost, whoever waits is told so, and hooks are called",
          "[client][elastic]") {
    FakeServer agent = FakeServer::elastic_agent(2);
    Worker worker = elastic_rank_of_agent(agent.address(), 0);
    std::atomic<int> called{0};
    std::uint64_t id = 0;
    const auto count = [](void* calls) { ++*static_cast<std::atomic<int>*>(calls); };
    REQUIRE(dtrun_on_loss(worker.handle(), count, &called, &id) == DTRUN_OK);
    std::thread loser([&] {
        std::this_thread::sleep_for(30ms);
        agent.change(2, DTRUN_CHANGE_LOST);
    });
    on_all(2, [&](std::uint32_t call) {
        if (call == 0)
            CHECK(code_of([&] { worker.get("never", 5s); }) == DTRUN_STALE);
        else
            CHECK(code_of([&] { worker.barrier("never", 5s); }) == DTRUN_STALE);
    });
    loser.join();
    CHECK(code_of([&] { worker.set("key", "late"); }) == DTRUN_STALE);
    CHECK(code_of([&] { worker.barrier("late", 5s); }) == DTRUN_STALE);
    for (int i = 0; called == 0 && i < 5'000; ++i) std::this_thread::sleep_for(1ms);
    CHECK(called == 1);
    // One that comes late is called at once.
    std::atomic<int> late{0};
    std::uint64_t late_id = 0;
    REQUIRE(dtrun_on_loss(worker.handle(), count, &late, &late_id) == DTRUN_OK);
    for (int i = 0; late == 0 && i < 5'000; ++i) std::this_thread::sleep_for(1ms);
    CHECK(late == 1);
    CHECK(called == 1);
    CHECK(dtrun_on_loss_end(worker.handle(), id) == DTRUN_OK);
    CHECK(dtrun_on_loss_end(worker.handle(), late_id) == DTRUN_OK);
}

TEST_CASE("a rank without a place in the next generation hears that instead of waiting",
          "[client][elastic]") {
    FakeServer agent = FakeServer::elastic_agent(1);
    Worker worker = elastic_rank_of_agent(agent.address(), 0);
    std::thread dismisser([&] {
        CHECK(agent.saw("rejoin 1"));
        agent.announce(DTRUN_SHUTDOWN, 1, 5'000, "no place for it");
    });
    CHECK(code_of([&] { worker.rejoin(5s); }) == DTRUN_CLOSED);
    dismisser.join();
}

TEST_CASE("an agent is told of sections, with their limits", "[client][sections]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    worker.section("evaluate", 1500ms);
    worker.beat();
    worker.section_end("evaluate");
    CHECK(agent.saw("section 1 evaluate 1500"));
    CHECK(agent.saw("section 3  0"));
    CHECK(agent.saw("section 2 evaluate 0"));
    for (int i = 0; i < 64; ++i) worker.section(std::to_string(i), 1s);
    worker.section("63", 1s);
    CHECK(code_of([&] { worker.section("one more", 1s); }) == DTRUN_INVALID);
    worker.section_end("63");
    worker.section("one more", 1s);
    CHECK(code_of([&] { worker.section("", 1s); }) == DTRUN_INVALID);
    CHECK(code_of([&] { worker.section("no limit", 0s); }) == DTRUN_INVALID);
}

TEST_CASE("an agent is told for what a rank waits, and when that is over", "[client][stall]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    worker.stall("\"a\"; rank 1 has not asked for it", 60s);
    worker.stall_end("\"a\"; rank 1 has not asked for it");
    CHECK(agent.saw("stall \"a\"; rank 1 has not asked for it 60000 false"));
    CHECK(agent.saw("stall \"a\"; rank 1 has not asked for it 0 true"));
    CHECK(code_of([&] { worker.stall("", 1s); }) == DTRUN_INVALID);
    CHECK(code_of([&] { worker.stall(std::string(1'025, 'x'), 1s); }) == DTRUN_INVALID);
}

TEST_CASE("an agent that knows no stalls is told of none", "[client][stall]") {
    FakeServer agent = FakeServer::elastic_agent(1);
    Worker worker = elastic_rank_of_agent(agent.address(), 0);
    std::thread next([&] {
        CHECK(agent.saw("rejoin 1"));
        agent.begin(2);  // by a `welcome` that does not say that it does
    });
    worker.rejoin(5s);
    next.join();
    worker.stall("it", 60s);
    worker.beat();
    CHECK(agent.saw("section 3  0"));
    const auto log = agent.log();
    CHECK(std::ranges::find(log, "stall it 60000 false") == log.end());
}

}  // namespace dtrun::testing
