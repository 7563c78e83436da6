#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_client/client_support.h"
#include "tests/worker_client/step_support.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>

namespace dtrun::testing {
namespace {

using namespace std::chrono_literals;
using Texts = std::vector<std::string>;

/// A secret for one test, in a file.
class SecretFile {
public:
    explicit SecretFile(const std::string& text = "a secret of this test, and of no other")
        : variables{{"DTRUN_SECRET_FILE", dir_.write("secret", text, 0600)}} {}

private:
    TempDir dir_;

public:
    const FakeStep::Variables variables;
};

/// Tests may run next to each other on one machine.
std::string step_id() {
    static int count = 0;
    return std::to_string(::getpid()) + "." + std::to_string(++count);
}

void say(const std::string& line) {
    FakeStep::say(line);
}

std::string joined(const Texts& texts) {
    std::string all;
    for (const std::string& text : texts) all += (all.empty() ? "" : " ") + text;
    return all;
}

/// What every rank of a healthy step can do.
void exchange(std::uint32_t rank) {
    Worker worker;
    say(std::string(worker.launcher()) + " " + std::to_string(worker.rank()) + " of " +
        std::to_string(worker.world_size()) + ", generation " +
        std::to_string(worker.generation()) + ", job " + std::string(worker.job()));
    for (int round = 0; round < 3; ++round)
        say(joined(worker.fence("names", std::to_string(rank) + "." + std::to_string(round), 10s)));
    if (rank == 1) worker.set("from 1", std::string(1 << 20, 'x'));
    say(std::to_string(worker.get("from 1", 10s).size()));
    worker.add("sum", rank);
    worker.barrier("added", 10s);
    say(worker.get("sum", 0ms));
}

void check_exchange(FakeStep& step, std::uint32_t ranks, const std::string& id) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        CHECK(step.line(rank) == "slurm " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                     ", generation 1, job " + id);
        for (int round = 0; round < 3; ++round) {
            Texts all;
            for (std::uint32_t other = 0; other < ranks; ++other)
                all.push_back(std::to_string(other) + "." + std::to_string(round));
            CHECK(step.line(rank) == joined(all));
        }
        CHECK(step.line(rank) == "1048576");
        CHECK(step.line(rank) == std::to_string(ranks * (ranks - 1) / 2));
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) CHECK(step.ended_well(rank));
}

}  // namespace

TEST_CASE("the ranks of a step meet by themselves, with a secret in a file", "[client][step]") {
    const SecretFile secret;
    const std::string id = step_id();
    FakeStep step(4, id, secret.variables);
    step.start_all(exchange);
    check_exchange(step, 4, id);
}

TEST_CASE("the ranks of a step meet by themselves, with MUNGE", "[client][step][munge]") {
    const Munged munged;
    if (munged.socket().empty()) {
        skip_case("munged is not installed");
        return;
    }
    const std::string id = step_id();
    FakeStep step(4, id, {{"DTRUN_MUNGE_SOCKET", munged.socket()}});
    step.start_all(exchange);
    check_exchange(step, 4, id);
}

