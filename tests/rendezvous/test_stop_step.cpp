#include "rendezvous/job/stop_step.h"
#include "tests/support/catch.h"

namespace dtrun {
namespace {

using namespace std::chrono_literals;

Heartbeat at_step(std::uint64_t fastest) {
    Heartbeat progress;
    progress.reporting = 4;
    progress.fastest_step = fastest;
    return progress;
}

}  // namespace

TEST_CASE("ranks that count no steps agree on none", "[elastic]") {
    StopStep stop;
    CHECK_FALSE(stop.observe({}, Deadline{} + 1s));
    CHECK(stop.agree() == 0);
}

TEST_CASE("the agreed step is farther ahead the faster ranks are", "[elastic]") {
    StopStep stop;
    const Deadline begun{};
    stop.observe(at_step(100), begun + 1s);
    CHECK(stop.agree() == 102);                   // nothing is known of their speed
    stop.observe(at_step(105), begun + 1'010ms);  // another host is a little ahead
    CHECK(stop.agree() == 107);
    stop.observe(at_step(110), begun + 2s);
    CHECK(stop.agree() == 110 + 2 + 10);
    stop.observe(at_step(111), begun + 12s);  // they do steps that take longer
    CHECK(stop.agree() == 111 + 2 + 1);
    stop.begin();
    CHECK(stop.agree() == 0);
}

TEST_CASE("a rank that was beyond the agreed step moves it once", "[elastic]") {
    StopStep stop;
    const Deadline begun{};
    stop.observe(at_step(100), begun + 1s);
    REQUIRE(stop.agree() == 102);
    CHECK_FALSE(stop.observe(at_step(102), begun + 2s));  // it leaves
    const auto later = stop.observe(at_step(103), begun + 3s);
    REQUIRE(later);
    CHECK(*later > 103);
    CHECK_FALSE(stop.observe(at_step(500), begun + 4s));
}

}  // namespace dtrun
