#include "tests/support/catch.h"
#include "worker/client/step/roll.h"

#include <thread>

namespace dtrun::embedded {

using namespace std::chrono_literals;

TEST_CASE("a step begins with its last rank", "[client][step]") {
    StepRoll roll(3);
    CHECK(roll.is_missing(Rank{2}));
    CHECK_FALSE(roll.come(Rank{0}));
    CHECK_FALSE(roll.come(Rank{2}));
    CHECK_FALSE(roll.is_missing(Rank{2}));
    CHECK(roll.come(Rank{1}));
    CHECK_FALSE(roll.end_if_missing(1s).has_value());
    CHECK_FALSE(roll.take_end().has_value());
}

TEST_CASE("a step that rank 0 has given up does not begin", "[client][step]") {
    StepRoll roll(2);
    CHECK_FALSE(roll.come(Rank{0}));
    CHECK(roll.end_if_missing(1'500ms) == "rank 1 of 2 has not come within 1.5 s");
    CHECK_FALSE(roll.come(Rank{1}));
    CHECK(roll.take_end() == "rank 0: rank 1 of 2 has not come within 1.5 s");
    CHECK_FALSE(roll.take_end().has_value());
}

TEST_CASE("missing ranks are named with what keeps them away", "[client][step]") {
    StepRoll roll(4);
    roll.come(Rank{0});
    roll.set_problem(" (rank 0: accept: Too many open files)");
    CHECK(roll.end_if_missing(1s) ==
          "ranks 1, 2 and 3 of 4 have not come (rank 0: accept: Too many open files) within 1.0 s");
}

TEST_CASE("a stop waits until the end has been told", "[client][step]") {
    StepRoll roll(2);
    roll.end("enough");
    roll.end("another reason");
    roll.stop();
    CHECK_FALSE(roll.is_stopped());
    CHECK(roll.take_end() == "enough");
    CHECK(roll.is_stopped());
}

TEST_CASE("rank 0 waits until the others have gone", "[client][step]") {
    StepRoll roll(3);
    CHECK(roll.wait_for_others({}));  // nobody has come
    for (const Rank rank : all_ranks(3)) roll.come(rank);
    CHECK(roll.wait_for_others({now() + 10ms, {}}).error().code == DTRUN_TIMED_OUT);
    const WaitContext none{Moment::max(), [] { return true; }};
    CHECK(roll.wait_for_others(none).error().code == DTRUN_CANCELLED);
    std::thread leaves([&] {
        roll.go(Rank{0});
        roll.go(Rank{1});
        roll.go(Rank{2});
    });
    CHECK(roll.wait_for_others({}));
    leaves.join();
}

}  // namespace dtrun::embedded
