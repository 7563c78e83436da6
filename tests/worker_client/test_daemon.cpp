#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_client/client_support.h"
#include "tests/worker_client/fake_server.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>

namespace dtrun::testing {
namespace {

using namespace std::chrono_literals;

const std::string kSecret = "0123456789abcdef0123456789abcdef";

/// What members of the job `test` find in their environment.
class DaemonVariables {
public:
    explicit DaemonVariables(const std::string& address,
                             std::map<std::string, std::string> more = {})
        : variables_(merged(address, std::move(more))) {}

private:
    std::map<std::string, std::string> merged(const std::string& address,
                                              std::map<std::string, std::string> more) {
        more.emplace("DTRUN_SERVE", address);
        more.emplace("DTRUN_JOB_NAME", "test");
        more.emplace("DTRUN_SECRET_FILE", dir_.write("secret", kSecret, 0600));
        return more;
    }
    TempDir dir_;
    Variables variables_;
};

/// By rank.
std::vector<Worker> members(std::uint32_t count) {
    std::vector<std::optional<Worker>> entered(count);
    on_all(count, [&](std::uint32_t) {
        Worker worker;
        const std::uint32_t rank = worker.rank();
        entered.at(rank).emplace(std::move(worker));
    });
    std::vector<Worker> workers;
    for (auto& worker : entered) workers.push_back(std::move(worker.value()));
    return workers;
}

std::map<std::string, std::string> torch_rank(std::uint32_t rank, std::uint32_t ranks) {
    return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(ranks)}};
}

}  // namespace

TEST_CASE("members of a daemon's job get ranks, a store and fences", "[client][daemon]") {
    const FakeServer daemon = FakeServer::daemon(3, kSecret);
    const DaemonVariables variables(daemon.address());
    std::vector<Worker> workers = members(3);
    std::vector<std::vector<std::string>> all(3);
    on_all(3, [&](std::uint32_t rank) {
        workers[rank].set("key" + std::to_string(rank), "value");
        all[rank] = workers[rank].fence("f", std::to_string(rank), 5s);
        workers[rank].progress(10 + rank);
    });
    CHECK(workers[1].launcher() == "dtrun serve");
    CHECK(workers[1].job() == "test");
    CHECK(workers[1].world_size() == 3);
    CHECK(workers[1].local_size() == 1);
    CHECK(workers[1].node_rank() == 1);
    CHECK(workers[1].cross_rank() == 1);
    CHECK(workers[1].generation() == 1);
    for (const auto& result : all) CHECK(result == std::vector<std::string>{"0", "1", "2"});
    CHECK(workers[0].get("key2", 5s) == "value");
    CHECK(daemon.saw("heartbeat 12"));
    workers.clear();
    CHECK(daemon.saw("leave finished"));
}

TEST_CASE("a member that an exception ends says so", "[client][daemon]") {
    const FakeServer daemon = FakeServer::daemon(1, kSecret);
    const DaemonVariables variables(daemon.address());
    try {
        const Worker worker;
        throw std::runtime_error("on purpose");
    } catch (const std::runtime_error&) {
    }
    CHECK(daemon.saw("leave ended by an exception"));
}

TEST_CASE("a daemon with another secret is refused", "[client][daemon]") {
    const FakeServer daemon = FakeServer::daemon(1, std::string(32, 'x'));
    const DaemonVariables variables(daemon.address());
    CHECK_THROWS_WITH(Worker(), Catch::Contains("it has another secret"));
    CHECK(code_of([] { const Worker worker; }) == DTRUN_REFUSED);
}

TEST_CASE("a daemon that is not there is tried until the timeout", "[client][daemon]") {
    const DaemonVariables variables("127.0.0.1:1", {{"DTRUN_SERVER_TIMEOUT", "1"}});
    const auto before = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH(Worker(), Catch::Contains("DTRUN_SERVE='127.0.0.1:1': Connection refused"));
    CHECK(std::chrono::steady_clock::now() - before >= 900ms);
    CHECK(code_of([] { const Worker worker(100ms); }) == DTRUN_TIMED_OUT);
}

