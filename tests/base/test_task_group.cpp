#include "base/loop/task_group.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

namespace dtrun {
namespace {

asio::awaitable<void> wait_forever(asio::io_context& io, int& ended) {
    Timer never(io, Timer::time_point::max());
    co_await never.async_wait(use_tuple);
    ++ended;
}

asio::awaitable<bool> stop_and_join(TaskGroup& group) {
    group.stop();
    co_await group.join();
    co_return true;
}

/// Tells in its end, however it comes.
struct Telling {
    ~Telling() { told = true; }
    bool& told;
};

asio::awaitable<bool> hang(asio::io_context& io, bool& has_ended) {
    const Telling telling{has_ended};
    Timer never(io, Timer::time_point::max());
    for (;;) co_await never.async_wait(use_tuple);
}

asio::awaitable<bool> expires(asio::io_context& io) {
    Timer never(io, Timer::time_point::max());
    DeadlineGuard guard(never, after(std::chrono::milliseconds(10)));
    co_await never.async_wait(use_tuple);
    co_return guard.expired();
}

}  // namespace

TEST_CASE("stop ends what coroutines wait for, and join waits for all of them", "[task_group]") {
    asio::io_context io;
    TaskGroup group(io.get_executor());
    int ended = 0;
    for (int i = 0; i < 5; ++i) group.spawn(wait_forever(io, ended));
    io.poll();
    CHECK(group.size() == 5);
    CHECK(run_to_end(io, stop_and_join(group)));
    CHECK(ended == 5);
    CHECK(group.size() == 0);
}

TEST_CASE("what hangs in a test has ended when the test fails", "[task_group]") {
    asio::io_context io;
    bool has_ended = false;
    CHECK_FALSE(run_for_at_most(io, hang(io, has_ended), std::chrono::milliseconds(20)));
    CHECK(has_ended);
}

TEST_CASE("a coroutine spawned into a stopped group is stopped as well", "[task_group]") {
    asio::io_context io;
    TaskGroup group(io.get_executor());
    int ended = 0;
    group.stop();
    group.spawn(wait_forever(io, ended));
    CHECK(run_to_end(io, stop_and_join(group)));
    CHECK(ended == 1);
}

TEST_CASE("a deadline cancels what is pending, once", "[deadline]") {
    asio::io_context io;
    CHECK(run_to_end(io, expires(io)));
}

}  // namespace dtrun
