#include "tests/support/catch.h"
#include "tests/support/other_user.h"
#include "tests/support/skip.h"
#include "tests/worker_client/client_support.h"
#include "tests/worker_client/fake_server.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstring>

namespace dtrun::testing {
namespace {

using namespace std::chrono_literals;

}  // namespace

TEST_CASE("a rank of an agent learns its place", "[client][agent]") {
    const FakeServer agent = FakeServer::agent(3);
    const Worker worker = rank_of_agent(agent.address(), 2);
    CHECK(worker.launcher() == "dtrun");
    CHECK(worker.rank() == 2);
    CHECK(worker.world_size() == 3);
    CHECK(worker.local_rank() == 2);
    CHECK(worker.local_size() == 3);
    CHECK(worker.cross_rank() == 0);
    CHECK(worker.cross_size() == 1);
    CHECK(worker.node_rank() == 0);
    CHECK(worker.node_count() == 1);
    CHECK(worker.generation() == 1);
    CHECK(worker.host_name() == "fake");
    CHECK(worker.job() == "0123456789abcdef0123456789abcdef");
    CHECK(agent.saw("hello 2"));
}

TEST_CASE("an agent that is not there is named with its variable", "[client][agent]") {
    const Variables variables(
        std::map<std::string, std::string>{{"DTRUN_SOCKET", "@dtrun-test-nobody"}});
    CHECK_THROWS_WITH(Worker(), Catch::Contains("DTRUN_SOCKET='@dtrun-test-nobody'") &&
                                    Catch::Contains("Connection refused"));
}

TEST_CASE("a rank tells nothing to a socket of another user", "[client][agent]") {
    if (!kCanFork || ::geteuid() != 0) {
        skip_case("needs to fork, and root to be somebody else");
        return;
    }
    const std::string name = "@dtrun-test-foreign-" + std::to_string(::getpid());
    const OtherUser other([&] {
        const int socket = unix_socket(name, ::bind);
        ::listen(socket, 8);
        for (;;) ::accept(socket, nullptr, nullptr);
    });
    const Variables variables(std::map<std::string, std::string>{{"DTRUN_SOCKET", name}});
    std::string told = "Connection refused";
    while (told.find("Connection refused") != std::string::npos) {
        try {
            const Worker worker;
            told = "it has been taken for an agent";
        } catch (const Error& error) {
            told = error.what();
        }
    }
    CHECK_THAT(told, Catch::Contains("belongs to user 65534, not to us"));
}

TEST_CASE("a large value comes in the memory of the one that was freed before it",
          "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    const auto get = [&](const char* key) {
        dtrun_bytes value{};
        const dtrun_view name{key, std::strlen(key)};
        REQUIRE(dtrun_get(worker.handle(), name, DTRUN_FOREVER, &value) == DTRUN_OK);
        return value;
    };
    const auto text = [](const dtrun_bytes& value) {
        return std::string_view(static_cast<const char*>(value.data), value.size);
    };
    const std::string large(1u << 20, 'l'), small(100, 's');
    worker.set("large", large);
    worker.set("small", small);
    dtrun_bytes value = get("large");
    for (int again = 0; again < 3; ++again) {
        CHECK(text(value) == large);
        const void* const was_at = value.data;
        dtrun_free(value.data);
        value = get("large");
        CHECK(value.data == was_at);
    }
    const dtrun_bytes beside = get("large");  // both are the program's
    CHECK(beside.data != value.data);
    dtrun_free(beside.data);
    const dtrun_bytes other = get("small");
    CHECK(text(other) == small);
    dtrun_free(other.data);
    CHECK(text(value) == large);
    dtrun_free(value.data);
}