TEST_CASE("MUNGE keeps other users out", "[client][step][munge]") {
    const Munged munged;
    if (munged.socket().empty() || ::geteuid() != 0) {
        skip_case("needs munged, and root to become another user");
        return;
    }
    FakeStep step(2, step_id(), {{"DTRUN_MUNGE_SOCKET", munged.socket()}});
    step.start(0, [] { Worker worker(3s); });
    step.start(1, [] {
        if (::setuid(65'534) != 0) ::_exit(9);
        Worker worker(1s);
    });
    CHECK_THAT(step.line(1), Catch::StartsWith(std::to_string(DTRUN_TIMED_OUT)) &&
                                 Catch::Contains("MUNGE: Unauthorized credential"));
    CHECK_THAT(step.line(0), Catch::Contains("rank 1 of 2 has not come within "));
}

TEST_CASE("a server of another user is passed over", "[client][step][munge]") {
    const Munged munged;
    if (munged.socket().empty() || ::geteuid() != 0) {
        skip_case("needs munged, and root to become another user");
        return;
    }
    FakeStep step(2, step_id(), {{"DTRUN_MUNGE_SOCKET", munged.socket()}});
    step.start(0, [] {
        if (::setuid(65'534) != 0) ::_exit(9);
        Worker worker(3s);
    });
    // Root's munged lets root open it; then it says whose it is.
    step.start(1, [] { Worker worker(1s); });
    CHECK_THAT(step.line(1), Catch::Contains("belongs to user 65534") ||
                                 Catch::Contains("Unauthorized credential"));
}

TEST_CASE("without MUNGE and a secret a rank has its place, and is told what to do",
          "[client][step]") {
    FakeStep step(2, step_id(), {});
    step.start(1, [] {
        // As if libmunge were not installed: an empty one of its name is found instead.
        if (::dlopen(EMPTY_LIBMUNGE, RTLD_NOW) == nullptr) ::_exit(9);
        Worker worker;
        say(std::to_string(worker.rank()));
        try {
            worker.set("a", "b");
        } catch (const v0::Error& error) {
            say(error.what());
        }
        worker.barrier("b");
    });
    CHECK(step.line(1) == "1");
    CHECK_THAT(step.line(1), Catch::Contains("cannot meet: MUNGE") &&
                                 Catch::Contains("start the program with dtrun") &&
                                 Catch::Contains("DTRUN_SERVE") &&
                                 Catch::Contains("DTRUN_SECRET_FILE"));
    CHECK_THAT(step.line(1), Catch::StartsWith(std::to_string(DTRUN_NO_LAUNCHER)) &&
                                 Catch::Contains("fence 'b': the ranks of step"));
}

TEST_CASE("a secret's file that is missing or open to others fails init at once",
          "[client][step]") {
    const TempDir dir;
    const std::string open = dir.write("secret", "a secret of this test, and of no other", 0644);
    FakeStep step(2, step_id(), {});
    for (const std::uint32_t rank : {0u, 1u})
        step.start(rank, [] { Worker worker; },
                   {{"DTRUN_SECRET_FILE", rank == 0 ? "/nonexistent/secret" : open}});
    for (const std::uint32_t rank : {0u, 1u})
        CHECK_THAT(step.line(rank), Catch::StartsWith(std::to_string(DTRUN_INVALID)) &&
                                        Catch::Contains("DTRUN_SECRET_FILE"));
}

TEST_CASE("a list of nodes that makes no sense fails init at once", "[client][step]") {
    const SecretFile secret;
    FakeStep step(2, step_id(), secret.variables);
    step.start(1, [] { Worker worker; }, {{"SLURM_STEP_NODELIST", "gpu[3-1]"}});
    CHECK_THAT(step.line(1), Catch::StartsWith(std::to_string(DTRUN_INVALID)) &&
                                 Catch::Contains("SLURM_STEP_NODELIST"));
}

TEST_CASE("a munged that does not answer fails init at once", "[client][step][munge]") {
    const Munged munged;
    if (munged.socket().empty()) {
        skip_case("munged is not installed");
        return;
    }
    FakeStep step(2, step_id(), {{"DTRUN_MUNGE_SOCKET", "/nonexistent/munge.socket"}});
    step.start_all([](std::uint32_t) { Worker worker; });
    for (const std::uint32_t rank : {0u, 1u})
        CHECK_THAT(step.line(rank), Catch::StartsWith(std::to_string(DTRUN_CLOSED)) &&
                                        Catch::Contains("MUNGE") &&
                                        Catch::Contains("DTRUN_SECRET_FILE"));
}

TEST_CASE("rank 0 says at once when it may not have enough descriptors", "[client][step]") {
    const SecretFile secret;
    FakeStep step(2, step_id(), secret.variables);
    step.start(0, [] {
        const rlimit few{64, 100};
        if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(9);
        Worker worker;
    });
    CHECK_THAT(step.line(0), Catch::Contains("needs 130 descriptors to serve 2 ranks, and may have "
                                             "100 at most"));
}

TEST_CASE("rank 0 takes the descriptors that it needs", "[client][step]") {
    const SecretFile secret;
    const std::string id = step_id();
    FakeStep step(2, id, secret.variables);
    step.start(0, [] {
        const rlimit few{64, 200};
        if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(9);
        exchange(0);
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur != 130) ::_exit(8);
    });
    step.start_all(exchange);
    check_exchange(step, 2, id);
}

TEST_CASE("a rank with many large answers under way is not lost", "[client][step]") {
    constexpr std::size_t kBytes = 15u << 20;  // nearly the most that there may be
    constexpr int kThreads = 6;
    const SecretFile secret;
    FakeStep step(3, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        Worker worker;
        std::atomic<int> whole = 0;
        // Of one key when it comes, and of one that is there; small requests in between.
        const auto get_all = [&](const char* key) {
            std::vector<std::thread> threads;
            for (int i = 0; i < kThreads; ++i)
                threads.emplace_back([&, i] {
                    if (worker.get(key).size() == kBytes) ++whole;
                    worker.set(std::to_string(rank) + "." + std::to_string(i), "x");
                });
            if (rank == 0) worker.set(key, std::string(kBytes, 'x'));
            for (std::thread& thread : threads) thread.join();
        };
        get_all("late");
        worker.barrier("there");
        get_all("late");
        worker.barrier("all");
        say(std::to_string(whole));
    });
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        CHECK(step.line(rank) == std::to_string(2 * kThreads));
        CHECK(step.ended_well(rank));
    }
}

TEST_CASE("a rank that is stopped with large answers under way goes on later", "[client][step]") {
    constexpr std::size_t kBytes = 15u << 20;
    const SecretFile secret;
    FakeStep step(2, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        Worker worker;
        if (rank == 0) {
            FakeStep::wait_for_go();
            worker.set("k", std::string(kBytes, 'x'));
            say("set");
            worker.barrier("end", 100s);
            return;
        }
        std::vector<std::thread> threads;
        std::atomic<int> whole = 0;
        for (int i = 0; i < 10; ++i)
            threads.emplace_back([&] {
                if (worker.get("k").size() == kBytes) ++whole;
            });
        std::this_thread::sleep_for(300ms);  // they have asked
        say("asked");
        for (std::thread& thread : threads) thread.join();
        say(std::to_string(whole));
        worker.barrier("end", 100s);
    });
    CHECK(step.line(1) == "asked");
    step.kill(1, SIGSTOP);
    step.go(0);
    CHECK(step.line(0) == "set");
    std::this_thread::sleep_for(1500ms);
    step.kill(1, SIGCONT);
    CHECK(step.line(1) == "10");
    for (std::uint32_t rank = 0; rank < 2; ++rank) CHECK(step.ended_well(rank));
}

