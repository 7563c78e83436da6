#include "tests/support/catch.h"
#include "worker/client/step/roster.h"

#include <thread>

namespace dtrun::embedded {

using namespace std::chrono_literals;

TEST_CASE("a step begins with its last rank", "[client][step]") {
    StepRoster roster(3);
    CHECK(roster.is_missing(Rank{2}));
    CHECK_FALSE(roster.come(Rank{0}));
    CHECK_FALSE(roster.come(Rank{2}));
    CHECK_FALSE(roster.is_missing(Rank{2}));
    CHECK(roster.come(Rank{1}));
    CHECK_FALSE(roster.end_if_missing(1s).has_value());
    CHECK_FALSE(roster.take_end().has_value());
}

TEST_CASE("a step that rank 0 has given up does not begin", "[client][step]") {
    StepRoster roster(2);
    CHECK_FALSE(roster.come(Rank{0}));
    CHECK(roster.end_if_missing(1'500ms) == "rank 1 of 2 has not come within 1.5 s");
    CHECK_FALSE(roster.come(Rank{1}));
    CHECK(roster.take_end() == "rank 0: rank 1 of 2 has not come within 1.5 s");
    CHECK_FALSE(roster.take_end().has_value());
}

TEST_CASE("missing ranks are named with what keeps them away", "[client][step]") {
    StepRoster roster(4);
    roster.come(Rank{0});
    roster.set_problem(" (rank 0: accept: Too many open files)");
    CHECK(roster.end_if_missing(1s) ==
          "ranks 1, 2 and 3 of 4 have not come (rank 0: accept: Too many open files) within 1.0 s");
}

TEST_CASE("a stop waits until the end has been told", "[client][step]") {
    StepRoster roster(2);
    roster.end("enough");
    roster.end("another reason");
    roster.stop();
    CHECK_FALSE(roster.is_stopped());
    CHECK(roster.take_end() == "enough");
    CHECK(roster.is_stopped());
}

TEST_CASE("rank 0 waits until the others have gone", "[client][step]") {
    StepRoster roster(3);
    CHECK(roster.wait_for_others({}));  // nobody has come
    for (const Rank rank : all_ranks(3)) roster.come(rank);
    CHECK(roster.wait_for_others({now() + 10ms, {}}).error().code == DTRUN_TIMED_OUT);
    const WaitContext none{Moment::max(), [] { return true; }};
    CHECK(roster.wait_for_others(none).error().code == DTRUN_CANCELLED);
    std::thread leaves([&] {
        roster.go(Rank{0});
        roster.go(Rank{1});
        roster.go(Rank{2});
    });
    CHECK(roster.wait_for_others({}));
    leaves.join();
}

}  // namespace dtrun::embedded