TEST_CASE("every operation of the store gives what the protocol says", "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    const std::string binary("\0\xff\n", 3);

    worker.set("a", binary);
    CHECK(worker.get("a") == binary);
    CHECK(worker.find("a") == binary);
    CHECK(worker.find("missing") == std::nullopt);
    CHECK(code_of([&] { worker.get("missing", 0ms); }) == DTRUN_NOT_FOUND);
    CHECK(code_of([&] { worker.get("missing", 20ms); }) == DTRUN_TIMED_OUT);
    worker.wait({"a"}, 1s);
    CHECK(code_of([&] { worker.wait({"a", "missing"}, 20ms); }) == DTRUN_TIMED_OUT);

    CHECK(worker.add("n", 5) == 5);
    CHECK(worker.add("n", -7) == -2);
    CHECK(worker.get("n") == "-2");
    CHECK(code_of([&] { worker.add("a", 1); }) == DTRUN_WRONG_TYPE);

    auto compared = worker.compare_set("c", std::nullopt, "1");
    CHECK(compared.was_set);
    compared = worker.compare_set("c", "0", "2");
    CHECK_FALSE(compared.was_set);
    CHECK(compared.now == "1");
    compared = worker.compare_set("none", "0", "2");
    CHECK_FALSE(compared.was_set);
    CHECK(compared.now == std::nullopt);

    CHECK(worker.append("t", "ab") == 2);
    CHECK(worker.append("t", "c") == 3);
    CHECK(worker.all_exist({"a", "t"}));
    CHECK_FALSE(worker.all_exist({"a", "missing"}));
    CHECK(worker.erase("t"));
    CHECK_FALSE(worker.erase("t"));

    worker.multi_set({{"m1", "one"}, {"m2", ""}});
    CHECK(worker.multi_get({"m2", "m1"}) == std::vector<std::string>{"", "one"});
    auto listed = worker.list_keys("m", "", 1);
    CHECK(listed.keys == std::vector<std::string>{"m1"});
    CHECK(listed.more);
    listed = worker.list_keys("m", "m1");
    CHECK(listed.keys == std::vector<std::string>{"m2"});
    CHECK_FALSE(listed.more);

    CHECK(worker.push("q", "first") == 1);
    CHECK(worker.push("q", "second") == 2);
    CHECK(worker.length("q") == 2);
    CHECK(code_of([&] { worker.get("q"); }) == DTRUN_WRONG_TYPE);
    CHECK(worker.pop("q") == "first");
    CHECK(worker.pop("q") == "second");
    CHECK(code_of([&] { worker.pop("q", 20ms); }) == DTRUN_TIMED_OUT);

    const auto watched = worker.watch("a", 0);
    CHECK(watched.value == binary);
    CHECK(code_of([&] { worker.watch("a", watched.revision, 20ms); }) == DTRUN_TIMED_OUT);
    worker.erase("a");
    CHECK(worker.watch("a", watched.revision).value == std::nullopt);
    CHECK(worker.count() == 4);  // n, c, m1, m2
}

