#include "base/result.h"
#include "collectives/tcp/door.h"

#include <sys/resource.h>
#include <sys/uio.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <vector>

using namespace dtrun::collectives::over_tcp;

namespace {

/// Whoever connects to a door; they have come once this returns, as the system takes them.
std::vector<Socket> callers(const Door& door, int count) {
    std::vector<Socket> all;
    for (int i = 0; i < count; ++i) {
        auto socket = Socket::connect(door.address());
        REQUIRE(socket.has_value());
        pollfd writable{socket->fd(), POLLOUT, 0};
        REQUIRE(::poll(&writable, 1, 10'000) == 1);
        all.push_back(std::move(*socket));
    }
    return all;
}

void greet(const Socket& socket) {
    Greeting greeting;
    const iovec part{&greeting, sizeof greeting};
    REQUIRE(socket.send({&part, 1}).value_or(0) == sizeof greeting);
}

bool was_turned_away(const Socket& socket) {
    std::byte any{};
    return !socket.receive(&any, 1);
}

/// Leaves this process so many descriptors, for as long as it lives.
class FewDescriptors {
public:
    explicit FewDescriptors(std::size_t left) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        std::size_t highest = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
            highest = std::max<std::size_t>(highest, std::stoul(entry.path().filename()));
        // All numbers below the limit are taken, so that none is free but those above.
        while ((filling_.emplace_back(::dup(0)), filling_.back() >= 0) &&
               static_cast<std::size_t>(filling_.back()) <= highest) {
        }
        const rlimit few{highest + 2 + left, before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &few);
    }
    ~FewDescriptors() {
        for (const int fd : filling_) ::close(fd);
        ::setrlimit(RLIMIT_NOFILE, &before_);
    }
    FewDescriptors(const FewDescriptors&) = delete;
    FewDescriptors& operator=(const FewDescriptors&) = delete;

private:
    rlimit before_{};
    std::vector<int> filling_;
};

}  // namespace

TEST_CASE("Of many strangers that say nothing at a door, the oldest are turned away", "[tcp]") {
    const auto door = Door::open("127.0.0.1", 4);
    REQUIRE(door.has_value());
    const std::vector<Socket> strangers = callers(**door, 268);
    (*door)->advance();
    const auto away = std::ranges::count_if(strangers, was_turned_away);
    CHECK(away == 4);
    CHECK(was_turned_away(strangers[3]));
}

TEST_CASE("Of many callers that only say that they are peers, the oldest are turned away",
          "[tcp]") {
    const auto door = Door::open("127.0.0.1", 4);
    REQUIRE(door.has_value());
    const std::vector<Socket> strangers = callers(**door, 268);
    std::ranges::for_each(strangers, greet);
    (*door)->advance();
    CHECK(std::ranges::count_if(strangers, was_turned_away) == 4);
}

TEST_CASE("Without descriptors strangers are turned away, and whoever has spoken stays", "[tcp]") {
    const auto door = Door::open("127.0.0.1", 4);
    REQUIRE(door.has_value());
    const std::vector<Socket> all = callers(**door, 20);
    greet(all[0]);
    {
        const FewDescriptors few(5);
        (*door)->advance();
        CHECK(std::ranges::count_if(all, was_turned_away) == 15);
        CHECK_FALSE(was_turned_away(all[0]));
        CHECK_FALSE(was_turned_away(all[19]));
    }
}

TEST_CASE("A door without a descriptor for whoever is next does not wake up for them", "[tcp]") {
    const auto door = Door::open("127.0.0.1", 4);
    REQUIRE(door.has_value());
    const std::vector<Socket> all = callers(**door, 2);
    greet(all[0]);
    greet(all[1]);
    std::vector<pollfd> waits;
    {
        const FewDescriptors few(1);
        (*door)->advance();
        (*door)->add_to(waits);
        CHECK(waits.empty());
    }
    (*door)->advance();
    (*door)->add_to(waits);
    CHECK(waits.size() == 1);
}