TEST_CASE("a rank with another secret is not let in, and missing ranks are named",
          "[client][step]") {
    const SecretFile secret, other("another secret of this test, and of no other");
    FakeStep step(4, step_id(), secret.variables);
    for (const std::uint32_t rank : {0u, 1u}) step.start(rank, [] { Worker worker(2s); });
    step.start(
        2, [] { Worker worker(1s); }, other.variables);
    CHECK_THAT(step.line(2), Catch::StartsWith(std::to_string(DTRUN_TIMED_OUT)) &&
                                 Catch::Contains("it has another secret"));
    CHECK_THAT(step.line(0), Catch::StartsWith(std::to_string(DTRUN_TIMED_OUT)) &&
                                 Catch::Contains("ranks 2 and 3 of 4 have not come within 2."));
    CHECK_THAT(step.line(1), Catch::StartsWith(std::to_string(DTRUN_REFUSED)) &&
                                 Catch::Contains("rank 0: ranks 2 and 3 of 4 have not come"));
}

TEST_CASE("a rank that ends before all have come ends the step", "[client][step]") {
    const SecretFile secret;
    FakeStep step(3, step_id(), secret.variables);
    step.start(0, [] { Worker worker; });
    step.start(1, [] {
        static int asked;
        dtrun_options options{};
        options.size = sizeof options;
        options.timeout_ms = DTRUN_FOREVER;
        options.interrupted = [] { return ++asked == 2 ? 1 : 0; };
        std::string text;
        do {  // until it was interrupted while it waited for the others
            asked = 0;
            dtrun_worker* worker = nullptr;
            if (dtrun_init(&options, &worker) != DTRUN_CANCELLED) ::_exit(9);
            text = dtrun_error_text();
        } while (text.find("not found") != text.npos);
    });
    CHECK(step.ended_well(1));
    CHECK_THAT(step.line(0), Catch::StartsWith(std::to_string(DTRUN_REFUSED)) &&
                                 Catch::Contains("rank 1 has ended before all ranks had come"));
}