TEST_CASE("values of fifteen MiB pass, larger ones are refused", "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    const std::string large(15u << 20, 'x');
    worker.set("large", large);
    CHECK(worker.get("large") == large);
    worker.set("small", "y");  // the buffer has become small again
    CHECK(worker.get("small") == "y");
    CHECK(code_of([&] { worker.set("larger", std::string(16u << 20, 'x')); }) == DTRUN_REFUSED);
    CHECK(code_of([&] { worker.set(std::string(65'537, 'k'), ""); }) == DTRUN_REFUSED);
}

TEST_CASE("threads wait on one worker, and each gets its own answer", "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    Worker other = rank_of_agent(agent.address(), 0);  // the pops may take all turns of the first
    constexpr int kThreads = 80;
    std::atomic<int> sum{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads / 2; ++i)
        threads.emplace_back([&, i] {
            for (int round = 0; round < 20; ++round) {
                const std::string key = std::to_string(i) + "/" + std::to_string(round);
                worker.set(key, key);
                if (worker.get(key) == key) ++sum;
            }
        });
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&] { sum += std::stoi(worker.pop("queue")); });
    for (int i = 0; i < kThreads; ++i) other.push("queue", "1000");
    for (std::thread& thread : threads) thread.join();
    CHECK(sum == kThreads * 1'000 + kThreads / 2 * 20);
}

TEST_CASE("a fence gives everybody's bytes to all, again and again", "[client][fence]") {
    const FakeServer agent = FakeServer::agent(3);
    std::vector<Worker> workers;
    for (std::uint32_t rank = 0; rank < 3; ++rank)
        workers.push_back(rank_of_agent(agent.address(), rank));
    std::vector<std::vector<std::string>> last(3);
    on_all(3, [&](std::uint32_t rank) {
        for (int round = 0; round < 20; ++round) {
            workers[rank].barrier("step", 5s);
            last[rank] = workers[rank].fence(
                "addresses", std::to_string(rank) + "." + std::to_string(round), 5s);
        }
    });
    for (const auto& all : last) CHECK(all == std::vector<std::string>{"0.19", "1.19", "2.19"});
}

TEST_CASE("a fence that a rank gives up fails for all", "[client][fence]") {
    const FakeServer agent = FakeServer::agent(3);
    std::vector<Worker> workers;
    for (std::uint32_t rank = 0; rank < 3; ++rank)
        workers.push_back(rank_of_agent(agent.address(), rank));
    std::vector<std::string> texts(2);
    std::vector<int> codes(2);
    on_all(2, [&](std::uint32_t rank) {
        try {
            workers[rank].barrier("lonely", rank == 0 ? Timeout(50ms) : forever);
        } catch (const v0::Error& error) {
            codes[rank] = error.code().value();
            texts[rank] = error.what();
        }
    });
    CHECK(codes == std::vector<int>{DTRUN_TIMED_OUT, DTRUN_CANCELLED});
    CHECK_THAT(texts[0], Catch::Contains("fence 'lonely'"));
    CHECK_THAT(texts[1], Catch::Contains("rank 0 waited 0.05 s"));
    CHECK(agent.saw("unfence lonely"));
    // Who comes late learns the same.
    CHECK(code_of([&] { workers[2].barrier("lonely"); }) == DTRUN_CANCELLED);
}

TEST_CASE("fences fail when a rank has ended", "[client][fence]") {
    FakeServer agent = FakeServer::agent(2);
    Worker worker = rank_of_agent(agent.address(), 0);
    std::thread ends([&] {
        std::this_thread::sleep_for(50ms);
        agent.fail_fences("rank 1 has ended");
    });
    CHECK_THROWS_WITH(worker.barrier("a"), Catch::Contains("rank 1 has ended"));
    ends.join();
    CHECK_THROWS_WITH(worker.barrier("b"), Catch::Contains("rank 1 has ended"));
}

TEST_CASE("a fence's name and bytes have limits", "[client][fence]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    CHECK(code_of([&] { worker.barrier(""); }) == DTRUN_INVALID);
    CHECK(code_of([&] { worker.barrier(std::string(1'025, 'n')); }) == DTRUN_INVALID);
    CHECK(code_of([&] { worker.fence("f", std::string((12u << 20) + 1, 'x')); }) == DTRUN_INVALID);
}

TEST_CASE("progress reaches the agent", "[client][agent]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    worker.progress(7);
    CHECK(agent.saw("progress 0 7"));
}

TEST_CASE("events wait to be taken, and make their descriptor readable", "[client][event]") {
    FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    const int fd = worker.event_fd();
    pollfd readable{fd, POLLIN, 0};
    CHECK(::poll(&readable, 1, 0) == 0);
    CHECK(worker.next_event(0ms) == std::nullopt);

    agent.announce(2, 1, 1'500, "time is up");
    CHECK(::poll(&readable, 1, 5'000) == 1);
    worker.set("a", "b");  // reads the event along with its answer
    CHECK(::poll(&readable, 1, 0) == 1);
    const auto event = worker.next_event(0ms);
    REQUIRE(event.has_value());
    CHECK(event->kind == DTRUN_SHUTDOWN);
    CHECK(event->generation == 1);
    CHECK(event->grace == 1'500ms);
    CHECK(event->why == "time is up");
    CHECK(::poll(&readable, 1, 0) == 0);
}

TEST_CASE("a thread that waits for events does not keep others from their answers",
          "[client][event]") {
    FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    std::optional<Event> event;
    std::thread listener([&] { event = worker.next_event(); });
    for (int i = 0; i < 50; ++i) worker.set("a", std::to_string(i));
    agent.announce(1, 2, 0, "node7 has left");
    listener.join();
    REQUIRE(event.has_value());
    CHECK(event->why == "node7 has left");
}

TEST_CASE("who waits learns that the agent has gone", "[client][agent]") {
    FakeServer agent = FakeServer::agent(2);
    Worker worker = rank_of_agent(agent.address(), 0);
    std::thread drops([&] {
        std::this_thread::sleep_for(50ms);
        agent.drop_connections();
    });
    std::vector<int> codes(3);
    on_all(3, [&](std::uint32_t i) {
        codes[i] = code_of([&] {
            if (i == 0) worker.get("never");
            if (i == 1) worker.barrier("never");
            if (i == 2) worker.next_event();
        });
    });
    drops.join();
    CHECK(codes == std::vector<int>{DTRUN_CLOSED, DTRUN_CLOSED, DTRUN_CLOSED});
    CHECK(code_of([&] { worker.set("a", "b"); }) == DTRUN_CLOSED);
}

TEST_CASE("only members of a daemon can rejoin", "[client][agent]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    CHECK(code_of([&] { worker.rejoin(); }) == DTRUN_REFUSED);
}

TEST_CASE("a forked child has a connection of its own, for the store only", "[client][fork]") {
    if (!kCanFork) {
        WARN("SKIPPED: TSan does not follow forks of several threads");
        return;
    }
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    worker.set("from", "parent");
    // Somebody holds the lead, and locks, while we fork.
    std::thread waits([&] { worker.get("from child"); });
    std::this_thread::sleep_for(20ms);
    const pid_t child = ::fork();
    if (child == 0) {
        int failed = 0;
        failed |= worker.rank() != 0 || worker.world_size() != 1 ? 1 : 0;
        failed |= worker.get("from") != "parent" ? 2 : 0;
        failed |= code_of([&] { worker.barrier("b"); }) != DTRUN_FORKED ? 4 : 0;
        failed |= code_of([&] { worker.progress(1); }) != DTRUN_FORKED ? 8 : 0;
        failed |= code_of([&] { worker.next_event(0ms); }) != DTRUN_FORKED ? 16 : 0;
        on_all(4, [&](std::uint32_t i) { worker.add("sum", i); });
        failed |= worker.get("sum") != "6" ? 32 : 0;
        worker.set("from child", "done");
        { const Worker ended = std::move(worker); }
        ::_exit(failed);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    waits.join();
    CHECK(agent.saw("hello helper"));
    worker.barrier("still a rank", 5s);
}

TEST_CASE("a call is given up when the program wants that", "[client]") {
    const FakeServer agent = FakeServer::agent(2);
    const Variables variables({{"DTRUN_SOCKET", agent.address()}, {"DTRUN_RANK", "0"}});
    static std::atomic<bool> stop;
    static std::atomic<int> unlocked;
    stop = false;
    unlocked = 0;
    dtrun_options options{};
    options.size = sizeof options;
    options.timeout_ms = DTRUN_FOREVER;
    options.unlock = [] { return static_cast<void*>(&(++unlocked, unlocked)); };
    options.lock = [](void*) { --unlocked; };
    options.interrupted = [] { return unlocked == 0 && stop ? -1 : 0; };
    dtrun_worker* worker = nullptr;
    REQUIRE(dtrun_init(&options, &worker) == DTRUN_OK);
    CHECK(unlocked == 0);
    std::thread stops([] {
        std::this_thread::sleep_for(50ms);
        stop = true;
    });
    dtrun_bytes value{};
    CHECK(dtrun_get(worker, {"k", 1}, DTRUN_FOREVER, &value) == DTRUN_CANCELLED);
    stops.join();
    CHECK(dtrun_barrier(worker, {"b", 1}, DTRUN_FOREVER) == DTRUN_CANCELLED);
    CHECK(agent.saw("unfence b"));
    CHECK(unlocked == 0);
    stop = false;
    CHECK(dtrun_set(worker, {"k", 1}, {"v", 1}) == DTRUN_OK);
    dtrun_finalize(worker, nullptr);
}

TEST_CASE("any number of threads may wait for a queue that another one fills", "[client][store]") {
    constexpr std::uint32_t kConsumers = 70;
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    std::atomic<int> popped{0};
    on_all(kConsumers + 1, [&](std::uint32_t i) {
        if (i < kConsumers) {
            popped += code_of([&] { worker.pop("work", 3s); }) == DTRUN_OK ? 1 : 0;
            return;
        }
        std::this_thread::sleep_for(100ms);  // all wait
        for (std::uint32_t n = 0; n < kConsumers; ++n) worker.push("work", "x");
    });
    CHECK(popped == kConsumers);
}

TEST_CASE("an error names the operation, its key and the time, and nothing else",
          "[client][store]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    const auto text_of = [](auto body) -> std::string {
        try {
            body();
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    CHECK(text_of([&] { worker.get("never", 20ms); }) == "get(\"never\"): not there after 0.02 s");
    CHECK(text_of([&] { worker.get("never", 0ms); }) == "get(\"never\"): no such key");
    CHECK(text_of([&] { worker.pop("q", 20ms); }) == "pop(\"q\"): nothing has come for 0.02 s");
    CHECK(text_of([&] {
              worker.wait({"a\n", "b", "c"}, 20ms);
          }) == "wait(\"a\\x0a\" and 2 more): not all there after 0.02 s");
    CHECK(text_of([&] { worker.rejoin(0ms); }).starts_with("rejoin: "));
}

TEST_CASE("a time that has passed is over, not for ever", "[client]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    CHECK(code_of([&] { worker.get("never", -1ms); }) == DTRUN_NOT_FOUND);
    CHECK_FALSE(worker.next_event(-1ms).has_value());
    CHECK(code_of([&] { worker.section("s", -1ms); }) == DTRUN_INVALID);
}

TEST_CASE("a thread that is cancelled in a call goes on until that returns", "[client]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    struct Waiting {
        dtrun_worker* worker;
        int code = -1;
        int state = -1;
    } waiting{worker.handle()};
    pthread_t thread{};
    const auto run = [](void* argument) -> void* {
        auto* self = static_cast<Waiting*>(argument);
        dtrun_bytes value{};
        self->code = dtrun_get(self->worker, {"k", 1}, DTRUN_FOREVER, &value);
        // It would end at its next cancellation point, which sanitizers take for a fault.
        ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &self->state);
        dtrun_free(value.data);
        return nullptr;
    };
    REQUIRE(::pthread_create(&thread, nullptr, run, &waiting) == 0);
    REQUIRE(::pthread_cancel(thread) == 0);
    worker.set("k", "v");
    void* result = &waiting;
    REQUIRE(::pthread_join(thread, &result) == 0);
    CHECK(result == nullptr);
    CHECK(waiting.code == DTRUN_OK);
    CHECK(waiting.state == PTHREAD_CANCEL_ENABLE);
}

TEST_CASE("options whose size was not set, or that a newer program has set, are refused",
          "[client]") {
    const Variables variables;
    struct {
        dtrun_options options;
        int newer;
    } given{};
    dtrun_worker* worker = nullptr;
    CHECK(dtrun_init(&given.options, &worker) == DTRUN_INVALID);
    CHECK_THAT(dtrun_error_text(), Catch::Contains("set it to sizeof(dtrun_options)"));
    given.options.size = sizeof given;
    given.newer = 1;
    CHECK(dtrun_init(&given.options, &worker) == DTRUN_INVALID);
    CHECK_THAT(dtrun_error_text(), Catch::Contains("older than the program's header"));
    given.newer = 0;
    CHECK(dtrun_init(&given.options, &worker) == DTRUN_OK);
    dtrun_finalize(worker, nullptr);
    given.options.size = offsetof(dtrun_options, call_timeout_ms);
    given.options.call_timeout_ms = 1;  // a program that does not know it: whatever lies there
    CHECK(dtrun_init(&given.options, &worker) == DTRUN_OK);
    dtrun_finalize(worker, nullptr);
}

TEST_CASE("without a launcher a process is rank 0 of 1, and has no store", "[client]") {
    const Variables variables;
    Worker worker;
    CHECK(worker.launcher() == "none");
    CHECK(worker.rank() == 0);
    CHECK(worker.world_size() == 1);
    CHECK(worker.local_rank() == 0);
    CHECK(worker.node_count() == 1);
    CHECK(worker.fence("f", "mine") == std::vector<std::string>{"mine"});
    worker.barrier("b");
    worker.progress(1);
    CHECK_THROWS_WITH(worker.set("a", "b"), Catch::Contains("dtrun serve"));
    CHECK(code_of([&] { worker.set("a", "b"); }) == DTRUN_NO_LAUNCHER);
    CHECK(code_of([&] { worker.next_event(0ms); }) == DTRUN_NO_LAUNCHER);
}

TEST_CASE("the C interface refuses NULL where something must be", "[client]") {
    const Variables variables;
    CHECK(dtrun_init(nullptr, nullptr) == DTRUN_INVALID);
    CHECK(dtrun_set(nullptr, {"k", 1}, {"v", 1}) == DTRUN_INVALID);
    Worker worker;
    CHECK(dtrun_get(worker.handle(), {"k", 1}, 0, nullptr) == DTRUN_INVALID);
    CHECK(std::string(dtrun_error_text()) == "get: value is NULL");
    CHECK(dtrun_rank(nullptr) == DTRUN_UNKNOWN);
    CHECK(dtrun_generation(nullptr) == 0);
    CHECK(dtrun_token(nullptr) == 0);
    CHECK(std::string(dtrun_job(nullptr)).empty());
    CHECK(std::string(dtrun_error_text()) == "worker is NULL");
    const Worker moved = std::move(worker);
    CHECK(code_of([&] { worker.rank(); }) == DTRUN_INVALID);
    CHECK(code_of([&] { worker.set("k", "v"); }) == DTRUN_INVALID);
    CHECK(std::string(dtrun_code_name(99)) == "unknown");
    dtrun_finalize(nullptr, nullptr);
    dtrun_free(nullptr);
}

}  // namespace dtrun::testing
