#include "worker/ranks/reset_connections.h"

#include "base/fd.h"
#include "tests/support/catch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace dtrun::ranks {
namespace {

sockaddr_in at(const char* address, std::uint16_t port) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    ::inet_pton(AF_INET, address, &place.sin_addr);
    return place;
}

/// Listens at an address of this machine.
struct Listener {
    explicit Listener(const char* address) : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
        place = at(address, 0);
        socklen_t size = sizeof place;
        REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&place), size) == 0);
        REQUIRE(::listen(socket.get(), 8) == 0);
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&place), &size);
    }
    Fd connect() const {
        Fd client(::socket(AF_INET, SOCK_STREAM, 0));
        REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) ==
                0);
        return client;
    }
    Fd socket;
    sockaddr_in place{};
};

/// A process that waits for bytes of `first`, says so by its exit code, and holds `second`.
pid_t wait_in_recv(const Fd& first, const Fd& second) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    char byte = 0;
    if (::recv(first.get(), &byte, 1, 0) != 0) ::_exit(1);
    if (::send(first.get(), &byte, 1, MSG_NOSIGNAL) != -1 || errno != EPIPE) ::_exit(2);
    pollfd other{second.get(), POLLIN | POLLRDHUP, 0};
    ::_exit(::poll(&other, 1, 100) == 0 ? 0 : 3);
}

}  // namespace

TEST_CASE("a process that waits in a connection to a severed address goes on, and keeps the others",
          "[worker][reset]") {
    if (const std::string why = why_no_reset(); !why.empty()) {
        WARN("SKIPPED: " + why);
        return;
    }
    const Listener lost("127.0.0.77"), kept("127.0.0.78");
    const Fd to_lost = lost.connect(), to_kept = kept.connect();
    const pid_t child = wait_in_recv(to_lost, to_kept);
    const std::vector<pid_t> processes{child};
    const std::vector<std::string> addresses{"127.0.0.77", "::1", "fe80::77"};
    const ResetResult connections_reset = reset_connections(processes, {addresses, {}});
    CHECK(connections_reset.connections == 1);
    CHECK(connections_reset.error == 0);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("severing takes sockets of IPv6 that speak IPv4, and leaves listeners alone",
          "[worker][reset]") {
    if (!why_no_reset().empty()) return;
    const Listener lost("127.0.0.77");
    const Fd mapped(::socket(AF_INET6, SOCK_STREAM, 0));
    sockaddr_in6 place{};
    place.sin6_family = AF_INET6;
    place.sin6_port = lost.place.sin_port;
    ::inet_pton(AF_INET6, "::ffff:127.0.0.77", &place.sin6_addr);
    REQUIRE(::connect(mapped.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0);
    const std::vector<pid_t> processes{::getpid()};
    const std::vector<std::string> addresses{"127.0.0.77"};
    CHECK(reset_connections(processes, {addresses, {}}).connections == 1);
    char byte = 0;
    CHECK(::recv(mapped.get(), &byte, 1, 0) == 0);
    CHECK(lost.connect());  // it still listens
}

TEST_CASE("severing processes that are gone does nothing", "[worker][reset]") {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    const std::vector<pid_t> processes{child};
    const std::vector<std::string> addresses{"127.0.0.77", "nonsense"};
    const ResetResult connections_reset = reset_connections(processes, {addresses, {}});
    CHECK(connections_reset.connections == 0);
    CHECK(connections_reset.error == 0);
}

}  // namespace dtrun::ranks
