// What is a worker's own in the store, through the C and C++ interfaces.

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_client/client_support.h"
#include "tests/worker_client/fake_server.h"

#include <unistd.h>
#include <atomic>
#include <fstream>
#include <string>

namespace dtrun::testing {
namespace {

using namespace std::chrono_literals;

const std::string kOwnersSecret = "0123456789abcdef0123456789abcdef";

/// Whether a thread of ours waits for something.
bool is_asleep(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string stat;
    std::getline(file, stat);
    return stat.find(") S ") != std::string::npos;
}

}  // namespace

TEST_CASE("a lock goes from one worker to the next, also when the first just ends",
          "[client][store]") {
    const FakeServer agent = FakeServer::agent(3);
    Worker second = rank_of_agent(agent.address(), 1), third = rank_of_agent(agent.address(), 2);
    std::optional<Worker> first(rank_of_agent(agent.address(), 0));
    const std::uint64_t token = first->lock("leader", "first");
    CHECK(code_of([&] { second.lock("leader", "second", 0ms); }) == DTRUN_TIMED_OUT);
    CHECK_THROWS_WITH(second.lock("leader", "second", 20ms),
                      "lock(\"leader\"): not free for 0.02 s");
    std::uint64_t later = 0;
    on_all(2, [&](std::uint32_t thread) {
        if (thread == 0) later = second.lock("leader", "second", 10s);
        if (thread == 1) first.reset();
    });
    CHECK(later > token);
    CHECK(third.get("leader") == "second");
    CHECK_FALSE(third.unlock("leader", later));
    CHECK_FALSE(second.unlock("leader", token));
    CHECK(second.unlock("leader", later));
    CHECK(third.lock("leader", "third", 0ms) > later);
}

TEST_CASE("a lock that is lost is told to who watches it, and its token writes nothing",
          "[client][store]") {
    const FakeServer agent = FakeServer::agent(2);
    Worker leader = rank_of_agent(agent.address(), 0), other = rank_of_agent(agent.address(), 1);
    const std::uint64_t token = leader.lock("l");
    const auto write = [&](const char* value) {
        return leader.transact({{DTRUN_IF_EXISTS, "l"}, {DTRUN_IF_REVISION, "l", {}, token}},
                               {{DTRUN_DO_SET, "state", value}, {DTRUN_DO_PUSH, "log", value}});
    };
    CHECK(write("1") == std::nullopt);
    CHECK(other.erase("l"));
    CHECK(leader.watch("l", token, 5s).value == std::nullopt);
    CHECK(write("2") == 0);
    other.lock("l");
    CHECK(write("3") == 1);
    CHECK(other.get("state") == "1");
    CHECK(other.length("log") == 1);
}

TEST_CASE("an item that is claimed comes back when its worker ends, and not when it is done",
          "[client][store]") {
    const FakeServer agent = FakeServer::agent(2);
    Worker second = rank_of_agent(agent.address(), 1);
    {
        Worker first = rank_of_agent(agent.address(), 0);
        for (const char* item : {"a", "b", "c"}) first.push("q", item);
        CHECK(first.claim("q").value == "a");
        const Worker::Claim done = first.claim("q");
        CHECK_FALSE(second.acknowledge("q", done.item));
        CHECK(first.acknowledge("q", done.item));
        CHECK_FALSE(first.acknowledge("q", done.item));
    }
    while (second.length("q") < 2) std::this_thread::sleep_for(1ms);
    const Worker::Claim again = second.claim("q", 5s);
    CHECK(again.value == "a");
    CHECK(second.give_back("q", again.item));
    CHECK(second.pop("q") == "a");
    CHECK(second.pop("q") == "c");
    CHECK(code_of([&] { second.claim("q", 0ms); }) == DTRUN_NOT_FOUND);
    CHECK(code_of([&] { second.claim("q", 20ms); }) == DTRUN_TIMED_OUT);
}

TEST_CASE("values that do not stay go with their worker, or when their time is over",
          "[client][store]") {
    const FakeServer agent = FakeServer::agent(2);
    Worker worker = rank_of_agent(agent.address(), 1);
    {
        Worker other = rank_of_agent(agent.address(), 0);
        other.put("his", "x", true);
        other.put("stays", "x", false);
        worker.wait({"his", "stays"}, 5s);
    }
    while (worker.exists("his")) std::this_thread::sleep_for(1ms);
    CHECK(worker.exists("stays"));
    worker.put("brief", "x", false, 50ms);
    const auto known = worker.watch("brief", 0);
    CHECK(worker.watch("brief", known.revision, 5s).value == std::nullopt);
    CHECK(dtrun_put(worker.handle(), {"k", 1}, {"v", 1}, 2, 0) == DTRUN_INVALID);
}

TEST_CASE("all changes under a prefix come in order", "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    worker.set("m/a", "1");
    Worker::KeyChanges seen = worker.watch_prefix("m/", 0, 0ms);
    CHECK(seen.complete);
    REQUIRE(seen.changes.size() == 1);
    CHECK(seen.changes[0].key == "m/a");
    CHECK(seen.changes[0].value == "1");
    worker.set("other", "1");
    const Worker::KeyChanges none = worker.watch_prefix("m/", seen.revision, 20ms);
    CHECK(none.changes.empty());
    CHECK(none.revision > seen.revision);
    worker.set("m/b", "");
    worker.erase("m/a");
    worker.push("m/q", "item");
    seen = worker.watch_prefix("m/", none.revision, 5s);
    CHECK_FALSE(seen.complete);
    REQUIRE(seen.changes.size() == 3);
    CHECK(seen.changes[0].kind == DTRUN_KEY_SET);
    CHECK(seen.changes[1].kind == DTRUN_KEY_DELETED);
    CHECK(seen.changes[2].kind == DTRUN_KEY_QUEUE);
    CHECK(worker.watch_prefix("m/", none.revision, 0ms, 1).changes.size() == 1);
    CHECK(worker.erase_prefix("m/") == 2);
}

TEST_CASE("through a prefix only the keys under it are there", "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    {
        Worker a = worker.prefix("a/");
        Worker ab = a.prefix("b/");
        a.set("1", "x");
        ab.set("2", "y");
        a.multi_set({{"3", "z"}, {"4", "z"}});
        CHECK(worker.get("a/1") == "x");
        CHECK(a.get("b/2") == "y");
        CHECK(a.list_keys("").keys == std::vector<std::string>{"1", "3", "4", "b/2"});
        CHECK(a.list_keys("", "3").keys == std::vector<std::string>{"4", "b/2"});
        CHECK(ab.watch_prefix("", 0, 0ms).changes.at(0).key == "2");
        CHECK(a.transact({{DTRUN_IF_VALUE, "1", "x"}}, {{DTRUN_DO_DELETE, "1"}}) == std::nullopt);
        CHECK_FALSE(worker.exists("a/1"));
        const std::uint64_t token = a.lock("l");
        CHECK(worker.unlock("a/l", token));
        CHECK(ab.erase_prefix("") == 1);
        CHECK(a.share().get("3") == "z");
    }
    CHECK(worker.erase_prefix("") == 2);
    dtrun_worker* handle = nullptr;
    CHECK(dtrun_prefix(nullptr, {}, &handle) == DTRUN_INVALID);
    CHECK(dtrun_prefix(worker.handle(), {}, nullptr) == DTRUN_INVALID);
}

