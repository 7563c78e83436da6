#include "worker/client/step/send_queue.h"

#include "tests/support/catch.h"
#include "worker/client/connect/private_fd.h"

#include <fcntl.h>
#include <unistd.h>

namespace dtrun::embedded {
namespace {

std::shared_ptr<const Bytes> bytes(std::size_t count, char of) {
    return std::make_shared<const Bytes>(count, of);
}

/// A connection on which nobody waits, and its other end.
std::pair<PrivateFd, PrivateFd> connection() {
    auto ends = private_socket_pair();
    for (const PrivateFd* end : {&ends.first, &ends.second})
        ::fcntl(end->get(), F_SETFL, ::fcntl(end->get(), F_GETFL) | O_NONBLOCK);
    return ends;
}

/// What there is to read now.
std::string read_all(int fd) {
    std::string all;
    char part[64 << 10];
    for (ssize_t n; (n = ::read(fd, part, sizeof part)) > 0;)
        all.append(part, static_cast<std::size_t>(n));
    return all;
}

}  // namespace

TEST_CASE("pieces of any size are sent in order, as far as the peer reads", "[client][step]") {
    const auto [ours, theirs] = connection();
    PeerSendQueue queue;
    std::string expected;
    for (int i = 0; i < 200; ++i) {
        const std::size_t count = i % 3 == 0 ? 1 : i % 3 == 1 ? 20'000 : 70'000;
        const char of = static_cast<char>('a' + i % 26);
        queue.add(bytes(count, of), true);
        expected.append(count, of);
    }
    std::string got;
    int rounds = 0;
    for (; !queue.empty(); ++rounds) {
        REQUIRE(queue.flush(ours.get()));
        got += read_all(theirs.get());
    }
    CHECK(rounds > 1);
    CHECK(got == expected);
    CHECK(queue.sent_bytes() == expected.size());
}

TEST_CASE("a peer is full of anything, and stuck only with what it did not ask for",
          "[client][step]") {
    const std::size_t mebibytes = 1u << 20;
    const auto some = bytes(16 * mebibytes, 'x');
    PeerSendQueue queue;
    queue.add(some, true);
    CHECK_FALSE(queue.is_full());
    queue.add(bytes(1, 'x'), true);
    CHECK(queue.is_full());
    for (int i = 0; i < 10; ++i) queue.add(some, true);
    CHECK_FALSE(queue.is_stuck());
    for (int i = 0; i < 8; ++i) queue.add(some, false);
    CHECK_FALSE(queue.is_stuck());
    queue.add(bytes(1, 'x'), false);
    CHECK(queue.is_stuck());
}

TEST_CASE("a queue says when its connection is broken", "[client][step]") {
    auto [ours, theirs] = connection();
    theirs.reset();
    PeerSendQueue queue;
    CHECK(queue.flush(ours.get()));  // there is nothing to send
    queue.add(bytes(1, 'x'), true);
    CHECK_FALSE(queue.flush(ours.get()));
}

}  // namespace dtrun::embedded
