#include "base/clock.h"
#include "base/fd.h"
#include "base/process/command_output.h"
#include "base/strings.h"
#include "tests/support/catch.h"

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <thread>

namespace dtrun {

namespace {

using namespace std::chrono_literals;
using Catch::Equals;

Result<CommandOutput> output_of_shell(const std::string& script,
                                      std::chrono::milliseconds limit = 10s) {
    return command_output({"sh", "-c", script}, Captured::both, limit);
}

/// Whether a process that is not our child has ended, or does so soon.
bool ends(std::string_view pid) {
    const std::string file = fmt::format("/proc/{}/stat", trim(pid));
    for (const Deadline deadline = after(10s); Clock::now() < deadline;
         std::this_thread::sleep_for(5ms)) {
        const auto stat = read_file(file);
        if (!stat || stat->find(") Z ") != std::string::npos) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("a command's output and exit code are its own", "[command_output]") {
    const auto ended = output_of_shell("cat; echo out; echo errors >&2; exit 3");
    REQUIRE(ended.has_value());
    CHECK(ended->text == "out\nerrors\n");
    CHECK(ended->status == 3);
    CHECK(output_of_shell("kill -9 $$")->status == 137);
    CHECK(output_of_shell("exec >&- 2>&-; sleep 0.1; exit 4")->status == 4);
    CHECK(command_output({"/nonexist"}, Captured::out).error().code == Errc::not_found);
}

TEST_CASE("a command that closes its output and lives on is ended in time", "[command_output]") {
    const auto ended = output_of_shell("exec >&- 2>&-; exec sleep 300", 200ms);
    REQUIRE_FALSE(ended.has_value());
    CHECK(ended.error().code == Errc::timed_out);
    CHECK_THAT(ended.error().message, Equals("sh: no answer within 0.2 s"));
}

TEST_CASE("children of a command do not outlive it", "[command_output]") {
    const auto ended = output_of_shell("sleep 300 >&- 2>&- & echo $!");
    REQUIRE(ended.has_value());
    CHECK(ends(ended->text));
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    const std::string told =
        fmt::format("sleep 300 & echo $! >/proc/{}/fd/{}; wait", ::getpid(), pipe->write.get());
    CHECK(output_of_shell(told, 500ms).error().code == Errc::timed_out);
    char pid[32] = {};
    REQUIRE(::read(pipe->read.get(), pid, sizeof pid - 1) > 0);
    CHECK(ends(pid));
}

TEST_CASE("a signal that ends us ends the command first", "[command_output]") {
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    const std::string script =
        fmt::format("echo $$ >/proc/{}/fd/{}; exec sleep 300", ::getpid(), pipe->write.get());
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGTERM, SIG_DFL);
        (void)output_of_shell(script);
        ::_exit(1);
    }
    char pid[32] = {};
    REQUIRE(::read(pipe->read.get(), pid, sizeof pid - 1) > 0);
    ::kill(child, SIGTERM);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM));
    CHECK(ends(pid));
}

}  // namespace dtrun
