#include "base/fd.h"
#include "base/strings.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"
#include "tests/support/held_program.h"
#include "tests/support/loop.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"
#include "worker/ranks/process_tree.h"
#include "worker/ranks/supervisor.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <climits>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>

namespace dtrun {

using namespace ranks;
namespace {

/// A supervisor and what it reported.
struct Bench {
    Bench()
        : supervisor(
              io.get_executor(), [this](const Exited& e) { exits.push_back(e); },
              [this](const std::string& text) { said += text; }) {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    }
    void start(std::uint32_t rank, RankCommand command) {
        supervisor.start({1, Rank{rank}, SlotIndex{rank}, std::move(command)},
                         [this](Supervisor::Start start) { starts.push_back(std::move(start)); });
    }
    /// Starts them all, and waits for them to have executed the shell.
    std::vector<Supervisor::Start> start(const std::vector<std::string>& scripts) {
        for (std::uint32_t rank = 0; rank < scripts.size(); ++rank)
            start(rank,
                  {"/bin/sh", {"sh", "-c", scripts[rank]}, {"PATH=/bin:/usr/bin"}, "/", false});
        run_until([&] { return starts.size() == scripts.size(); });
        std::ranges::sort(starts, {}, &Supervisor::Start::rank);
        return std::move(starts);
    }
    void run_until(auto done) { REQUIRE(runs_until(io, done)); }
    /// Until its script has said so.
    void run_until_ready(const Supervisor::Start& start) {
        char ready[6];
        bool is_ready = false;
        run_until([&] {
            return is_ready = is_ready || ::read(start.out.get(), ready, sizeof ready) == 6;
        });
    }
    std::optional<int> stop(int signal, std::chrono::milliseconds grace) {
        std::optional<int> orphans;
        supervisor.stop_all(signal, grace, [&](int count) { orphans = count; });
        run_until([&] { return orphans.has_value(); });
        return orphans;
    }
    asio::io_context io;
    std::vector<Exited> exits;
    std::string said;
    std::vector<Supervisor::Start> starts;
    Supervisor supervisor;
};

/// A process that does not end before let_go(), whatever it is sent: another one holds it.
class Unkillable {
public:
    explicit Unkillable(pid_t pid) {
        Pipe held = make_pipe().value();
        Pipe hold = make_pipe().value();
        holder_ = ::fork();
        if (holder_ == 0) {
            hold.write.reset();
            sigset_t all;
            sigfillset(&all);
            sigprocmask(SIG_SETMASK, &all, nullptr);
            const bool done = ::ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXIT) == 0;
            const ssize_t told = ::write(held.write.get(), &done, 1);
            char byte;
            ::_exit(told == 1 && ::read(hold.read.get(), &byte, 1) == 0 ? 0 : 1);
        }
        held.write.reset();
        hold_ = std::move(hold.write);
        bool done = false;
        held_ = ::read(held.read.get(), &done, 1) == 1 && done;
    }
    explicit operator bool() const { return held_; }
    pid_t holder() const { return holder_; }
    void let_go() { hold_.reset(); }

private:
    pid_t holder_ = 0;
    Fd hold_;
    bool held_ = false;
};

}  // namespace

TEST_CASE("each rank's end is reported once, with its code or signal", "[supervisor]") {
    Bench bench;
    const auto starts = bench.start({"exit 0", "exit 3", "kill -SEGV $$"});
    bench.run_until([&] { return bench.exits.size() == 3; });
    for (const Exited& exited : bench.exits) {
        CHECK(exited.pid == starts[std::to_underlying(exited.rank)].pid);
        CHECK(exited.code == (exited.rank == Rank{1} ? 3 : 0));
        CHECK(exited.signal == (exited.rank == Rank{2} ? SIGSEGV : 0));
        CHECK(exited.sent_signal == 0);
        CHECK(exited.ran_ns > 0);
    }
    CHECK_FALSE(bench.supervisor.running());
    CHECK(bench.stop(SIGTERM, std::chrono::seconds(5)) == 0);
}

