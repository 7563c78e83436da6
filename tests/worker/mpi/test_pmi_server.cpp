// The server on real sockets.
#include "rendezvous/wire/modes.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/worker/mpi/pmi_hosts.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <chrono>

using namespace dtrun;
using Catch::Contains;

namespace {

struct Here {
    explicit Here(std::vector<std::uint32_t> sizes) : hosts(io, std::move(sizes)) {
        hosts.begin(MpiMode::automatic);
        ranks = hosts.connect();
    }
    ~Here() {
        hosts.stop();
        asio::co_spawn(io, hosts.join(), [](std::exception_ptr error) {
            if (error) std::terminate();
        });
        io.restart();
        io.run();
    }

    void say(std::size_t rank, std::string_view bytes) {
        CHECK(::send(ranks[rank].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(bytes.size()));
    }
    /// What has come once so many bytes are there, or "<end>" behind it; at most half a minute.
    std::string hear(std::size_t rank, std::size_t bytes) {
        std::string heard;
        const auto until = Clock::now() + std::chrono::seconds(30);
        while (heard.size() < bytes && Clock::now() < until) {
            char buffer[4096];
            const ssize_t size = ::recv(ranks[rank].get(), buffer, sizeof buffer, MSG_DONTWAIT);
            if (size > 0)
                heard.append(buffer, static_cast<std::size_t>(size));
            else if (size == 0 || errno != EAGAIN)
                return heard + "<end>";
            else
                settle(5);
        }
        return heard;
    }
    std::string ask(std::size_t rank, std::string_view bytes, std::size_t answer) {
        say(rank, bytes);
        return hear(rank, answer);
    }
    void settle(int ms) { dtrun::settle(io, std::chrono::milliseconds(ms)); }

    asio::io_context io;
    PmiHosts hosts;
    std::vector<Fd> ranks;
};

std::size_t length(const char* text) {
    return std::string_view(text).size();
}

}  // namespace

TEST_CASE("ranks of two hosts meet in a barrier, and are seen to wait", "[worker][pmi]") {
    Here here({2, 1});
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK((::fcntl(here.ranks[rank].get(), F_GETFD) & FD_CLOEXEC) != 0);
        CHECK(here.ask(rank, kInit, length(kInitialized)) == kInitialized);
    }
    here.say(2, "cmd=barrier_in\n");
    here.say(1, "cmd=barrier_in\n");
    here.settle(50);
    REQUIRE(here.hosts.server(0).waits().size() == 1);
    CHECK(here.hosts.server(0).waits()[0].rank == Rank{1});
    CHECK(here.hosts.server(0).waits()[0].starting);
    CHECK(here.hosts.server(0).waits()[0].waited_ms >= 20);
    CHECK(here.hosts.server(1).waits().size() == 1);
    CHECK(here.ask(0, "cmd=barrier_in\n", 16) == "cmd=barrier_out\n");
    CHECK(here.hear(1, 16) == "cmd=barrier_out\n");
    CHECK(here.hear(2, 16) == "cmd=barrier_out\n");
    CHECK(here.hosts.server(0).waits().empty());
}

TEST_CASE("a new generation cuts off the ranks of the one before", "[worker][pmi]") {
    Here here({2});
    here.ask(0, std::string(kInit) + "cmd=put key=k value=old\n", length(kInitialized) + 32);
    here.say(0, "cmd=barrier_in\n");
    here.settle(20);
    here.hosts.begin(MpiMode::automatic, 2);
    CHECK(here.hear(0, 1) == "<end>");
    CHECK(here.hear(1, 1) == "<end>");
    here.ranks = here.hosts.connect();
    CHECK(here.ask(0, kInit, length(kInitialized)) == kInitialized);
    CHECK_THAT(here.ask(0, "cmd=get_my_kvsname\n", 36), Contains("kvsname=kvs_c0ffee_2\n"));
    CHECK_THAT(here.ask(0, "cmd=get key=k\n", 40), Contains("rc=-1"));
    CHECK(here.hosts.server(0).waits().empty());
}

TEST_CASE("a rank whose connection ends is forgotten", "[worker][pmi]") {
    Here here({2});
    here.ask(0, kInit, length(kInitialized));
    here.say(0, "cmd=barrier_in\n");
    here.settle(20);
    CHECK(here.hosts.server(0).waits().size() == 1);
    here.ranks[0].reset();
    here.settle(20);
    CHECK(here.hosts.server(0).waits().empty());
}

TEST_CASE("ranks in a fence that fails are held for three seconds, then let go", "[worker][pmi]") {
    Here here({1, 1});
    here.ask(0, kInit, length(kInitialized));
    here.say(0, "cmd=barrier_in\n");
    here.settle(20);
    const auto failed = Clock::now();
    here.hosts.networks().fail("rank 1 has ended");
    CHECK(here.hear(0, 1) == "<end>");
    CHECK(Clock::now() - failed > std::chrono::milliseconds(2'900));
    // The client can still say that it aborts; nobody is told of that.
    here.say(0, "cmd=abort exitcode=9\n");
    here.settle(20);
    CHECK(here.hosts.events() == std::vector<std::string>{"0 initialized"});
}

TEST_CASE("a client that sends nonsense is cut off", "[worker][pmi]") {
    Here here({2});
    CHECK(here.ask(0, "nonsense\n", 1) == "<end>");
    CHECK(here.ask(1, kInit, length(kInitialized)) == kInitialized);
}

TEST_CASE("a client that reads late gets all its answers", "[worker][pmi]") {
    Here here({1});
    here.ask(0, std::string(kInit) + "cmd=put key=k value=" + std::string(1'000, 'v') + "\n",
             length(kInitialized) + 32);
    const std::string_view get = "cmd=get key=k\n";
    std::size_t asked = 0;
    for (int idle = 0; idle < 20;) {
        const ssize_t sent =
            ::send(here.ranks[0].get(), get.data(), get.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == static_cast<ssize_t>(get.size())) {
            ++asked;
            continue;
        }
        here.settle(2);
        ++idle;
    }
    REQUIRE(asked > 100);
    const std::size_t expected =
        asked * (length("cmd=get_result rc=0 msg=success value=\n") + 1'000);
    CHECK(here.hear(0, expected).size() == expected);
}
