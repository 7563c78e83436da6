#include "tests/support/catch.h"
#include "worker/agent/hang_detector.h"

namespace dtrun {

using namespace agent;
using namespace std::chrono_literals;

namespace {

Section begins(std::string name, std::uint64_t limit_ms) {
    return {Section::Kind::begin, std::move(name), limit_ms};
}

}  // namespace

TEST_CASE("a section that takes too long is told once", "[agent][sections]") {
    HangDetector detector;
    const Deadline now{};
    CHECK(detector.next_deadline() == Deadline::max());
    REQUIRE(detector.says(1, begins("evaluate", 500), now));
    CHECK(detector.next_deadline() == now + 500ms);
    CHECK(detector.take_overdue(now + 499ms).empty());
    const auto overdue = detector.take_overdue(now + 500ms);
    REQUIRE(overdue.size() == 1);
    CHECK(overdue[0].peer == 1);
    CHECK(overdue[0].name == "evaluate");
    CHECK(overdue[0].limit == 500ms);
    CHECK(detector.take_overdue(now + 1h).empty());
    CHECK(detector.next_deadline() == Deadline::max());
}

TEST_CASE("a section ends with its rank, and a beat gives all of them their time again",
          "[agent][sections]") {
    HangDetector detector;
    const Deadline now{};
    REQUIRE(detector.says(1, begins("outer", 1'000), now));
    REQUIRE(detector.says(1, begins("inner", 100), now));
    REQUIRE(detector.says(2, begins("inner", 100), now));
    REQUIRE(detector.says(1, {Section::Kind::beat, {}, 0}, now + 90ms));
    REQUIRE(detector.says(2, {Section::Kind::end, "inner", 0}, now + 90ms));
    CHECK(detector.next_deadline() == now + 190ms);
    detector.left(1);
    CHECK(detector.next_deadline() == Deadline::max());
}

TEST_CASE("a rank cannot make an agent remember any number of sections", "[agent][sections]") {
    HangDetector detector;
    const Deadline now{};
    for (std::size_t i = 0; i < HangDetector::kOfPeerMax; ++i)
        REQUIRE(detector.says(1, begins(std::to_string(i), 1), now));
    CHECK_FALSE(detector.says(1, begins("one more", 1), now));
    CHECK(detector.says(1, begins("0", 1), now));
    CHECK(detector.says(2, begins("one more", UINT64_MAX), now));
    CHECK_FALSE(detector.says(2, begins("", 1), now));
    CHECK_FALSE(detector.says(2, begins(std::string(257, 'x'), 1), now));
}

}  // namespace dtrun
