// Whose log-in is next, in virtual time.
#include "launcher/transport/login_gate.h"

#include "base/loop/task_group.h"
#include "launcher/transport/agent_starter.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"
#include "tests/support/virtual_time.h"

#include <algorithm>
#include <random>
#include <vector>

namespace dtrun::transport {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds kPatience = 300ms, kLook = 500ms, kLogIn = 10ms, kStart = 50ms;

/// A host as its log-in sees it.
struct Guest {
    milliseconds answers{1};  ///< after that
    milliseconds works{10};   ///< 0: it never gets so far
    std::string route{};
};

/// An ssh that has been busy for as long as the test says.
class FakeCarrier final : public Channel {
public:
    asio::awaitable<Result<std::size_t>> read(std::span<char>, Deadline) override {
        co_return std::size_t{0};
    }
    asio::awaitable<Result<void>> write(std::string_view, Deadline) override {
        co_return Result<void>{};
    }
    std::string take_errors() override { return {}; }
    asio::awaitable<std::string> ending(Deadline) override { co_return std::string(); }
    void close() noexcept override {}
    bool is_carried() const override { return true; }
    std::optional<std::chrono::nanoseconds> busy_time() const override { return busy; }

    std::optional<std::chrono::nanoseconds> busy = 0ns;
};

/// A gate, and who logs in through it.
class Entrance {
public:
    explicit Entrance(unsigned at_once) : gate(io.get_executor(), at_once) {}
    ~Entrance() {
        for (TaskGroup* const group : {&guests, &others}) {
            group->stop();
            asio::co_spawn(io, group->join(), [](const std::exception_ptr&) {});
        }
        io.restart();
        io.poll();
    }

    asio::awaitable<void> log_in(Guest guest) {
        LoginPass pass(gate);
        if (co_await pass.wait(guest.route) != LoginTurn::own) co_return;
        ++in;
        in_most = std::max(in_most, in);
        pass.now("connecting");
        Timer timer(io, after(guest.answers));
        co_await timer.async_wait(use_tuple);
        if (guest.works > 0ms) {
            pass.now("ssh authentication");
            working_most = std::max(working_most, ++working);
            timer.expires_at(after(guest.works));
            co_await timer.async_wait(use_tuple);
            --working;
            worked_last = Clock::now();
        }
        --in;
    }
    /// By a program, and for ever.
    asio::awaitable<void> log_in_by(std::shared_ptr<FakeCarrier> carrier, std::string route = {}) {
        LoginPass pass(gate);
        if (co_await pass.wait(route) != LoginTurn::own) co_return;
        in_most = std::max(in_most, ++in);
        pass.now("ssh");
        pass.watch(carrier);
        Timer never(io, Timer::time_point::max());
        for (;;) co_await never.async_wait(use_tuple);
    }
    asio::awaitable<void> pause(milliseconds span) {
        Timer timer(io, after(span));
        co_await timer.async_wait(use_tuple);
    }
    /// To a host that lacks the agent, and gets its copy from another one after so long.
    asio::awaitable<void> log_in_and_fetch(milliseconds copy, std::string route = {}) {
        LoginPass pass(gate);
        if (co_await pass.wait(route) != LoginTurn::own) co_return;
        pass.now("ssh authentication");
        working_most = std::max(working_most, ++working);
        co_await pause(kLogIn);
        --working;
        worked_last = Clock::now();
        in_most = std::max(in_most, ++in);
        pass.now(kAwaitsCopy);
        co_await pause(copy / 2);
        pass.now(kFetchesCopy);
        co_await pause(copy / 2);
        pass.now("starting the agent");
        co_await pause(kStart);
        --in;
    }
    asio::awaitable<void> stay() {
        Guest guest{1ms, std::chrono::hours(1)};
        return log_in(guest);
    }
    /// Until nothing is left to be done for so long.
    void run(milliseconds span) {
        bool is_over = false;
        Timer timer(io, after(span));
        timer.async_wait([&](boost::system::error_code) { is_over = true; });
        time.run(
            io, [&] { return is_over; }, Deadline::max());
    }