TEST_CASE("the others' fences fail when a rank dies, and the store stays", "[client][step]") {
    const SecretFile secret;
    FakeStep step(3, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        Worker worker;
        if (rank == 1) {
            say("here");
            worker.get("never");
        }
        try {
            worker.barrier("lonely");
        } catch (const v0::Error& error) {
            say(error.what());
        }
        worker.add("left", 1);
        while (worker.get("left") != "2") worker.watch("left", 0, 10s);
        say(worker.get("left"));
    });
    CHECK(step.line(1) == "here");
    step.kill(1);
    for (const std::uint32_t rank : {0u, 2u}) {
        CHECK_THAT(step.line(rank),
                   Catch::Contains("fence 'lonely'") &&
                       Catch::Contains("rank 1 has ended without finalizing its worker"));
        CHECK(step.line(rank) == "2");
        CHECK(step.ended_well(rank));
    }
}

TEST_CASE("every call ends when rank 0 dies", "[client][step]") {
    const SecretFile secret;
    FakeStep step(3, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        Worker worker;
        say("here");
        if (rank == 1) worker.get("never");
        worker.barrier("never");
    });
    for (std::uint32_t rank = 0; rank < 3; ++rank) CHECK(step.line(rank) == "here");
    step.kill(0);
    for (const std::uint32_t rank : {1u, 2u})
        CHECK_THAT(step.line(rank),
                   Catch::StartsWith(std::to_string(DTRUN_CLOSED)) &&
                       Catch::Contains("rank 0, which serves the step, has ended"));
}

TEST_CASE("rank 0 serves until the others have finalized", "[client][step]") {
    const SecretFile secret;
    FakeStep step(3, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        {
            Worker worker;
            if (rank == 0) worker.set("k", "v");
            worker.barrier("b", 10s);
            say("met");
            if (rank != 0) FakeStep::wait_for_go();
            if (rank != 0) say(worker.get("k", 0ms));
            if (rank == 1) say(std::to_string(code_of([&] { worker.barrier("c"); })));
        }
        say("finalized");
    });
    for (std::uint32_t rank = 0; rank < 3; ++rank) CHECK(step.line(rank) == "met");
    step.go(1);
    CHECK(step.line(1) == "v");
    CHECK(step.line(1) == std::to_string(DTRUN_CANCELLED));  // rank 0 has finalized
    CHECK(step.line(1) == "finalized");
    step.go(2);
    CHECK(step.line(2) == "v");
    CHECK(step.line(2) == "finalized");
    CHECK(step.line(0) == "finalized");
    for (std::uint32_t rank = 0; rank < 3; ++rank) CHECK(step.ended_well(rank));
}

TEST_CASE("when rank 0 fails it does not wait, and the others hear why", "[client][step]") {
    const SecretFile secret;
    FakeStep step(2, step_id(), secret.variables);
    step.start(0, [] {
        dtrun_worker* worker = nullptr;
        if (dtrun_init(nullptr, &worker) != DTRUN_OK) ::_exit(9);
        dtrun_bytes value{};
        dtrun_get(worker, {"1 waits", 7}, DTRUN_FOREVER, &value);
        dtrun_free(value.data);
        dtrun_finalize(worker, "out of luck");
        say("ended");
    });
    step.start(1, [] {
        Worker worker;
        worker.set("1 waits", "");
        const auto event = worker.next_event(10s);
        say(event ? event->why : "none");
        worker.get("never");
    });
    CHECK(step.line(0) == "ended");
    CHECK(step.line(1) == "rank 0: out of luck");
    CHECK_THAT(step.line(1), Catch::StartsWith(std::to_string(DTRUN_CLOSED)));
}

