#include "launcher/transport/process_channel.h"

#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/temp_dir.h"

#include <sys/wait.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace dtrun {

using namespace transport;
namespace {

/// The end of a program whose output has ended.
asio::awaitable<std::string> ending_of(std::string script, std::chrono::milliseconds patience) {
    const auto executor = co_await asio::this_coro::executor;
    const std::vector<std::string> argv{"/bin/sh", "-c", script};
    auto process = start_process(executor, argv, {"PATH=/usr/bin:/bin"});
    if (!process) co_return process.error().message;
    char bytes[64];
    const auto read = co_await (*process)->read(bytes, Deadline::max());
    if (!read || *read != 0) co_return std::string("it prints");
    const Deadline limit = after(patience);
    std::string ending = co_await (*process)->ending(limit);
    if (co_await (*process)->ending(Clock::now()) != ending)
        co_return std::string("it is forgotten");
    (*process)->signal(SIGKILL);
    co_return ending;
}

std::string run(const std::string& script, std::chrono::milliseconds patience) {
    asio::io_context io(1);
    std::string result;
    asio::co_spawn(io, ending_of(script, patience),
                   [&](std::exception_ptr error, std::string text) {
                       if (error) std::rethrow_exception(error);
                       result = std::move(text);
                   });
    io.run();
    return result;
}

/// Starts what prints its process id, and ends its channel; \return the id.
asio::awaitable<pid_t> end_of(std::string script, std::chrono::milliseconds patience) {
    const auto executor = co_await asio::this_coro::executor;
    const std::vector<std::string> argv{"/bin/sh", "-c", script};
    const auto process = start_process(executor, argv, {"PATH=/usr/bin:/bin"});
    char bytes[64]{};
    const auto read = co_await (*process)->read(bytes, Deadline::max());
    REQUIRE(read.has_value());
    co_await (*process)->end(patience);
    co_return static_cast<pid_t>(std::atoi(bytes));
}

/// Whether a process runs a moment from now: the kernel ends it after kill() has returned. One that has ended
/// may still wait for whoever inherits it.
bool runs(pid_t pid) {
    for (int i = 0; i < 2'000; ++i) {
        std::ifstream file(fmt::format("/proc/{}/stat", pid));
        std::string stat;
        std::getline(file, stat);
        const std::size_t state = stat.rfind(") ");
        if (state == std::string::npos || stat[state + 2] == 'Z') return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

}  // namespace

TEST_CASE("the end of a program is told once it has come, and the loop goes on meanwhile",
          "[process_channel]") {
    const std::chrono::seconds patience{60};
    CHECK(run("exit 3", patience) == "exit status 3");
    CHECK(run("kill -TERM $$", patience) == "signal 15");
    CHECK(run("exec >&- 2>&-; sleep 0.1; exit 4", patience) == "exit status 4");
}

TEST_CASE("a program is busy while it, or what it has started, computes, and not while it waits",
          "[process_channel]") {
    asio::io_context io(1);
    // On a busy machine it may be late to compute, or to begin to wait.
    enum class Comes { to_compute, to_wait };
    const auto does = [&io](Comes to, const std::string& script) {
        const std::vector<std::string> argv{"/bin/sh", "-c", script};
        const auto process = start_process(io.get_executor(), argv, {"PATH=/usr/bin:/bin"});
        REQUIRE(process.has_value());
        char bytes[64];
        const auto read = run_to_end(io, (*process)->read(bytes, Deadline::max()));
        REQUIRE(read.has_value());
        const auto first = (*process)->busy_time();
        auto last = first;
        REQUIRE(first.has_value());
        bool found = false;
        for (int i = 0; i < 100 && !found; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            const auto now = (*process)->busy_time();
            REQUIRE(now.has_value());
            found = to == Comes::to_wait ? *now == *last : *now - *first > std::chrono::seconds(1);
            last = now;
        }
        (*process)->kill();
        return found;
    };
    CHECK(does(Comes::to_wait, "echo; exec sleep 60"));
    CHECK(does(Comes::to_compute, "echo; while :; do :; done"));
    CHECK(does(Comes::to_compute, "(echo; while :; do :; done) & wait"));
}

TEST_CASE("a program that closes its output and lives on is not waited for", "[process_channel]") {
    CHECK(run("exec >&- 2>&-; exec sleep 600", std::chrono::milliseconds(20)) == "");
}

TEST_CASE("a program that reads no end of its input is gone with its channel",
          "[process_channel]") {
    const std::chrono::milliseconds at_once{0};
    asio::io_context io(1);
    CHECK_FALSE(runs(run_to_end(io, end_of("echo $$; exec sleep 600", at_once))));
    // It may be slow to understand, and have children of its own.
    const std::string deaf = "trap '' TERM; sleep 600 & echo $!; wait";
    CHECK_FALSE(runs(run_to_end(io, end_of(deaf, at_once))));
    CHECK_FALSE(runs(run_to_end(io, end_of("sleep 600 & echo $!", std::chrono::seconds(60)))));
}

TEST_CASE("a program that ends with its input is given the time that it needs",
          "[process_channel]") {
    const TempDir place;
    const std::string done = place.path() + "/done";
    const std::string script = "echo $$; cat >&2; sleep 0.1; echo > " + done;
    asio::io_context io(1);
    CHECK_FALSE(runs(run_to_end(io, end_of(script, std::chrono::seconds(60)))));
    CHECK(std::filesystem::exists(done));
}

TEST_CASE("a closed channel tells when its program has ended, and then leaves nothing of it",
          "[process_channel]") {
    asio::io_context io(1);
    const std::vector<std::string> argv{"/bin/sh", "-c", "echo $$; exec cat"};
    auto process = start_process(io.get_executor(), argv, {"PATH=/usr/bin:/bin"});
    REQUIRE(process.has_value());
    char bytes[64]{};
    REQUIRE(run_to_end(io, (*process)->read(bytes, Deadline::max())).has_value());
    const auto pid = static_cast<id_t>(std::atoi(bytes));
    CHECK_FALSE((*process)->is_carried());
    CHECK_FALSE((*process)->has_ended());
    (*process)->close();
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, pid, &ended, WEXITED | WNOWAIT) == 0);
    CHECK((*process)->has_ended());
    process->reset();
    CHECK(::waitid(P_PID, pid, &ended, WEXITED | WNOHANG) != 0);
    const auto ssh = start_process(io.get_executor(), argv, {"PATH=/usr/bin:/bin"}, SIGTERM);
    CHECK((*ssh)->is_carried());
}

}  // namespace dtrun
