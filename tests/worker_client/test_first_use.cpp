#include "tests/support/catch.h"
#include "worker/client/callers.h"
#include "worker/client/first_use.h"

#include <atomic>
#include <thread>
#include <vector>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

/// A start that is under way, in a thread of its own, until it is told how it ends.
class SlowStart {
public:
    explicit SlowStart(FirstUse& use)
        : thread_([this, &use] { outcome = use.ensure([this] { return run(); }, {}); }) {
        while (!begun_) std::this_thread::yield();
    }
    ~SlowStart() { end({}); }

    void end(Outcome<void> how) {
        if (!thread_.joinable()) return;
        how_ = std::move(how);
        ended_ = true;
        thread_.join();
    }
    Outcome<void> outcome;

private:
    Outcome<void> run() {
        begun_ = true;
        while (!ended_) std::this_thread::yield();
        return how_;
    }
    std::atomic<bool> begun_{false};
    std::atomic<bool> ended_{false};
    Outcome<void> how_;
    std::thread thread_;
};

}  // namespace

TEST_CASE("what is started at its first use is started once", "[client][fork]") {
    FirstUse use;
    std::atomic<int> starts{0};
    const auto start = [&]() -> Outcome<void> {
        ++starts;
        return {};
    };
    std::vector<std::thread> threads;
    std::atomic<int> ready{0};
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] { ready += use.ensure(start, {}).has_value() ? 1 : 0; });
    for (std::thread& thread : threads) thread.join();
    CHECK(ready == 4);
    CHECK(starts == 1);
}

TEST_CASE("who waits for a first use has patience of its own", "[client][fork]") {
    FirstUse use;
    SlowStart slow(use);
    const auto start = []() -> Outcome<void> { return {}; };
    const auto late = use.ensure(start, {now() + 20ms, {}});
    CHECK(late.error().code == DTRUN_TIMED_OUT);
    const auto interrupted = use.ensure(start, {Moment::max(), [] { return true; }});
    CHECK(interrupted.error().code == DTRUN_CANCELLED);
}

TEST_CASE("threads that wait while another one finds nobody do not search again",
          "[client][fork]") {
    FirstUse use;
    SlowStart slow(use);
    std::atomic<int> starts{0};
    const auto start = [&]() -> Outcome<void> {
        ++starts;
        return {};
    };
    std::atomic<bool> asked{false};
    Outcome<void> waited;
    std::thread waits([&] {
        const WaitContext context{Moment::max(), [&] {
                                      asked = true;  // so it has been waiting
                                      return false;
                                  }};
        waited = use.ensure(start, context);
    });
    while (!asked) std::this_thread::yield();
    slow.end(failure(DTRUN_CLOSED, "nobody is there"));
    waits.join();
    CHECK(waited.error().text == "nobody is there");
    CHECK(starts == 0);
    CHECK(use.ensure(start, {}));  // a later call does
    CHECK(starts == 1);
}

TEST_CASE("a worker waits until nobody is in a call of it", "[client]") {
    Callers callers;
    callers.wait_until_none();
    std::atomic<bool> inside{true};
    std::optional<Callers::InCall> in_call(std::in_place, callers);
    std::thread leaves([&] {
        const Callers::InCall another(callers);
        std::this_thread::sleep_for(20ms);
        inside = false;
        in_call.reset();
    });
    callers.wait_until_none();
    CHECK_FALSE(inside);
    leaves.join();
}

}  // namespace dtrun::embedded