TEST_CASE("what a rank that fails has started ends before its place is used again, and no other's",
          "[supervisor]") {
    const TempDir dir;
    Bench bench;
    bench.supervisor.clear_places();
    // Each starts a process in its group, and one that has left it in every way.
    const auto script = [&dir](const char* slot, const char* rest) {
        const std::string file = dir.at(std::string("daemon") + slot);
        return fmt::format(
            "sleep 60 & echo $! >{0}.child; (setsid sh -c 'echo $$ >{0}; exec sleep 60' &); "
            "until [ -s {0} ]; do sleep 0.01; done; echo up >{0}.up; {1}",
            file, rest);
    };
    for (std::uint32_t slot : {0, 1}) {
        const std::string name = std::to_string(slot);
        const std::string text = script(name.c_str(), slot == 0 ? "kill -KILL $$" : "wait");
        bench.start(slot, {"/bin/sh",
                           {"sh", "-c", text},
                           {"PATH=/bin:/usr/bin", "DTRUN_AGENT=3", "DTRUN_SLOT=" + name},
                           "/",
                           false});
    }
    const auto lives = [&dir](const char* file) {
        const std::string text = read_file(dir.at(file)).value();
        const auto pid = static_cast<pid_t>(to_int(trim(text), 1, INT_MAX).value());
        const std::vector<pid_t> all = descendants(::getpid());
        return std::ranges::find(all, pid) != all.end();
    };
    bench.run_until(
        [&] { return bench.exits.size() == 1 && std::filesystem::exists(dir.at("daemon1.up")); });
    bool cleared = false;
    asio::co_spawn(bench.io, bench.supervisor.cleared(SlotIndex{0}),
                   [&](std::exception_ptr) { cleared = true; });
    bench.run_until([&] { return cleared; });
    CHECK_FALSE(lives("daemon0"));
    CHECK_FALSE(lives("daemon0.child"));
    CHECK(lives("daemon1"));
    CHECK(lives("daemon1.child"));
    CHECK(bench.stop(SIGKILL, std::chrono::seconds(0)).has_value());
}

TEST_CASE("a rank whose program takes long to be executed holds up nobody", "[supervisor]") {
    const TempDir dir;
    Bench bench;
    std::optional<HeldProgram> held(dir);
    bench.start(0, {held->path, {"held"}, {}, "/", false});
    bench.start(1, {"/bin/true", {"true"}, {}, "/", false});
    bench.run_until([&] { return bench.exits.size() == 1; });
    REQUIRE(bench.starts.size() == 1);
    CHECK(bench.starts.front().rank == Rank{1});
    CHECK(bench.exits.front().rank == Rank{1});
    held.reset();
    bench.run_until([&] { return bench.exits.size() == 2; });
    REQUIRE(bench.starts.size() == 2);
    CHECK(bench.starts.back().executed.has_value());
    CHECK(bench.exits.back().code == 0);
}

TEST_CASE("a rank that has not executed its program yet ends with the others", "[supervisor]") {
    const TempDir dir;
    Bench bench;
    const HeldProgram held(dir);
    for (const bool own_session : {false, true})
        bench.start(own_session, {held.path, {"held"}, {}, "/", false, -1, own_session});
    bench.stop(SIGTERM, std::chrono::milliseconds(100));
    CHECK(bench.starts.size() == 2);
    REQUIRE(bench.exits.size() == 2);
    for (const Exited& exited : bench.exits) {
        CHECK(exited.signal == exited.sent_signal);
        CHECK(exited.sent_signal != 0);
    }
}

TEST_CASE("what cannot be executed is told before it is over, and has no end of its own",
          "[supervisor]") {
    Bench bench;
    bench.start(0, {"/no/such/program", {"x"}, {}, "/", false});
    bench.run_until([&] { return bench.starts.size() == 1; });
    CHECK(bench.starts.front().executed.error().code == Errc::not_found);
    bench.run_until([] { return descendants(::getpid()).empty(); });
    CHECK(bench.stop(SIGTERM, std::chrono::seconds(5)) == 0);
    CHECK(bench.exits.empty());
}

