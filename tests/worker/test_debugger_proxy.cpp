// The way to the debugger of a rank: who is at its end, and when there is none.

#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/other_user.h"
#include "tests/support/skip.h"
#include "worker/agent/debugger_proxy.h"

#include <fcntl.h>
#include <unistd.h>
#include <chrono>
#include <vector>

namespace dtrun {

using agent::DebuggerProxy;
namespace {

/// A proxy, and what it tells the head.
struct Bench {
    Bench()
        : proxy(io.get_executor(), "dtrun-test-door-",
                [this](const Tunnel& tunnel) { sent.push_back(tunnel); }) {}
    ~Bench() {
        proxy.stop();
        io.restart();
        io.run_for(std::chrono::seconds(1));
    }
    std::uint16_t open_port() {
        const auto place = proxy.open(Debugger::debugpy);
        REQUIRE(place.has_value());
        REQUIRE(place->starts_with("127.0.0.1:"));
        return static_cast<std::uint16_t>(std::stoi(place->substr(10)));
    }
    void run_until_sent(std::size_t count) {
        runs_until(io, [&] { return sent.size() >= count; });
    }

    asio::io_context io;
    std::vector<Tunnel> sent;
    DebuggerProxy proxy;
};

Tunnel bytes_of(std::uint32_t connection, std::string bytes) {
    Tunnel tunnel;
    tunnel.connection = connection;
    tunnel.bytes = std::move(bytes);
    return tunnel;
}

tcp::acceptor listen_at(asio::io_context& io, std::uint16_t port) {
    return {io, tcp::endpoint(asio::ip::address_v4::loopback(), port)};
}

}  // namespace

TEST_CASE("what is said after the end of a debugger's connection does not make another",
          "[debug]") {
    Bench proxy;
    const std::uint16_t port = proxy.open_port();
    tcp::acceptor acceptor = listen_at(proxy.io, port);
    proxy.proxy.take(bytes_of(1, "hello"));
    tcp::socket debugger = run_to_end(proxy.io, acceptor.async_accept(asio::use_awaitable));
    proxy.run_until_sent(1);
    REQUIRE(proxy.sent.size() == 1);
    CHECK(proxy.sent[0].taken == 5);
    debugger.close();
    proxy.run_until_sent(2);
    REQUIRE(proxy.sent.size() == 2);
    CHECK(proxy.sent[1].ended);

    Tunnel late;
    late.connection = 1;
    late.taken = 7;
    proxy.proxy.take(late);
    settle(proxy.io, std::chrono::milliseconds(100));
    acceptor.non_blocking(true);
    boost::system::error_code none;
    acceptor.accept(none);
    CHECK(none == asio::error::would_block);
    proxy.proxy.take(bytes_of(2, "x"));
    CHECK(run_to_end(proxy.io, acceptor.async_accept(asio::use_awaitable)).is_open());
}

TEST_CASE("another user who listens where a rank's debugger was to is not talked to", "[debug]") {
    if (::geteuid() != 0) {
        skip_case("needs root to be somebody else");
        return;
    }
    Bench proxy;
    const std::uint16_t port = proxy.open_port();
    const OtherUser other([port] {
        const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int yes = 1;
        ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(port);
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) ::_exit(98);
        if (::listen(listener, 5) != 0) ::_exit(97);
        for (;;) ::accept(listener, nullptr, nullptr);
    });
    proxy.proxy.take(bytes_of(1, "secret"));
    proxy.run_until_sent(1);
    REQUIRE(proxy.sent.size() == 1);
    CHECK(proxy.sent[0].ended);
    CHECK(proxy.sent[0].taken == 0);
}

TEST_CASE("gdbserver has two pipes, for one gdb, whose end it sees", "[debug]") {
    Bench proxy;
    const auto place = proxy.proxy.open(Debugger::gdb);
    REQUIRE(place.has_value());
    const Fd in(::open((*place + "/in").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const Fd out(::open((*place + "/out").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    REQUIRE((in && out));
    const std::string bytes("$\x03\r\n\x04\x11#", 7);
    proxy.proxy.take(bytes_of(1, bytes));
    proxy.run_until_sent(1);
    std::string read(16, '\0');
    REQUIRE(::read(in.get(), read.data(), read.size()) == 7);
    CHECK(read.substr(0, 7) == bytes);
    REQUIRE(::write(out.get(), "+\n", 2) == 2);
    proxy.run_until_sent(2);
    REQUIRE(proxy.sent.size() == 2);
    CHECK(proxy.sent[1].bytes == "+\n");
    proxy.proxy.take(bytes_of(2, "x"));
    proxy.run_until_sent(3);
    REQUIRE(proxy.sent.size() == 3);
    CHECK(proxy.sent[2].connection == 2);
    CHECK(proxy.sent[2].ended);
    Tunnel end;
    end.connection = 1;
    end.ended = true;
    proxy.proxy.take(end);
    settle(proxy.io, std::chrono::milliseconds(100));
    CHECK(::read(in.get(), read.data(), read.size()) == 0);
    // Another gdbserver, of ranks that were started again.
    const Fd next(::open((*place + "/in").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    proxy.proxy.take(bytes_of(3, "y"));
    settle(proxy.io, std::chrono::milliseconds(100));
    CHECK(::read(next.get(), read.data(), read.size()) == 1);
}

}  // namespace dtrun