TEST_CASE("a port that a stranger has taken is passed over", "[client][step]") {
    const SecretFile secret;
    std::string id;
    std::optional<Stranger> silent, talks;
    // Tests beside this one may have the ports of one step or the other.
    for (int tries = 0; tries < 20 && !talks; ++tries) {
        id = step_id();
        const auto ports = ports_of_step(id);
        try {
            silent.emplace(ports[0], "");
            talks.emplace(ports[1], "HTTP/1.1 400 Bad Request\r\n\r\n");
        } catch (const std::runtime_error&) {
            silent.reset();
        }
    }
    REQUIRE(talks);
    FakeStep step(2, id, secret.variables);
    step.start_all(exchange);
    check_exchange(step, 2, id);
}

TEST_CASE("two steps at the same time do not meet", "[client][step]") {
    const SecretFile secret;
    const std::string id = step_id(), other_id = step_id();
    FakeStep step(3, id, secret.variables);
    FakeStep other(3, other_id, secret.variables);
    step.start_all(exchange);
    other.start_all(exchange);
    check_exchange(step, 3, id);
    check_exchange(other, 3, other_id);
}

TEST_CASE("the others wait for a rank 0 that comes late", "[client][step]") {
    const SecretFile secret;
    const std::string id = step_id();
    FakeStep step(3, id, secret.variables);
    for (const std::uint32_t rank : {1u, 2u}) step.start(rank, [=] { exchange(rank); });
    std::this_thread::sleep_for(300ms);  // they find nobody, several times
    step.start_all(exchange);
    check_exchange(step, 3, id);
}

TEST_CASE("rank 0 is found on another node than the first, and only under its own name",
          "[client][step]") {
    const SecretFile secret;
    const std::string id = step_id();
    auto variables = secret.variables;
    // Both names lead to rank 0's host. Who answers as "localhost" must be there.
    variables["SLURM_STEP_NODELIST"] = "localhost,127.0.0.1";
    variables["SLURMD_NODENAME"] = "127.0.0.1";
    FakeStep step(2, id, variables);
    step.start_all(exchange);
    check_exchange(step, 2, id);
}

TEST_CASE("two programs of one step meet one after the other", "[client][step]") {
    const SecretFile secret;
    FakeStep step(3, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        for (const char* name : {"first", "second", "third"}) {
            Worker worker;
            say(joined(worker.fence(name, name + std::to_string(rank), 10s)));
        }
    });
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        for (const std::string name : {"first", "second", "third"})
            CHECK(step.line(rank) == name + "0 " + name + "1 " + name + "2");
        CHECK(step.ended_well(rank));
    }
}

TEST_CASE("garbage and half-open connections do not disturb a step", "[client][step]") {
    const SecretFile secret;
    const std::string id = step_id();
    FakeStep step(2, id, secret.variables);
    step.start(0, [] { exchange(0); });
    int silent = -1;
    while ((silent = connect_to(ports_of_step(id)[0])) < 0) std::this_thread::yield();
    std::vector<int> sockets{silent};
    for (const std::string& text :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1 << 16, '\0'), std::string(56, 'x'),
          std::string("dtrn\0\3\0\0half", 12)}) {
        sockets.push_back(connect_to(ports_of_step(id)[0]));
        CHECK(::send(sockets.back(), text.data(), text.size(), MSG_NOSIGNAL) > 0);
    }
    step.start_all(exchange);
    check_exchange(step, 2, id);
    // They have got the greeting, at most, and are cut off.
    for (const int socket : sockets) {
        char bytes[4096];
        while (::recv(socket, bytes, sizeof bytes, 0) > 0) {
        }
        ::close(socket);
    }
}

