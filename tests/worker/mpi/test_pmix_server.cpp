// The server of PMIx with its process, as far as that goes without libpmix.
#include "rendezvous/wire/modes.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/worker/mpi/pmix_hosts.h"

#include <sys/wait.h>
#include <csignal>

using namespace dtrun;
using Catch::Contains;

namespace {

struct Here {
    explicit Here(const std::string& library) : hosts(io, {2}, library) {
        hosts.make_directories();
        REQUIRE(hosts.open().has_value());
    }
    ~Here() {
        hosts.stop();
        run_to_end(io, joined());
        for (const pid_t pid : hosts.pids) CHECK(::waitpid(pid, nullptr, 0) == pid);
    }
    asio::awaitable<bool> joined() {
        co_await hosts.join();
        co_return true;
    }
    void begin(MpiMode mode = MpiMode::automatic) { hosts.begin(mode, "c0ffee"); }
    Error prepared() {
        const auto result = run_to_end(io, hosts.prepare(1));
        REQUIRE_FALSE(result.has_value());
        return result.error();
    }
    /// As a rank does, until the server closes.
    void ask() { run_to_end(io, closed()); }
    asio::awaitable<bool> closed() {
        tcp::socket socket(io);
        co_await speak(socket);
        char byte = 0;
        const auto buffer = asio::buffer(&byte, 1);
        const auto [error, size] = co_await socket.async_read_some(buffer, use_tuple);
        co_return bool(error);
    }
    /// As one who goes at once.
    asio::awaitable<bool> poke() {
        tcp::socket socket(io);
        co_await speak(socket);
        co_return true;
    }
    asio::awaitable<void> speak(tcp::socket& socket) {
        std::string port;
        for (const auto& [name, value] : hosts.server(0).variables(0))
            if (name == "PMIX_SERVER_URI41") port = value.substr(value.rfind(':') + 1);
        const tcp::endpoint endpoint(asio::ip::address_v4::loopback(),
                                     static_cast<std::uint16_t>(std::stoi(port)));
        co_await socket.async_connect(endpoint, use_tuple);
        const char byte = 0;
        const auto buffer = asio::buffer(&byte, 1);
        co_await asio::async_write(socket, buffer, use_tuple);
    }
    void end() {
        bool gone = false;
        hosts.end([&] {
            gone = true;
            io.stop();
        });
        io.restart();
        io.run_for(std::chrono::seconds(10));
        CHECK(gone);
    }
    std::vector<std::string>& events() { return hosts.mpi.events; }

    asio::io_context io;
    PmixHosts hosts;
};

}  // namespace

TEST_CASE("without libpmix, whoever asks for PMIx is refused and told what to install",
          "[mpi][pmix]") {
    Here here("/nowhere/libpmix.so.2");
    here.begin();
    CHECK(here.events().empty());
    here.ask();
    here.ask();
    REQUIRE(here.events().size() == 1);
    CHECK_THAT(here.events()[0], Contains("/nowhere/libpmix.so.2: cannot open") &&
                                     Contains("libpmix2") && Contains("--mpi"));
    CHECK(here.hosts.pids.size() == 1);
    here.end();
}

TEST_CASE("who prepares for PMIx learns at once that there is no libpmix", "[mpi][pmix]") {
    Here here("/nowhere/libpmix.so.2");
    const Error error = here.prepared();
    CHECK(error.code == Errc::not_found);
    CHECK_THAT(error.message, Contains("libpmix2"));
    CHECK(here.events().empty());
}

#ifdef DTRUN_OLD_LIBPMIX
TEST_CASE("a libpmix of version 3 is refused, by its name", "[mpi][pmix]") {
    Here here(DTRUN_OLD_LIBPMIX);
    const Error error = here.prepared();
    CHECK(error.code == Errc::invalid_input);
    CHECK_THAT(error.message, Contains(DTRUN_OLD_LIBPMIX) && Contains("version 3.2.5"));
    here.begin();
    here.ask();
    REQUIRE(here.events().size() == 1);
    CHECK_THAT(here.events()[0], Contains("version 3.2.5"));
}
#endif

TEST_CASE("a library that is not libpmix is refused", "[mpi][pmix]") {
    Here here("libc.so.6");
    const Error error = here.prepared();
    CHECK(error.code == Errc::invalid_input);
    CHECK_THAT(error.message, Contains("libc.so.6 is not libpmix"));
}

TEST_CASE("in the modes of PMI, a program that asks for PMIx is refused with what to do",
          "[mpi][pmix]") {
    Here here("");
    here.begin(MpiMode::pmi1);
    here.ask();
    REQUIRE(here.events().size() == 1);
    CHECK_THAT(here.events()[0], Contains("--mpi pmi1") && Contains("--mpi pmix"));
    CHECK(here.hosts.pids.empty());
    here.begin(MpiMode::none);
    CHECK(here.hosts.server(0).variables(0).empty());
}

TEST_CASE("a generation without MPI has no process, and ends at once", "[mpi][pmix]") {
    Here here("");
    here.end();
    here.begin();
    here.end();
    CHECK(here.hosts.pids.empty());
    CHECK(here.events().empty());
}

#ifdef DTRUN_PMIX_LIBRARY
TEST_CASE("a process that was prepared tells ranks where its shared memory is, and ends",
          "[mpi][pmix]") {
    Here here(DTRUN_PMIX_LIBRARY);
    REQUIRE(run_to_end(here.io, here.hosts.prepare(1)).has_value());
    here.begin();
    bool versioned = false;
    for (const auto& [name, value] : here.hosts.server(0).variables(1))
        versioned |= name == "PMIX_VERSION" && !value.empty();
    CHECK(versioned);
    here.end();
    CHECK(here.hosts.pids.size() == 1);
    CHECK(here.events().empty());
}

TEST_CASE("a process that dies when no rank needs it is replaced when one does", "[mpi][pmix]") {
    Here here(DTRUN_PMIX_LIBRARY);
    REQUIRE(run_to_end(here.io, here.hosts.prepare(1)).has_value());
    here.begin();
    ::kill(here.hosts.pids.at(0), SIGKILL);
    for (int i = 0; i < 200 && here.hosts.pids.size() < 2; ++i) {
        run_to_end(here.io, here.poke());
        here.io.restart();
        here.io.run_for(std::chrono::milliseconds(20));
    }
    CHECK(here.hosts.pids.size() == 2);
    CHECK(here.events().empty());
    here.end();
}

TEST_CASE("a process that hangs is killed when the generation ends", "[mpi][pmix]") {
    Here here(DTRUN_PMIX_LIBRARY);
    REQUIRE(run_to_end(here.io, here.hosts.prepare(1)).has_value());
    here.begin();
    ::kill(here.hosts.pids.at(0), SIGSTOP);
    here.end();
    CHECK(here.events().empty());
}

TEST_CASE("the next generation ends the process of the one before", "[mpi][pmix]") {
    Here here(DTRUN_PMIX_LIBRARY);
    REQUIRE(run_to_end(here.io, here.hosts.prepare(1)).has_value());
    here.begin();
    here.hosts.make_directories();
    here.hosts.begin(MpiMode::automatic, "c0ffee", 2);
    CHECK(::waitpid(here.hosts.pids.at(0), nullptr, 0) == here.hosts.pids.at(0));
    here.hosts.pids.clear();
    here.end();
    CHECK(here.events().empty());
}
#endif
