#include "worker/client/event_queue.h"

#include "tests/support/catch.h"
#include "worker/client/connect/private_fd.h"

#include <poll.h>
#include <unistd.h>

namespace dtrun::embedded {
namespace {

bool is_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
}

RankEvent membership(std::uint64_t generation) {
    return {RankEvent::Kind::membership, generation, 0, "a host has come"};
}

}  // namespace

TEST_CASE("events are taken in the order in which they came", "[client][event]") {
    EventQueue events;
    CHECK(events.empty());
    events.add(membership(2));
    events.add({RankEvent::Kind::shutdown, 1, 500, "enough"});
    CHECK(events.take().generation == 2);
    CHECK(events.take().why == "enough");
    CHECK(events.empty());
}

TEST_CASE("the descriptor of events is readable while there are some", "[client][event]") {
    EventQueue events;
    events.add(membership(2));
    const int fd = events.fd().value();
    CHECK(events.fd().value() == fd);
    CHECK(is_readable(fd));
    events.add(membership(3));
    (void)events.take();
    CHECK(is_readable(fd));
    (void)events.take();
    CHECK_FALSE(is_readable(fd));
    events.close();
    CHECK(is_readable(fd));
}

TEST_CASE("a generation that has begun is announced no more", "[client][event]") {
    EventQueue events;
    const int fd = events.fd().value();
    events.add(membership(2));
    events.begin(2);
    CHECK(events.empty());
    CHECK_FALSE(is_readable(fd));
    events.add({RankEvent::Kind::shutdown, 2, 0, "enough"});
    events.add(membership(4));
    events.begin(3);
    CHECK(events.take().kind == RankEvent::Kind::shutdown);
    CHECK(events.take().generation == 4);
}

TEST_CASE("bytes on the watched connection make the descriptor readable", "[client][event]") {
    const auto [ours, theirs] = private_socket_pair();
    REQUIRE(::write(theirs.get(), "x", 1) == 1);
    EventQueue events;
    events.watch(ours.get());  // before anybody has asked for the descriptor
    const int fd = events.fd().value();
    CHECK(is_readable(fd));
    events.unwatch();
    CHECK_FALSE(is_readable(fd));
    events.watch(ours.get());
    CHECK(is_readable(fd));
}

}  // namespace dtrun::embedded