TEST_CASE("a rank's forked children do not hide its end", "[client][step][fork]") {
    const SecretFile secret;
    FakeStep step(3, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        Worker worker;
        worker.barrier("all", 10s);
        if (rank != 2) {
            const pid_t child = ::fork();
            if (child == 0) {
                FakeStep::wait_for_go();  // for ever
                ::_exit(0);
            }
            say(std::to_string(child));
            worker.get("never");
        }
        try {
            worker.barrier("a");
        } catch (const v0::Error& error) {
            say(error.what());
        }
        worker.get("never");
    });
    const pid_t children[] = {std::stoi(step.line(0)), std::stoi(step.line(1))};
    step.kill(1);
    CHECK_THAT(step.line(2), Catch::Contains("rank 1 has ended"));
    step.kill(0);
    CHECK_THAT(step.line(2), Catch::StartsWith(std::to_string(DTRUN_CLOSED)));
    for (const pid_t child : children) ::kill(child, SIGKILL);
}

TEST_CASE("a forked child of a step's rank uses the store", "[client][step][fork]") {
    if (!kCanFork) {
        WARN("SKIPPED: TSan does not follow forks of several threads");
        return;
    }
    const SecretFile secret;
    FakeStep step(2, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        Worker worker;
        worker.barrier("all", 10s);
        const pid_t child = ::fork();
        if (child == 0) {
            worker.add("children", 1);
            ::_exit(code_of([&] { worker.barrier("b"); }) == DTRUN_FORKED ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        say(std::to_string(status));
        worker.barrier("still ranks", 10s);
        say(worker.get("children") + " of rank " + std::to_string(rank));
    });
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        CHECK(step.line(rank) == "0");
        CHECK(step.line(rank) == "2 of rank " + std::to_string(rank));
        CHECK(step.ended_well(rank));
    }
}

TEST_CASE("a forked child's first call ends soon when rank 0 is gone", "[client][step][fork]") {
    if (!kCanFork) {
        WARN("SKIPPED: TSan does not follow forks of several threads");
        return;
    }
    const SecretFile secret;
    FakeStep step(2, step_id(), secret.variables);
    step.start_all([](std::uint32_t rank) {
        Worker worker;
        worker.barrier("all", 10s);
        say("here");
        if (rank == 0) worker.get("never");
        FakeStep::wait_for_go();
        const pid_t child = ::fork();
        if (child == 0) {
            const auto begun = std::chrono::steady_clock::now();
            std::array<int, 4> codes{};
            std::vector<std::thread> threads;
            for (std::size_t i = 0; i < codes.size(); ++i)
                threads.emplace_back([&, i] {
                    codes[i] = code_of([&] {
                        if (i % 2 == 0)
                            worker.get("never");
                        else
                            worker.get("never", 100ms);
                    });
                });
            for (std::thread& thread : threads) thread.join();
            // Two had the time to find out, the others had none.
            const bool closed = std::ranges::count(codes, DTRUN_CLOSED) == 2 &&
                                std::ranges::count(codes, DTRUN_TIMED_OUT) == 2;
            const bool soon = std::chrono::steady_clock::now() - begun < 9s;
            ::_exit(closed && soon ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        say(std::to_string(status));
    });
    for (const std::uint32_t rank : {0u, 1u}) CHECK(step.line(rank) == "here");
    step.kill(0);
    step.go(1);
    CHECK(step.line(1) == "0");
}

TEST_CASE("a step of one rank needs nobody", "[client][step]") {
    FakeStep step(1, step_id(), {});
    step.start(0, [] {
        Worker worker;
        say(std::string(worker.launcher()) + " " + joined(worker.fence("f", "mine")));
        say(std::to_string(code_of([&] { worker.set("a", "b"); })));
    });
    CHECK(step.line(0) == "slurm mine");
    CHECK(step.line(0) == std::to_string(DTRUN_NO_LAUNCHER));
}

}  // namespace dtrun::testing
