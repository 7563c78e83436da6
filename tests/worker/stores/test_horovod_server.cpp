// The server on real sockets, against a client that sends byte for byte what Horovod's does.
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/worker/stores/horovod_hosts.h"

#include <fmt/format.h>

using namespace dtrun;
using Catch::Contains;

namespace {

std::string put(std::string_view path, std::string_view body) {
    return fmt::format("PUT {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{}", path,
                       body.size(), body);
}
std::string bare(std::string_view method, std::string_view path) {
    return fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n", method,
                       path);
}
std::string ok(std::string_view body = {}) {
    return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                       body.size(), body);
}
const std::string kMissing =
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// All that a server says until it closes.
asio::awaitable<std::string> said_on(tcp::socket& socket) {
    std::string said;
    char bytes[4096];
    for (;;) {
        const auto buffer = asio::buffer(bytes);
        const auto [error, size] = co_await socket.async_read_some(buffer, use_tuple);
        if (error) co_return said;
        said.append(bytes, size);
    }
}

struct Here {
    explicit Here(std::vector<std::uint32_t> ranks) : hosts(io, ranks) {
        for (std::size_t host = 0; host < hosts.hosts(); ++host)
            ports.push_back(hosts.server(host).listen().value());
    }
    ~Here() {
        hosts.stop();
        asio::co_spawn(io, hosts.join(), [](std::exception_ptr error) {
            if (error) std::terminate();
        });
        io.restart();
        io.run();
        CHECK_FALSE(hosts.failed());
    }

    tcp::socket send(std::size_t host, std::string bytes) {
        tcp::socket socket(io);
        socket.connect({asio::ip::address_v4::loopback(), ports[host]});
        asio::write(socket, asio::buffer(bytes));
        return socket;
    }
    std::string answer(tcp::socket& socket) { return run_to_end(io, said_on(socket)); }
    std::string ask(std::size_t host, std::string bytes) {
        tcp::socket socket = send(host, std::move(bytes));
        return answer(socket);
    }
    void settle() { dtrun::settle(io, std::chrono::milliseconds(50)); }

    asio::io_context io;
    HorovodHosts hosts;
    std::vector<std::uint16_t> ports;
};

}  // namespace

TEST_CASE("a round of two hosts, to the byte", "[worker][horovod]") {
    Here here({1, 1});
    here.hosts.begin(1);
    const std::string address0(136, '\0'), address1(136, '\xff');

    tcp::socket held = here.send(0, put("/global/rank_0", "s1"));
    here.settle();
    CHECK(held.available() == 0);
    REQUIRE(here.hosts.server(0).waits().size() == 1);
    CHECK(here.hosts.server(0).waits()[0].rank == Rank{0});
    CHECK(here.ask(1, put("/global/rank_1", "s2")) == ok());
    CHECK(here.answer(held) == ok());

    CHECK(here.ask(1, bare("GET", "/global/rank_0")) == ok("s1"));
    CHECK(here.ask(0, put("/global/0", address0)) == ok());
    tcp::socket waiting = here.send(0, bare("GET", "/global/1"));
    here.settle();
    CHECK(waiting.available() == 0);
    CHECK(here.ask(1, put("/global/1", address1)) == ok());
    CHECK(here.answer(waiting) == ok(address1));
    CHECK(here.ask(0, bare("GET", "/global/1")) == ok(address1));
    CHECK(here.ask(1, bare("GET", "/global/0")) == ok(address0));
    CHECK(here.ask(0, bare("DELETE", "/global/0")) == ok());
    CHECK(here.ask(1, bare("DELETE", "/global/1")) == ok());
    CHECK(here.hosts.hub().store().size() == 2);
}

TEST_CASE("a GET that waits in vain is answered with 404 after a second", "[worker][horovod]") {
    Here here({1, 1});
    here.hosts.begin(1);
    CHECK(here.ask(0, put("/cross_0/rank_0", "s1")) == ok());
    CHECK(here.ask(0, bare("GET", "/cross_0/rank_1")) == kMissing);
    const auto started = Clock::now();
    CHECK(here.ask(0, bare("GET", "/cross_0/1")) == kMissing);
    CHECK(Clock::now() - started >= std::chrono::milliseconds(900));
}

TEST_CASE("when who waits has died nothing waits for it any more", "[worker][horovod]") {
    Here here({1, 1});
    here.hosts.begin(1);
    CHECK(here.ask(0, put("/cross_0/rank_0", "s1")) == ok());
    {
        tcp::socket dead = here.send(0, bare("GET", "/cross_0/1"));
        tcp::socket gate = here.send(0, put("/global/rank_0", "s1"));
        here.settle();
        CHECK(here.hosts.server(0).waits().size() == 2);
        CHECK(here.hosts.hub().store().waiting() == 2);
    }
    here.settle();
    CHECK(here.hosts.server(0).waits().empty());
    CHECK(here.hosts.hub().store().waiting() == 1);  // the host's own, for the start barrier
}

TEST_CASE("a generation's connections end with it, and its values", "[worker][horovod]") {
    Here here({1, 1});
    CHECK_THAT(here.ask(0, bare("GET", "/a/b")), Contains("503 Service Unavailable"));
    here.hosts.begin(1);
    CHECK(here.ask(0, put("/a/b", "old")) == ok());
    tcp::socket held = here.send(0, put("/global/rank_0", "s1"));
    tcp::socket unfinished = here.send(0, "GET /a");
    here.settle();
    here.hosts.begin(2);
    CHECK(here.answer(held).empty());
    CHECK(here.answer(unfinished).empty());
    CHECK(here.ask(0, bare("GET", "/a/b")) == kMissing);
    tcp::socket again = here.send(0, put("/global/rank_0", "s1"));
    CHECK(here.ask(1, put("/global/rank_1", "s2")) == ok());
    CHECK(here.answer(again) == ok());
}

TEST_CASE("what is no request is told so, also while its body is under way", "[worker][horovod]") {
    Here here({1});
    here.hosts.begin(1);
    CHECK_THAT(here.ask(0, "hello\r\n\r\n"), Contains("HTTP/1.1 400 "));
    CHECK_THAT(here.ask(0, bare("POST", "/a/b")), Contains("HTTP/1.1 405 "));
    CHECK_THAT(here.ask(0, bare("GET", "/a")), Contains("HTTP/1.1 400 "));
    CHECK_THAT(here.ask(0, "PUT /a/b HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n" +
                               std::string(100'000, 'x')),
               Contains("HTTP/1.1 413 "));
    CHECK_THAT(here.ask(0, put("/global/rank_1", "x")),
               Contains("HTTP/1.1 403 ") && Contains("1 ranks"));
}

TEST_CASE("more ranks than connections are served one after the other", "[worker][horovod]") {
    Here here({1});
    here.hosts.begin(1);
    // More than a socket takes at once; the kernel keeps what a thousand of them have not read yet.
    const std::string value(200'000, 'v');
    CHECK(here.ask(0, put("/a/b", value)) == ok());
    std::vector<tcp::socket> sockets;
    for (int i = 0; i < 1'200; ++i) sockets.push_back(here.send(0, "GET /a"));
    here.settle();
    const std::string rest = "/b HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    for (tcp::socket& socket : sockets) asio::write(socket, asio::buffer(rest));
    for (tcp::socket& socket : sockets) CHECK(here.answer(socket) == ok(value));
}
