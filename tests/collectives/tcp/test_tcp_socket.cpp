#include "collectives/backends/tcp/socket.h"
#include "tests/support/catch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <string>

using namespace dtrun::collectives::over_tcp;

namespace {

std::string congestion_control(const Socket& socket) {
    std::array<char, 16> name{};
    socklen_t bytes = name.size();
    REQUIRE(::getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) == 0);
    return name.data();
}

/// A connection to ourselves, before and after prepare().
struct Made {
    std::string before, after;

    explicit Made(Traffic traffic) {
        auto listening = Socket::listen("127.0.0.1");
        REQUIRE(listening.has_value());
        auto socket = Socket::connect(listening->local_address());
        REQUIRE(socket.has_value());
        pollfd writable{socket->fd(), POLLOUT, 0};
        REQUIRE(::poll(&writable, 1, 10'000) == 1);
        before = congestion_control(*socket);
        socket->prepare(traffic);
        after = congestion_control(*socket);
    }
};

}  // namespace

TEST_CASE("A connection takes the congestion control that was asked for, if the system has it",
          "[tcp]") {
    setenv("DTRUN_TCP_CONGESTION", "reno", 1);
    CHECK(Made(Traffic::streams).after == "reno");
    setenv("DTRUN_TCP_CONGESTION", "nosuch", 1);
    const Made without(Traffic::bursts);
    CHECK(without.after == without.before);
    unsetenv("DTRUN_TCP_CONGESTION");
}

TEST_CASE("A connection keeps the system's congestion control, but for bursts where that is BBR",
          "[tcp]") {
    const Made streams(Traffic::streams);
    CHECK(streams.after == streams.before);
    const Made bursts(Traffic::bursts);
    if (bursts.before == "bbr")
        CHECK((bursts.after == "cubic" || bursts.after == "reno"));
    else
        CHECK(bursts.after == bursts.before);
}
