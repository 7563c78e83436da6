#include "tests/support/catch.h"
#include "worker/agent/hang_detector.h"
#include "worker/agent/rank_stalls.h"
#include "worker/ranks/nested_watch.h"

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

TEST_CASE("what a rank says to wait for is known until it goes on, or has gone", "[agent][stall]") {
    RankStalls stalls;
    const Deadline now = Deadline() + 1h;
    const auto waits = [&stalls](Deadline at) {
        std::vector<std::string> told;
        std::vector<RankWait> all;
        const auto rank_of = [](PeerId peer) {
            return peer == 9 ? std::nullopt : std::optional(Rank{static_cast<std::uint32_t>(peer)});
        };
        stalls.add_waits(all, rank_of, at);
        for (const RankWait& wait : all) {
            CHECK((wait.stalled && wait.told));
            told.push_back(fmt::format("{} {} {}", wait.rank, wait.what, wait.waited_ms));
        }
        return told;
    };
    using Told = std::vector<std::string>;
    REQUIRE(stalls.says(1, {"a", 60'000}, now));
    REQUIRE(stalls.says(1, {"b\n", 0}, now));
    REQUIRE(stalls.says(9, {"a", 60'000}, now));  // it has no place any more
    CHECK(waits(now + 1s) == Told{"1 a 61000", "1 b\\x0a 1000"});
    REQUIRE(stalls.says(1, {"a", 0, true}, now));
    REQUIRE(stalls.says(1, {"never said", 0, true}, now));
    CHECK(waits(now) == Told{"1 b\\x0a 0"});
    stalls.left(1);
    CHECK(waits(now).empty());
    CHECK_FALSE(stalls.says(1, {"", 0}, now));
    CHECK_FALSE(stalls.says(1, {std::string(1'025, 'x'), 0}, now));
    for (std::size_t i = 0; i < RankStalls::kOfPeerMax; ++i)
        REQUIRE(stalls.says(1, {std::to_string(i), UINT64_MAX}, now));
    CHECK_FALSE(stalls.says(1, {"one more", 0}, now));
    CHECK(stalls.says(1, {"0", 1}, now));
}

TEST_CASE("ranks are looked at often while they start, and what two looks find is told",
          "[agent][stall]") {
    ranks::NestedWatch watch;
    const Deadline start = Deadline() + 1h;
    CHECK_FALSE(watch.is_due(start + 24h));
    watch.begin(start);
    CHECK_FALSE(watch.is_due(start + 2s));
    CHECK(watch.is_due(start + 3s));
    RankWait wait;
    wait.what = "torch's store elsewhere";
    watch.found({wait}, start + 3s);
    CHECK(watch.waits(start + 3s).empty());
    CHECK(watch.is_due(start + 5s));
    watch.found({wait}, start + 5s);
    REQUIRE(watch.waits(start + 6s).size() == 1);
    CHECK(watch.waits(start + 6s).front().waited_ms == 3'000);
    watch.found({}, start + 7s);
    CHECK(watch.waits(start + 7s).empty());
    int looks = 0;
    for (Deadline now = start + 8s; now < start + 24h; now += 1s)
        if (watch.is_due(now)) {
            watch.found({}, now);
            ++looks;
        }
    CHECK(looks < 240);
    watch.found({wait}, start + 24h);
    watch.begin(start + 25h);  // another generation
    watch.found({wait}, start + 26h);
    CHECK(watch.waits(start + 26h).empty());
}

TEST_CASE(
    "what ranks wait for as they start is told within ten seconds, also if one look misses it",
    "[agent][stall]") {
    const Deadline start = Deadline() + 1h;
    RankWait wait;
    wait.what = "torch's store elsewhere";
    for (int since = 0; since < 100; ++since)
        for (int missed = 0; missed < 3; ++missed) {  // of the looks since then
            CAPTURE(since, missed);
            ranks::NestedWatch watch;
            watch.begin(start);
            const Deadline begun = start + std::chrono::seconds(since);
            const bool is_told = [&] {
                int looks = 0;
                for (Deadline now = start; now <= begun + 9s; now += 1s) {  // a beat may be late
                    if (watch.is_due(now)) {
                        const bool is_seen = now > begun && looks++ != missed;
                        watch.found(is_seen ? std::vector{wait} : std::vector<RankWait>{}, now);
                    }
                    if (!watch.waits(now).empty()) return true;
                }
                return false;
            }();
            CHECK(is_told);
        }
}

}  // namespace dtrun
