#include "base/loop/task_group.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"
#include "worker/ranks/health_check.h"
#include "worker/ranks/supervisor.h"

#include <optional>
#include <string>

namespace dtrun {

using namespace ranks;
namespace {

/// What comes of a command for the shell.
Result<void> check(const std::string& script,
                   std::chrono::seconds limit = std::chrono::seconds(9)) {
    asio::io_context io;
    Supervisor supervisor(
        io.get_executor(), [](const Exited&) {}, [](const std::string&) {});
    RankCommand command{"/bin/sh", {"sh", "-c", script}, {"PATH=/bin:/usr/bin"}, "/"};
    std::optional<Result<void>> result;
    asio::co_spawn(io, check_health(supervisor, std::move(command), limit),
                   [&](std::exception_ptr, Result<void> done) {
                       result = std::move(done);
                       io.stop();
                   });
    io.run_for(std::chrono::seconds(10));
    REQUIRE(result.has_value());
    return *result;
}

std::string complaint(const std::string& script,
                      std::chrono::seconds limit = std::chrono::seconds(9)) {
    const auto result = check(script, limit);
    REQUIRE_FALSE(result.has_value());
    return result.error().message;
}

}  // namespace

TEST_CASE("a host is healthy if the command ends with 0, whatever it prints", "[health]") {
    CHECK(check("exit 0").has_value());
    CHECK(check("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2").has_value());
    CHECK(check("cat").has_value());                // there is no input
    CHECK(check("sleep 60 & exit 0").has_value());  // which holds its output open
}

TEST_CASE("a command that fails is quoted with the last line of its standard error", "[health]") {
    CHECK(complaint("echo first >&2; echo 'GPU 2 is lost' >&2; echo >&2; echo out; exit 3") ==
          "--health-check: ended with exit code 3: GPU 2 is lost");
    CHECK(complaint("exit 1") == "--health-check: ended with exit code 1");
    CHECK(complaint("printf unended >&2; kill -9 $$") ==
          "--health-check: was ended by signal 9 (SIGKILL): unended");
}

TEST_CASE("a command that does not end is killed at the limit", "[health]") {
    CHECK(complaint("echo 'still looking' >&2; sleep 60", std::chrono::seconds(1)) ==
          "--health-check: has not ended within 1 s: still looking");
}

}  // namespace dtrun
