#include "tests/support/loop.h"
#include "worker/process_tree.h"
#include "worker/supervisor.h"

#include <sys/prctl.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <csignal>

namespace dtrun {
namespace {

/// A supervisor and what it reported.
struct Bench {
    Bench() : supervisor(io.get_executor(), [this](const Exited& e) { exits.push_back(e); }) {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    }
    std::vector<Supervisor::Start> start(const std::vector<std::string>& scripts) {
        std::vector<Supervisor::Request> requests;
        for (std::uint32_t rank = 0; rank < scripts.size(); ++rank)
            requests.push_back(
                {1,
                 rank,
                 {"/bin/sh", {"sh", "-c", scripts[rank]}, {"PATH=/bin:/usr/bin"}, "/", false}});
        return supervisor.start(std::move(requests));
    }
    /// Runs the loop until `done` holds, at most ten seconds.
    void run_until(auto done) {
        const auto deadline = Clock::now() + std::chrono::seconds(10);
        io.restart();
        while (!done() && Clock::now() < deadline) io.run_one_for(std::chrono::milliseconds(100));
        REQUIRE(done());
    }
    std::optional<int> stop(int signal, std::chrono::milliseconds grace) {
        std::optional<int> strays;
        supervisor.stop_all(signal, grace, [&](int count) { strays = count; });
        run_until([&] { return strays.has_value(); });
        return strays;
    }
    asio::io_context io;
    std::vector<Exited> exits;
    Supervisor supervisor;
};

}  // namespace

TEST_CASE("each rank's end is reported once, with its code or signal", "[supervisor]") {
    Bench bench;
    const auto starts = bench.start({"exit 0", "exit 3", "kill -SEGV $$"});
    bench.run_until([&] { return bench.exits.size() == 3; });
    for (const Exited& exited : bench.exits) {
        CHECK(exited.pid == starts[exited.rank].pid);
        CHECK(exited.code == (exited.rank == 1 ? 3 : 0));
        CHECK(exited.signal == (exited.rank == 2 ? SIGSEGV : 0));
        CHECK(exited.sent_signal == 0);
        CHECK(exited.ran_ns > 0);
    }
    CHECK_FALSE(bench.supervisor.running());
    CHECK(bench.stop(SIGTERM, std::chrono::seconds(5)) == 0);
}

TEST_CASE("a rank that ends on TERM is a victim, one that ignores it is killed after the grace",
          "[supervisor]") {
    Bench bench;
    const auto starts = bench.start({"sleep 60", "trap '' TERM; while :; do sleep 1; done"});
    const auto before = Clock::now();
    ::usleep(100'000);  // until the trap is set
    bench.stop(SIGTERM, std::chrono::milliseconds(400));
    CHECK(Clock::now() - before < std::chrono::seconds(4));
    REQUIRE(bench.exits.size() == 2);
    for (const Exited& exited : bench.exits) {
        CHECK(exited.signal == (exited.rank == 0 ? SIGTERM : SIGKILL));
        CHECK(exited.sent_signal == exited.signal);
    }
}

TEST_CASE("what a rank left behind ends with the job, a stopped process included", "[supervisor]") {
    Bench bench;
    const auto starts =
        bench.start({"(setsid sleep 60 &); (setsid sh -c 'kill -STOP $$' &); exit 0"});
    bench.run_until([&] { return bench.exits.size() == 1; });
    CHECK(bench.stop(SIGTERM, std::chrono::seconds(5)).value() >= 1);
    CHECK(descendants(::getpid()).empty());
}

TEST_CASE("a second order to end shortens the grace", "[supervisor]") {
    Bench bench;
    const auto starts = bench.start({"trap '' TERM; while :; do sleep 1; done"});
    ::usleep(100'000);
    std::optional<int> strays;
    bench.supervisor.stop_all(SIGTERM, std::chrono::seconds(60),
                              [&](int count) { strays = count; });
    bench.io.restart();
    bench.io.run_for(std::chrono::milliseconds(50));
    CHECK_FALSE(strays.has_value());
    bench.supervisor.stop_all(SIGKILL, std::chrono::milliseconds(0), {});
    bench.run_until([&] { return strays.has_value(); });
    CHECK(bench.exits.front().signal == SIGKILL);
}

TEST_CASE("what a scheduler has sent to ranks they do not get again", "[supervisor]") {
    Bench bench;
    // Two signals would make it exit with 2.
    const char* counts =
        "n=0; trap 'n=$((n+1))' TERM; echo ready; "
        "i=0; while [ $i -lt 30 ]; do sleep 0.02; i=$((i+1)); done; exit $n";
    auto starts = bench.start({counts, "sleep 9"});
    char ready[6];
    bool is_ready = false;
    bench.run_until([&] {
        return is_ready = is_ready || ::read(starts[0].out.get(), ready, sizeof ready) == 6;
    });
    for (const auto& start : starts) ::kill(-start.pid, SIGTERM);
    bench.supervisor.signalled(SIGTERM);
    bench.stop(SIGTERM, std::chrono::seconds(5));
    REQUIRE(bench.exits.size() == 2);
    for (const Exited& exited : bench.exits) {
        CHECK(exited.sent_signal == SIGTERM);
        CHECK(exited.code == (exited.rank == 0 ? 1 : 0));
    }
}

}  // namespace dtrun
