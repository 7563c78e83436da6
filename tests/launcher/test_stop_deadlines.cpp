#include "launcher/head/stop_deadlines.h"
#include "tests/support/catch.h"

namespace dtrun {

using namespace head;
namespace {

using std::chrono::seconds;
using Hosts = std::vector<HostId>;

constexpr HostId first{0}, second{1}, third{2};

constexpr Deadline kStart{seconds(1'000)};
constexpr seconds kGrace{5};
constexpr Deadline kLate = kStart + kGrace + StopDeadlines::kLimit;

}  // namespace

TEST_CASE("nobody is late who was told nothing, or has time left", "[end]") {
    const Tree tree(2, 256);
    StopDeadlines answers(tree, 2);
    CHECK(answers.late(kStart).empty());
    answers.stop(kGrace, kStart);
    CHECK(answers.late(kLate - seconds(1)).empty());
    CHECK(answers.late(kLate) == Hosts{first, second});
}

TEST_CASE("a host whose ranks do not end for another generation is late, the others are not",
          "[end]") {
    const Tree tree(3, 256);
    StopDeadlines answers(tree, 3);
    answers.pause(2, kGrace, kStart);
    answers.paused(first, 2);
    answers.paused(third, 2);
    CHECK(answers.late(kLate) == Hosts{second});
    answers.paused(second, 2);
    CHECK(answers.late(kLate + seconds(99)).empty());
    answers.stop(kGrace, kLate + seconds(99));  // what they have answered before does not count
    CHECK(answers.late(kLate + seconds(200)) == Hosts{first, second, third});
}

TEST_CASE(
    "a host that the job goes on without is late alone, and not any more once it has joined again",
    "[end]") {
    const Tree tree(3, 256);
    StopDeadlines answers(tree, 3);
    answers.release(second, kGrace, kStart);
    CHECK(answers.late(kLate - seconds(1)).empty());
    CHECK(answers.late(kLate) == Hosts{second});
    answers.pause(2, kGrace, kLate);  // which the others answer
    answers.paused(first, 2);
    answers.paused(third, 2);
    CHECK(answers.late(kLate) == Hosts{second});
    answers.joined(second);
    CHECK(answers.late(kLate + seconds(99)).empty());
}

TEST_CASE("a host is not late while its output waits for our reader, nor is its relay", "[end]") {
    const Tree tree(9, 1);  // with relays for the others
    const auto hosts = all_hosts(9);
    const HostId behind = *std::ranges::find_if(
        hosts, [&tree](HostId host) { return tree.parent(host).has_value(); });
    StopDeadlines answers(tree, 9);
    answers.output(behind).add(100);
    answers.stop(kGrace, kStart);
    Hosts late = answers.late(kLate);
    CHECK(late.size() == 7);
    CHECK(std::ranges::count(late, behind) == 0);
    CHECK(std::ranges::count(late, *tree.parent(behind)) == 0);
    answers.output(behind).left(100, kLate);
    CHECK(answers.late(kLate + seconds(1)).size() == 7);
    CHECK(answers.late(kLate + StopDeadlines::kLimit).size() == 9);
}

}  // namespace dtrun
