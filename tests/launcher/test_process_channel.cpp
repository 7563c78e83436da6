#include "launcher/transport/process_channel.h"

#include <catch2/catch.hpp>
#include <csignal>

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

}  // namespace

TEST_CASE("the end of a program is told once it has come, and the loop goes on meanwhile",
          "[process_channel]") {
    const std::chrono::seconds patience{60};
    CHECK(run("exit 3", patience) == "exit status 3");
    CHECK(run("kill -TERM $$", patience) == "signal 15");
    CHECK(run("exec >&- 2>&-; sleep 0.1; exit 4", patience) == "exit status 4");
}

TEST_CASE("a program that closes its output and lives on is not waited for", "[process_channel]") {
    CHECK(run("exec >&- 2>&-; exec sleep 600", std::chrono::milliseconds(20)) == "");
}

}  // namespace dtrun