TEST_CASE("a daemon that comes later is found", "[client][daemon]") {
    std::string address;
    { address = FakeServer::daemon(1, kSecret).address(); }
    const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1)));
    const DaemonVariables variables(address);
    std::optional<FakeServer> daemon;
    std::thread starts([&] {
        std::this_thread::sleep_for(300ms);
        daemon.emplace(FakeServer::daemon(1, kSecret, "test", port));
    });
    Worker worker(10s);
    starts.join();
    CHECK(worker.world_size() == 1);
}

TEST_CASE("who takes a daemon's port while it is away ends nothing", "[client][daemon]") {
    std::optional<FakeServer> daemon(FakeServer::daemon(1, kSecret));
    const std::string address = daemon->address();
    const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1)));
    const DaemonVariables variables(address);
    Worker worker;
    daemon.reset();
    {
        const FakeServer squatter = FakeServer::daemon(1, std::string(32, 'x'), "test", port);
        REQUIRE(squatter.saw("stranger"));
    }
    daemon.emplace(FakeServer::daemon(1, kSecret, "test", port));
    worker.set("a", "b");
    CHECK(worker.get("a") == "b");
}

TEST_CASE("callers do not notice that a daemon's connection was lost", "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(2, kSecret);
    const DaemonVariables variables(daemon.address());
    std::vector<Worker> workers = members(2);
    std::atomic<bool> done{false};
    std::thread drops([&] {
        for (int i = 0; i < 8; ++i) {
            std::this_thread::sleep_for(60ms);
            daemon.drop_connections();
        }
        done = true;
    });
    std::vector<std::int64_t> added(2);
    std::atomic<int> fenced{0};
    std::string waited;
    on_all(4, [&](std::uint32_t thread) {
        if (thread < 2) {  // each addition is done once, whatever is sent again
            while (!done) workers[thread].add("sum", 1), ++added[thread];
        } else if (thread == 2) {
            waited = workers[0].get("late", 30s);
        } else {
            while (!done) std::this_thread::sleep_for(5ms);
            workers[1].set("late", "value");
        }
    });
    on_all(2, [&](std::uint32_t rank) {
        if (workers[rank].fence("f", std::to_string(rank), 30s).size() == 2) ++fenced;
    });
    drops.join();
    CHECK(waited == "value");
    CHECK(workers[0].get("sum") == std::to_string(added[0] + added[1]));
    CHECK(fenced == 2);
}

TEST_CASE("a fence under way survives a lost connection", "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(2, kSecret);
    const DaemonVariables variables(daemon.address());
    std::vector<Worker> workers = members(2);
    std::vector<std::vector<std::string>> all(2);
    on_all(2, [&](std::uint32_t rank) {
        if (rank == 1) {
            std::this_thread::sleep_for(50ms);
            daemon.drop_connections();
            std::this_thread::sleep_for(300ms);
        }
        all[rank] = workers[rank].fence("f", std::to_string(rank), 20s);
    });
    for (const auto& result : all) CHECK(result == std::vector<std::string>{"0", "1"});
}

TEST_CASE("a fence that was given up while the connection broke is given up over the next",
          "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(2, kSecret);
    const DaemonVariables variables(daemon.address());
    std::vector<Worker> workers = members(2);
    std::vector<int> codes(2);
    on_all(3, [&](std::uint32_t thread) {
        if (thread == 2) {
            daemon.freeze();
            std::this_thread::sleep_for(200ms);  // the first rank has given up, which nobody reads
            daemon.drop_connections();
            daemon.thaw();
        } else {
            if (thread == 1) std::this_thread::sleep_for(300ms);
            codes[thread] = code_of(
                [&] { workers[thread].barrier("f", thread == 0 ? Timeout(50ms) : forever); });
        }
    });
    CHECK(codes == std::vector<int>{DTRUN_TIMED_OUT, DTRUN_CANCELLED});
}

TEST_CASE("a daemon that is silent for three seconds is lost, and found again",
          "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(1, kSecret);
    const DaemonVariables variables(daemon.address());
    Worker worker;
    daemon.freeze();
    std::thread thaws([&] {
        std::this_thread::sleep_for(4s);
        daemon.thaw();
    });
    worker.set("a", "b");
    thaws.join();
    CHECK(worker.get("a") == "b");
    const auto log = daemon.log();
    CHECK(std::count(log.begin(), log.end(), "enter 1") >= 2);
}

