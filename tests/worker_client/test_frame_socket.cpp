#include "worker/client/connect/frame_socket.h"

#include "base/fd.h"
#include "tests/support/catch.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <future>
#include <string>
#include <thread>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

/// A socket that listens on loopback, and where.
struct Listener {
    Fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    TcpAddress address;

    explicit Listener(int backlog) {
        auto& four = reinterpret_cast<sockaddr_in&>(address.socket_address);
        four.sin_family = AF_INET;
        four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.size = sizeof four;
        auto* where = reinterpret_cast<sockaddr*>(&four);
        REQUIRE(::bind(socket.get(), where, address.size) == 0);
        REQUIRE(::listen(socket.get(), backlog) == 0);
        REQUIRE(::getsockname(socket.get(), where, &address.size) == 0);
    }
};

WaitContext patience_of(std::chrono::milliseconds time) {
    return {now() + time, {}};
}

}  // namespace

TEST_CASE("a resolver that does not answer is left behind", "[client][socket]") {
    std::promise<void> may_answer;
    const std::shared_future<void> answer = may_answer.get_future().share();
    const Resolver resolver = [answer](const std::string&, const std::string&) {
        answer.wait();
        return Outcome<std::vector<TcpAddress>>(std::vector<TcpAddress>(1));
    };
    CHECK(resolve("name", "1", patience_of(10ms), resolver).error().code == DTRUN_TIMED_OUT);
    const WaitContext interrupted{Moment::max(), [] { return true; }};
    CHECK(resolve("name", "1", interrupted, resolver).error().code == DTRUN_CANCELLED);
    may_answer.set_value();
    CHECK(resolve("name", "1", {}, resolver)->size() == 1);
    CHECK(resolve("127.0.0.1", "1", {})->size() == 1);
}

TEST_CASE("an address that does not answer leaves time for the others", "[client][socket]") {
    const Listener deaf(0), good(8);
    const auto first = FrameSocket::connect_tcp({deaf.address}, patience_of(2s));
    REQUIRE(first.has_value());  // its backlog is full, and further ones get no answer
    const auto silent = FrameSocket::connect_tcp({deaf.address}, patience_of(50ms));
    REQUIRE_FALSE(silent.has_value());
    CHECK(silent.error().code == DTRUN_TIMED_OUT);

    const Moment begun = now();
    const auto third =
        FrameSocket::connect_tcp({deaf.address, deaf.address, good.address}, patience_of(900ms));
    CHECK(third.has_value());
    CHECK(now() - begun >= 550ms);
}

TEST_CASE("large frames in a row are received in the same memory", "[client][socket]") {
    auto [ours, theirs] = private_socket_pair();
    FrameSocket receiver(std::move(ours)), sender(std::move(theirs));
    const Bytes frame = encode_frame(FrameType::reply, std::string(3u << 20, 'v'));
    const auto next = [&] {
        const std::jthread send([&] { (void)sender.send(frame); });
        for (;;) {
            const auto come = receiver.next();
            REQUIRE(come);
            if (*come) return (*come)->payload;
            REQUIRE(receiver.receive(now() + 10s) == FrameSocket::Got::bytes);
        }
    };
    const std::string_view first = next();
    CHECK(first.size() == 3u << 20);
    for (int again = 0; again < 3; ++again) {
        const std::string_view other = next();
        CHECK(other.data() == first.data());
        CHECK(other.find_first_not_of('v') == std::string_view::npos);
    }
}

TEST_CASE("an address is the same host at another port", "[client][socket]") {
    const auto addresses = resolve("127.0.0.1", "", {});
    REQUIRE(addresses.has_value());
    REQUIRE_FALSE(addresses->empty());
    const TcpAddress address = addresses->front().at(1'234);
    const auto& four = reinterpret_cast<const sockaddr_in&>(address.socket_address);
    CHECK(ntohs(four.sin_port) == 1'234);
    CHECK(four.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    const auto six = resolve("::1", "", {});
    if (!six) return;  // a machine without IPv6
    const TcpAddress other = six->front().at(1'234);
    CHECK(ntohs(reinterpret_cast<const sockaddr_in6&>(other.socket_address).sin6_port) == 1'234);
}

TEST_CASE("more than a connection holds is sent once its reader has made room",
          "[client][socket]") {
    const Listener listener(1);
    auto socket = FrameSocket::connect_tcp({listener.address}, patience_of(2s));
    REQUIRE(socket.has_value());
    const Fd reader(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(reader);
    const std::string bytes(32u << 20, 'x');  // buffers of Linux grow to 6 MiB and 4 MiB
    Outcome<void> sent;
    std::thread sender([&] { sent = socket->send(bytes); });
    std::string got;
    std::string buffer(1u << 20, ' ');
    while (got.size() < bytes.size()) {
        const ssize_t n = ::recv(reader.get(), buffer.data(), buffer.size(), 0);
        if (n <= 0) break;
        got.append(buffer, 0, static_cast<std::size_t>(n));
    }
    sender.join();
    CHECK(sent.has_value());
    CHECK(got == bytes);
}

TEST_CASE("a host that nobody knows is closed", "[client][socket]") {
    const auto addresses = resolve("no such host", "", {});
    REQUIRE_FALSE(addresses.has_value());
    CHECK(addresses.error().code == DTRUN_CLOSED);
}

}  // namespace dtrun::embedded