TEST_CASE("a rank that ends on TERM is a victim, one that ignores it is killed after the grace",
          "[supervisor]") {
    Bench bench;
    const auto starts =
        bench.start({"sleep 60", "trap '' TERM; echo ready; while :; do sleep 1; done"});
    bench.run_until_ready(starts[1]);
    const auto before = Clock::now();
    bench.stop(SIGTERM, std::chrono::milliseconds(400));
    CHECK(Clock::now() - before < std::chrono::seconds(4));
    REQUIRE(bench.exits.size() == 2);
    for (const Exited& exited : bench.exits) {
        CHECK(exited.signal == (exited.rank == Rank{0} ? SIGTERM : SIGKILL));
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

TEST_CASE(
    "a rank that has ended by itself was not ended by an order that came before that was seen",
    "[supervisor]") {
    Bench bench;
    for (const std::uint32_t rank : {0u, 1u})
        bench.start(rank, {"/bin/sh", {"sh", "-c", "read x; exit 3"}, {}, "/", true});
    bench.run_until([&] { return bench.starts.size() == 2; });
    std::ranges::sort(bench.starts, {}, &Supervisor::Start::rank);
    bench.starts[0].in.reset();
    siginfo_t ended{};
    const auto pid = static_cast<id_t>(bench.starts[0].pid);
    int waited = 0;
    do {
        waited = ::waitid(P_PID, pid, &ended, WEXITED | WNOWAIT);
    } while (waited != 0 && errno == EINTR);
    REQUIRE(waited == 0);
    bench.stop(SIGTERM, std::chrono::seconds(5));
    REQUIRE(bench.exits.size() == 2);
    CHECK(bench.exits[0].code == 3);
    CHECK(bench.exits[0].sent_signal == 0);
    CHECK(bench.exits[1].sent_signal == SIGTERM);
}

TEST_CASE("a rank that is ending by itself when the order comes was not ended by it",
          "[supervisor]") {
    Bench bench;
    // What it has in memory takes its time to go, and nothing can be sent to it any more.
    const auto starts = bench.start(
        {"exec /usr/bin/python3 -S -c 'import os; much = bytearray(b\"x\") * (256 << 20); "
         "os.write(1, b\"ready\\n\"); os._exit(3)'",
         "sleep 60"});
    bench.run_until_ready(starts[0]);
    while (bench.exits.empty() && !is_ending(starts[0].pid)) ::usleep(100);
    CHECK_FALSE(is_ending(starts[1].pid));
    bench.stop(SIGTERM, std::chrono::seconds(30));
    REQUIRE(bench.exits.size() == 2);
    for (const Exited& exited : bench.exits) {
        CHECK(exited.code == (exited.rank == Rank{0} ? 3 : 0));
        CHECK(exited.sent_signal == (exited.rank == Rank{0} ? 0 : SIGTERM));
    }
}

TEST_CASE("what is killed together with its rank was not left behind by it", "[supervisor]") {
    Bench bench;
    bench.start({"for i in $(seq 60); do sleep 60 & done; wait"});
    bench.run_until([] { return descendants(::getpid()).size() == 61; });
    CHECK(bench.stop(SIGKILL, std::chrono::milliseconds(0)) == 0);
    CHECK(descendants(::getpid()).empty());
}

TEST_CASE("a helper and what it has started outlive the ranks, until the job ends",
          "[supervisor]") {
    Bench bench;
    std::optional<int> status;
    const RankCommand command{
        "/bin/sh", {"sh", "-c", "sleep 60 & wait"}, {"PATH=/bin:/usr/bin"}, "/"};
    const auto helper = bench.supervisor.start_helper(command, [&](int ended) { status = ended; });
    REQUIRE(helper.has_value());
    bench.run_until([] { return descendants(::getpid()).size() == 2; });
    bench.start({"sleep 60 & wait"});
    CHECK(bench.stop(SIGKILL, std::chrono::milliseconds(0)) == 0);
    CHECK(bench.exits.size() == 1);
    CHECK_FALSE(status.has_value());
    CHECK(descendants(::getpid()).size() == 2);
    bench.supervisor.retire();
    CHECK(bench.stop(SIGKILL, std::chrono::milliseconds(0)) == 0);
    bench.run_until([&] { return status.has_value(); });
    CHECK(WTERMSIG(*status) == SIGKILL);
    CHECK(descendants(::getpid()).empty());
    CHECK(bench.exits.size() == 1);
}

TEST_CASE("a helper that is adopted ends as a rank", "[supervisor]") {
    Bench bench;
    bool ended = false;
    const RankCommand command{"/bin/sh", {"sh", "-c", "read x; exit 5"}, {}, "/", true};
    auto helper = bench.supervisor.start_helper(command, [&](int) { ended = true; });
    REQUIRE(helper.has_value());
    REQUIRE(bench.supervisor.adopt(helper->pid, {7, Rank{3}, SlotIndex{1}, command}));
    CHECK_FALSE(bench.supervisor.adopt(helper->pid, {7, Rank{4}, SlotIndex{2}, command}));
    helper->in.reset();
    bench.run_until([&] { return bench.exits.size() == 1; });
    CHECK(bench.exits.front().code == 5);
    CHECK(bench.exits.front().rank == Rank{3});
    CHECK(bench.exits.front().place == SlotIndex{1});
    CHECK(bench.exits.front().generation == 7);
    CHECK_FALSE(ended);
}

TEST_CASE("a process that KILL does not end keeps nobody else waiting", "[supervisor]") {
    Bench bench;
    bench.start({"sleep 60 & exit 0"});
    bench.run_until([&] { return bench.exits.size() == 1; });
    const std::vector<pid_t> left = descendants(::getpid());
    REQUIRE(left.size() == 1);
    Unkillable held(left.front());
    if (!held) {
        skip_case("ptrace is not permitted");
        return;
    }
    bench.supervisor.spare(held.holder());
    int turns = 0;
    Timer turn(bench.io);
    std::function<void(boost::system::error_code)> next = [&](boost::system::error_code error) {
        if (error) return;
        if (++turns >= 20) held.let_go();
        turn.expires_after(std::chrono::milliseconds(5));
        turn.async_wait(next);
    };
    next({});
    CHECK(bench.stop(SIGTERM, std::chrono::milliseconds(0)) == 1);
    CHECK(turns >= 20);
    turn.cancel();
    bench.io.poll();
}

TEST_CASE("a rank that KILL does not end is named", "[supervisor]") {
    Bench bench;
    const auto starts = bench.start({"sleep 60"});
    Unkillable held(starts.front().pid);
    if (!held) {
        skip_case("ptrace is not permitted");
        return;
    }
    bench.supervisor.spare(held.holder());
    std::optional<int> orphans;
    bench.supervisor.stop_all(SIGTERM, std::chrono::milliseconds(10),
                              [&](int count) { orphans = count; });
    bench.run_until([&] { return !bench.said.empty(); });
    CHECK(bench.said.ends_with(fmt::format(": rank 0 (pid {})", starts.front().pid)));
    CHECK_FALSE(orphans.has_value());
    held.let_go();
    bench.run_until([&] { return orphans.has_value(); });
    CHECK(bench.exits.front().signal == SIGKILL);
}

TEST_CASE("a second order to end shortens the grace", "[supervisor]") {
    Bench bench;
    const auto starts = bench.start({"trap '' TERM; echo ready; while :; do sleep 1; done"});
    bench.run_until_ready(starts[0]);
    std::optional<int> orphans;
    bench.supervisor.stop_all(SIGTERM, std::chrono::seconds(60),
                              [&](int count) { orphans = count; });
    bench.io.restart();
    bench.io.run_for(std::chrono::milliseconds(50));
    CHECK_FALSE(orphans.has_value());
    bench.supervisor.stop_all(SIGKILL, std::chrono::milliseconds(0), {});
    bench.run_until([&] { return orphans.has_value(); });
    CHECK(bench.exits.front().signal == SIGKILL);
}

TEST_CASE("what a scheduler has sent to ranks they do not get again", "[supervisor]") {
    Bench bench;
    // Two signals would make it exit with 2.
    const char* counts =
        "n=0; trap 'n=$((n+1))' TERM; echo ready; "
        "i=0; while [ $i -lt 30 ]; do sleep 0.02; i=$((i+1)); done; exit $n";
    auto starts = bench.start({counts, "sleep 9"});
    bench.run_until_ready(starts[0]);
    for (const auto& start : starts) ::kill(-start.pid, SIGTERM);
    bench.supervisor.signalled(SIGTERM);
    bench.stop(SIGTERM, std::chrono::seconds(5));
    REQUIRE(bench.exits.size() == 2);
    for (const Exited& exited : bench.exits) {
        CHECK(exited.sent_signal == SIGTERM);
        CHECK(exited.code == (exited.rank == Rank{0} ? 1 : 0));
    }
}

}  // namespace dtrun
