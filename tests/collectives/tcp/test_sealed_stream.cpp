#include "collectives/backends/tcp/sealed_stream.h"
#include "tests/support/catch.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

using namespace dtrun;
using namespace dtrun::collectives::over_tcp;

namespace {

/// Both ends of a connection that takes few bytes at a time.
std::pair<Socket, Socket> narrow() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    constexpr int kRoom = 4'096;
    ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof kRoom);
    return {Socket(Fd(ends[0])), Socket(Fd(ends[1]))};
}

Key key(std::uint8_t number) {
    Key made{};
    made.fill(number);
    return made;
}

SealedStream writer() {
    return SealedStream({Seal(key(1)), Seal(key(2))});
}
SealedStream reader() {
    return SealedStream({Seal(key(2)), Seal(key(1))});
}

std::string pattern(std::size_t bytes) {
    std::string text(bytes, '\0');
    std::iota(text.begin(), text.end(), '\0');
    return text;
}

}  // namespace

TEST_CASE("An encrypted stream comes as it was sent, whatever pieces the socket takes", "[tcp]") {
    const auto [near, far] = narrow();
    SealedStream out = writer(), in = reader();
    const std::string sent = pattern(300'001);
    std::string come;
    std::size_t gone = 0;
    std::array<char, 1'000> room{};
    while (come.size() < sent.size()) {
        if (gone < sent.size()) {
            // A header and its data, of which the first may have gone.
            const std::size_t first = gone < 24 ? 24 - gone : 0;
            const std::array parts{
                iovec{const_cast<char*>(sent.data()) + gone, first},
                iovec{const_cast<char*>(sent.data()) + gone + first, sent.size() - gone - first}};
            const auto some = out.send(near, parts);
            REQUIRE(some.has_value());
            gone += *some;
        }
        const auto some = in.receive(far, room.data(), 1 + come.size() % room.size());
        REQUIRE(some.has_value());
        come.append(room.data(), *some);
    }
    CHECK(come == sent);
    CHECK_FALSE(in.has_ahead());
    CHECK(in.receive(far, room.data(), room.size()).value() == 0);
}

TEST_CASE("An encrypted stream tells of what it has heard and not handed out", "[tcp]") {
    const auto [near, far] = narrow();
    SealedStream out = writer(), in = reader();
    std::string text = "two words";
    const iovec part{text.data(), text.size()};
    REQUIRE(out.send(near, {&part, 1}).value() == text.size());
    std::array<char, 3> room{};
    CHECK(in.receive(far, room.data(), room.size()).value() == 3);
    CHECK(in.has_ahead());
}

TEST_CASE("One bit that was changed on its way ends an encrypted stream", "[tcp]") {
    const auto [near, tap] = narrow();
    const auto [again, far] = narrow();
    SealedStream out = writer(), in = reader();
    std::string text = pattern(100);
    const iovec part{text.data(), text.size()};
    REQUIRE(out.send(near, {&part, 1}).value() == text.size());
    std::array<char, 200> record{};
    const std::size_t bytes = tap.receive(record.data(), record.size()).value();
    record[50] = static_cast<char>(record[50] ^ 1);
    const iovec changed{record.data(), bytes};
    REQUIRE(again.send({&changed, 1}).value() == bytes);
    std::array<char, 200> room{};
    const auto come = in.receive(far, room.data(), room.size());
    REQUIRE_FALSE(come.has_value());
    CHECK(come.error().code == Errc::closed);
}