TEST_CASE("a prefix may be closed while a thread waits through it", "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    for (int i = 0; i < 3; ++i) {
        const std::string prefix = std::string(100, 'a') + std::to_string(i) + "/";
        dtrun_worker* handle = nullptr;
        REQUIRE(dtrun_prefix(worker.handle(), {prefix.data(), prefix.size()}, &handle) == DTRUN_OK);
        dtrun_bytes value{};
        int code = DTRUN_INTERNAL;
        std::atomic<pid_t> thread{0};
        std::thread waits([&] {
            thread = ::gettid();
            code = dtrun_get(handle, {"key", 3}, 20'000, &value);
        });
        while (thread == 0 || !is_asleep(thread)) std::this_thread::sleep_for(10ms);
        dtrun_finalize(handle, nullptr);
        worker.set(prefix + "key", "value");
        waits.join();
        CHECK(code == DTRUN_OK);
        CHECK(value.size == 5);
        dtrun_free(value.data);
    }
}

TEST_CASE("what is a worker's own stays over lost connections, and goes when it closes",
          "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(2, kOwnersSecret);
    const TempDir dir;
    const Variables variables({{"DTRUN_SERVE", daemon.address()},
                               {"DTRUN_JOB_NAME", "test"},
                               {"DTRUN_SECRET_FILE", dir.write("secret", kOwnersSecret, 0600)},
                               {"RANK", "0"},
                               {"WORLD_SIZE", "1"}});
    std::optional<Worker> holder(std::in_place);
    Worker other;
    const std::uint64_t token = holder->lock("l");
    holder->push("q", "item");
    const Worker::Claim claim = holder->claim("q");
    for (int i = 0; i < 3; ++i) {
        daemon.drop_connections();
        CHECK(holder->watch("l", 0, 5s).revision == token);
        CHECK(code_of([&] { other.lock("l", "", 200ms); }) == DTRUN_TIMED_OUT);
    }
    CHECK(holder->acknowledge("q", claim.item));
    std::uint64_t later = 0;
    on_all(2, [&](std::uint32_t thread) {
        if (thread == 0) later = other.lock("l", "", 10s);
        if (thread == 1) holder.reset();
    });
    CHECK(later > token);
}

}  // namespace dtrun::testing