    VirtualTime time;
    asio::io_context io{1};
    LoginGate gate;
    TaskGroup guests{io.get_executor()}, others{io.get_executor()};
    int in = 0, in_most = 0, working = 0, working_most = 0;
    Deadline worked_last{};
};

}  // namespace

TEST_CASE("hosts that swallow packets keep nobody waiting, and no more log in at once than may",
          "[login_gate]") {
    const std::uint32_t seed = test_seed();
    for (std::uint32_t i = 0; i < 60; ++i) {
        INFO("DTRUN_SEED=" << seed + i);
        std::mt19937 random(seed + i);
        const auto draw = [&random](unsigned from, unsigned to) {
            return std::uniform_int_distribution<unsigned>(from, to)(random);
        };
        const unsigned at_once = draw(1, 8), well = draw(1, 60);
        const unsigned late = draw(0, at_once), dead = draw(0, 7 * at_once), gone = draw(0, 6);
        std::vector<Guest> all;
        for (unsigned n = 0; n < well; ++n)
            all.push_back({milliseconds(draw(0, 20)), milliseconds(draw(1, 30))});
        for (unsigned n = 0; n < late; ++n)
            all.push_back({milliseconds(draw(400, 3'000)), milliseconds(draw(1, 30))});
        for (unsigned n = 0; n < dead; ++n) all.push_back({10s, 0ms});
        std::ranges::shuffle(all, random);
        Entrance entrance(at_once);
        const Deadline began = Clock::now();
        for (const Guest& guest : all) {
            if (gone > 0 && draw(0, 9) == 0)  // others, which are given up
                entrance.others.spawn(entrance.log_in({milliseconds(draw(0, 900)), 20ms}));
            entrance.guests.spawn(entrance.log_in(guest));
        }
        entrance.run(milliseconds(draw(0, 900)));
        entrance.others.stop();
        while (entrance.guests.size() > 0) entrance.run(100ms);
        CHECK(entrance.working_most <= static_cast<int>(at_once + late + gone * 10));
        if (late + gone == 0) CHECK(entrance.working_most <= static_cast<int>(at_once));
        // Each that answers has a place for 50 ms, each that does not for the patience; whoever is late, both.
        const unsigned rounds = (late + dead) / at_once + 1;
        const milliseconds all_well = 50ms * ((well + late) / at_once + 1);
        if (gone == 0)
            CHECK(entrance.worked_last - began <=
                  all_well + kPatience * rounds + (late > 0 ? 3s : 0s));
        // All places are there again, and no more.
        entrance.in = entrance.in_most = 0;
        for (unsigned n = 0; n < at_once + 3; ++n) entrance.guests.spawn(entrance.stay());
        entrance.run(2s);
        CHECK(entrance.in == static_cast<int>(at_once));
    }
}

TEST_CASE("no more than eight for each place wait for hosts at once", "[login_gate]") {
    Entrance entrance(2);
    for (int n = 0; n < 60; ++n) entrance.guests.spawn(entrance.log_in({10s, 0ms}));
    entrance.run(9s);
    CHECK(entrance.in == 18);
    entrance.run(60s);
    CHECK(entrance.in == 0);
    CHECK(entrance.in_most == 18);
}

TEST_CASE("a program that does nothing makes room, and counts again when it goes on",
          "[login_gate]") {
    Entrance entrance(1);
    const auto ssh = std::make_shared<FakeCarrier>();
    entrance.guests.spawn(entrance.log_in_by(ssh));
    for (int n = 0; n < 3; ++n) entrance.others.spawn(entrance.log_in({1ms, 400ms}));
    for (int n = 0; n < 20; ++n) {
        entrance.run(100ms);
        *ssh->busy += 1ms;
    }
    CHECK(entrance.in == 1);  // it computes
    entrance.run(2 * kLook + 100ms);
    CHECK(entrance.in == 2);
    *ssh->busy += 1ms;
    entrance.run(2 * kLook - 200ms);
    CHECK(entrance.in == 1);  // those that had begun have ended, and none has followed
    SECTION("also if it waits again") {
        entrance.run(kLook - 200ms);
        CHECK(entrance.in == 2);
    }
    SECTION("or ends") {
        entrance.guests.stop();
        entrance.run(200ms);
        CHECK(entrance.in == 2);
    }
    SECTION("and who is not known to wait does not") {
        ssh->busy.reset();
        entrance.run(5s);
        CHECK(entrance.in == 1);
    }
}

TEST_CASE("a program that waits for a host behind another machine keeps no others from that",
          "[login_gate]") {
    Entrance entrance(128);
    for (int n = 0; n < 100; ++n)
        entrance.guests.spawn(entrance.log_in_by(std::make_shared<FakeCarrier>(), "gate"));
    entrance.run(kLook - 100ms);
    CHECK(entrance.in == 8);
    entrance.others.spawn(entrance.log_in({}));  // which nothing leads to
    entrance.run(50ms);
    CHECK(entrance.worked_last > Deadline{});
    entrance.run(4s);
    CHECK(entrance.in == 8);  // it may be the other machine that is slow
    entrance.run(1s);
    CHECK(entrance.in == 16);
    entrance.run(60s);
    CHECK(entrance.in_most == 72);
}

TEST_CASE("hosts that wait for copies from each other keep no others from logging in",
          "[login_gate]") {
    Entrance entrance(128);
    const Deadline began = Clock::now();
    for (int n = 0; n < 300; ++n) entrance.guests.spawn(entrance.log_in_and_fetch(5s));
    entrance.run(1s);
    CHECK(entrance.in == 300);
    CHECK(entrance.working_most == 128);
    CHECK(entrance.worked_last - began <= 3 * kLogIn + 1ms);
    SECTION("and are done at the same time") {
        entrance.run(4s + kStart + 100ms);
        CHECK(entrance.in == 0);
    }
    SECTION("and when they start their agents nobody follows until there is room") {
        entrance.run(4s + 40ms);  // all of them have their copies, and start
        const Deadline came = Clock::now();
        entrance.others.spawn(entrance.log_in({}));
        entrance.run(1s);
        CHECK(entrance.in == 0);
        CHECK(entrance.worked_last - came >= kStart / 2);
    }
    entrance.in = 0;
    for (int n = 0; n < 200; ++n) entrance.others.spawn(entrance.stay());
    entrance.run(1s);
    CHECK(entrance.in == 128);
}

TEST_CASE("who is let in behind a jump host, and waits for its copy, makes room there at once",
          "[login_gate]") {
    Entrance entrance(128);
    for (int n = 0; n < 100; ++n) entrance.guests.spawn(entrance.log_in_and_fetch(5s, "gate"));
    entrance.run(1s);
    CHECK(entrance.in == 72);
    CHECK(entrance.working_most == 8);
    entrance.run(20s);
    CHECK(entrance.in == 0);
    CHECK(entrance.in_most == 72);
}

TEST_CASE("who waits at a gate that is closed is told so, and a relay takes who waits for it",
          "[login_gate]") {
    asio::io_context io(1);
    bool is_open = true;
    LoginGate gate(io.get_executor(), 1, [&is_open] { return is_open; });
    const auto ask = [](LoginPass& pass, std::optional<HostId> relay,
                        std::optional<LoginTurn>& told) -> asio::awaitable<void> {
        told = co_await pass.wait("", relay);
    };
    std::optional<LoginTurn> first, second, third;
    LoginPass one(gate), two(gate), three(gate);
    TaskGroup tasks(io.get_executor());
    tasks.spawn(ask(one, HostId{1}, first));
    tasks.spawn(ask(two, HostId{1}, second));
    tasks.spawn(ask(three, HostId{2}, third));
    io.poll();
    CHECK(first == LoginTurn::own);
    CHECK_FALSE(second.has_value());
    CHECK(gate.hand_over(HostId{1}));
    CHECK_FALSE(gate.hand_over(HostId{1}));
    io.poll();
    CHECK(second == LoginTurn::given);
    CHECK_FALSE(third.has_value());
    is_open = false;
    gate.look();
    io.poll();
    CHECK(third == LoginTurn::over);
}

}  // namespace dtrun::transport
