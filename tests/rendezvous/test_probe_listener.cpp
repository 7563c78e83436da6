// Whether hosts reach each other, and how fast, over loopback.
#include "rendezvous/doctor/probe_listener.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

#include <algorithm>
#include <vector>

namespace dtrun::doctor {
namespace {

const std::string kToken(Examine::kTokenBytes, 't');

struct Host {
    Host() : listener(ProbeListener::open(io.get_executor(), kToken).value()) {}
    ~Host() { run_to_end(io, ended()); }
    asio::awaitable<bool> ended() {
        co_await listener->join();
        co_return true;
    }
    ProbeTarget at(const std::string& address) const { return {"s1", address, listener->port()}; }

    asio::io_context io;
    std::unique_ptr<ProbeListener> listener;
};

/// A port at which nobody listens.
std::uint16_t closed_port() {
    asio::io_context io;
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    return acceptor.local_endpoint().port();
}

}  // namespace

TEST_CASE("hosts that can be reached are told from those that cannot", "[doctor]") {
    Host host;
    tcp::acceptor silent(host.io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    Visit order;
    order.limit_ms = 300;
    order.targets = {host.at("127.0.0.1"),
                     {"s2", "127.0.0.1", closed_port()},
                     {"s3", "127.0.0.1", silent.local_endpoint().port()},
                     {"s4", "nowhere", 1}};
    const Visited visited = run_to_end(host.io, visit(kToken, order));
    REQUIRE(visited.failures.size() == 3);
    CHECK(visited.failures[0].target == order.targets[1]);
    CHECK(visited.failures[0].why == "Connection refused");
    CHECK(visited.failures[1].why == "it takes connections, but does not answer");
    CHECK(visited.failures[2].why == "'nowhere' is no address");
}

TEST_CASE("A listener hangs up on whoever does not know the token", "[doctor]") {
    Host host;
    const Visit order{{host.at("127.0.0.1")}, 1'000};
    const Visited visited =
        run_to_end(host.io, visit(std::string(Examine::kTokenBytes, 'x'), order));
    REQUIRE(visited.failures.size() == 1);
    CHECK(visited.failures[0].why == "somebody else answers there");
}

TEST_CASE("Of too many that show no token a listener hangs up on the oldest, and answers who does",
          "[doctor]") {
    Host host;
    std::vector<tcp::socket> crowd;
    const tcp::endpoint listener(asio::ip::address_v4::loopback(), host.listener->port());
    for (int i = 0; i < 300; ++i) crowd.emplace_back(host.io).connect(listener);
    const Visited visited =
        run_to_end(host.io, visit(kToken, Visit{{host.at("127.0.0.1")}, 5'000}));
    CHECK(visited.failures.empty());
    const auto was_hung_up_on = [](tcp::socket& one) {
        char any = 0;
        boost::system::error_code error;
        one.non_blocking(true);
        one.read_some(asio::buffer(&any, 1), error);
        return error != asio::error::would_block;
    };
    CHECK(was_hung_up_on(crowd.front()));
    CHECK_FALSE(was_hung_up_on(crowd.back()));
    // The visitor himself was one of those 256 before he had said anything.
    CHECK(std::ranges::count_if(crowd, was_hung_up_on) == 300 - 255);
}

TEST_CASE("Bytes go both ways, and what came through in time counts", "[doctor]") {
    Host host;
    const SpeedTest all{host.at("127.0.0.1"), 4u << 20, 5'000};
    const Speed speed = run_to_end(host.io, test_speed(kToken, all));
    CHECK(speed.bytes == 4u << 20);
    CHECK(speed.took_us > 0);
    CHECK(speed.why.empty());
    const SpeedTest too_many{host.at("127.0.0.1"), 64u << 20, 8};
    const Speed part = run_to_end(host.io, test_speed(kToken, too_many));
    CHECK(part.bytes > 0);
    CHECK(part.bytes < 64u << 20);
    tcp::acceptor silent(host.io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    const SpeedTest nobody{{"s2", "127.0.0.1", silent.local_endpoint().port()}, 4u << 20, 100};
    CHECK(run_to_end(host.io, test_speed(kToken, nobody)).why ==
          "it connects, but no data come through");
    const SpeedTest closed{{"s2", "127.0.0.1", closed_port()}, 1u << 20, 100};
    CHECK(run_to_end(host.io, test_speed(kToken, closed)).why == "Connection refused");
}

}  // namespace dtrun::doctor