TEST_CASE("a client gives its daemon as long as the daemon says that it gives others",
          "[client][daemon]") {
    struct Row {
        std::uint32_t timeout_ms;
        std::chrono::milliseconds frozen;
        std::ptrdiff_t connections;
    };
    // The first outlasts the 3 s of a daemon that says nothing, the second is lost long before them.
    for (const Row& row : {Row{30'000, 4s, 1}, Row{600, 2s, 2}}) {
        CAPTURE(row.timeout_ms);
        FakeServer daemon = FakeServer::daemon(1, kSecret);
        const DaemonVariables variables(daemon.address());
        Worker worker;
        daemon.say_timeout(row.timeout_ms);
        worker.set("a", "b");  // what the daemon has said before is read by now
        daemon.freeze();
        std::this_thread::sleep_for(row.frozen);
        daemon.thaw();
        CHECK(worker.get("a") == "b");
        const auto log = daemon.log();
        CHECK(std::count(log.begin(), log.end(), "enter 1") == row.connections);
    }
}

TEST_CASE("calls end at their time limits while a daemon does not answer", "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(1, kSecret);
    const DaemonVariables variables(daemon.address());
    WorkerOptions options;
    options.call_timeout = 50ms;
    Worker worker(options);
    daemon.freeze();
    const std::string large(8u << 20, 'x');
    for (const std::string& value : {std::string("small"), large, std::string("behind it")}) {
        try {
            worker.set("k", value);
            FAIL("nobody answers");
        } catch (const Error& error) {
            CHECK(error.is(DTRUN_TIMED_OUT));
            CHECK_THAT(error.what(), Catch::StartsWith("set(\"k\"): "));
        }
    }
    // Far less than the time that a lost connection has to come back.
    CHECK(code_of([&] { worker.find("k"); }) == DTRUN_TIMED_OUT);
    daemon.thaw();
    CHECK(worker.get("k", 30s) != "");
}

TEST_CASE("who waits while another thread finalizes is told that", "[client][daemon]") {
    const FakeServer daemon = FakeServer::daemon(1, kSecret);
    const DaemonVariables variables(daemon.address());
    Worker worker;
    dtrun_worker* const handle = worker.handle();
    std::string text;
    std::thread waits([&] {
        dtrun_bytes value{};
        CHECK(dtrun_get(handle, {"never", 5}, DTRUN_FOREVER, &value) == DTRUN_CLOSED);
        text = dtrun_error_text();
    });
    std::this_thread::sleep_for(50ms);  // it waits
    worker.finalize("on purpose");
    waits.join();
    CHECK(text == "get(\"never\"): the worker is finalized");
    CHECK(daemon.saw("leave on purpose"));
    CHECK(code_of([&] { worker.rank(); }) == DTRUN_INVALID);
}

TEST_CASE("a daemon that stays away is given up", "[client][daemon]") {
    std::optional<FakeServer> daemon(FakeServer::daemon(1, kSecret));
    const DaemonVariables variables(daemon->address(), {{"DTRUN_SERVER_TIMEOUT", "1"}});
    Worker worker;
    daemon.reset();
    CHECK(code_of([&] { worker.get("a"); }) == DTRUN_CLOSED);
    CHECK(code_of([&] { worker.barrier("b"); }) == DTRUN_CLOSED);
}

TEST_CASE("members take new places when the daemon says that hosts change", "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(2, kSecret);
    const DaemonVariables variables(daemon.address());
    std::vector<Worker> workers = members(2);
    workers[0].set("old", "store");
    std::thread notifies([&] {
        std::this_thread::sleep_for(50ms);
        daemon.notify(2);
    });
    const auto event = workers[0].next_event(5s);
    notifies.join();
    REQUIRE(event.has_value());
    CHECK(event->kind == DTRUN_MEMBERSHIP);
    CHECK(event->generation == 2);
    CHECK(event->why == "hosts change");

    std::vector<std::size_t> met(2);
    std::vector<int> stale(1);
    std::thread fence_of_before([&] { stale[0] = code_of([&] { workers[0].barrier("before"); }); });
    std::this_thread::sleep_for(20ms);
    on_all(2, [&](std::uint32_t rank) {
        workers[rank].rejoin(5s);
        met[rank] = workers[rank].fence("f", "x", 5s).size();
    });
    fence_of_before.join();
    CHECK(workers[0].generation() == 2);
    CHECK(met == std::vector<std::size_t>{2, 2});
    CHECK((stale[0] == DTRUN_STALE || stale[0] == DTRUN_CANCELLED));
    CHECK(workers[0].find("old") == std::nullopt);
    CHECK(workers[0].next_event(0ms) == std::nullopt);
    CHECK(code_of([&] { workers[0].rejoin(50ms); }) == DTRUN_TIMED_OUT);
}

TEST_CASE("who waits for a place learns that the job has ended", "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(1, kSecret);
    const DaemonVariables variables(daemon.address());
    Worker worker;
    std::thread ends([&] {
        std::this_thread::sleep_for(50ms);
        daemon.stop_job(2'000, "another member has failed");
    });
    try {
        worker.rejoin(20s);
        FAIL("there is no place");
    } catch (const Error& error) {
        CHECK(error.code().value() == DTRUN_CLOSED);
        CHECK_THAT(error.what(),
                   Catch::StartsWith("rejoin: the job has ended: another member has failed"));
    }
    ends.join();
}

TEST_CASE("a daemon that ends the job says so before it closes", "[client][daemon]") {
    FakeServer daemon = FakeServer::daemon(1, kSecret);
    const DaemonVariables variables(daemon.address());
    Worker worker;
    daemon.stop_job(2'000, "another member has failed");
    const auto event = worker.next_event(5s);
    REQUIRE(event.has_value());
    CHECK(event->kind == DTRUN_SHUTDOWN);
    CHECK(event->grace == 2s);
    daemon.drop_connections();
    CHECK(code_of([&] { worker.get("a"); }) == DTRUN_CLOSED);
}

TEST_CASE("ranks of another launcher meet in a daemon's store", "[client][daemon][fence]") {
    const FakeServer daemon = FakeServer::daemon(1, kSecret);
    std::vector<Worker> workers;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const DaemonVariables variables(daemon.address(), torch_rank(rank, 3));
        workers.emplace_back();
    }
    CHECK(workers[2].launcher() == "torchrun");
    std::vector<std::vector<std::string>> last(3);
    on_all(3, [&](std::uint32_t rank) {
        for (int round = 0; round < 5; ++round) {
            workers[rank].barrier("b", 5s);
            last[rank] =
                workers[rank].fence("f", std::to_string(rank) + "." + std::to_string(round), 5s);
        }
    });
    for (const auto& all : last) CHECK(all == std::vector<std::string>{"0.4", "1.4", "2.4"});
    CHECK(daemon.saw("enter 0"));
    CHECK(workers[0].list_keys("dtrun/fence/").keys.empty());

    std::vector<int> codes(2);
    on_all(2, [&](std::uint32_t rank) {
        codes[rank] =
            code_of([&] { workers[rank].barrier("lonely", rank == 0 ? Timeout(50ms) : forever); });
    });
    CHECK(codes == std::vector<int>{DTRUN_TIMED_OUT, DTRUN_CANCELLED});
}

TEST_CASE("a member's forked child uses the daemon's store", "[client][daemon][fork]") {
    if (!kCanFork) {
        WARN("SKIPPED: TSan does not follow forks of several threads");
        return;
    }
    const FakeServer daemon = FakeServer::daemon(1, kSecret);
    const DaemonVariables variables(daemon.address());
    Worker worker;
    const pid_t child = ::fork();
    if (child == 0) {
        worker.set("from", "child");
        { const Worker ended = std::move(worker); }
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(worker.get("from", 5s) == "child");
    const auto log = daemon.log();
    CHECK(std::count(log.begin(), log.end(), "leave finished") == 0);
}

}  // namespace dtrun::testing
