#include "launcher/output/output_backlog.h"
#include "tests/support/catch.h"

namespace dtrun {

using namespace output;

using std::chrono::seconds;

TEST_CASE("an agent is not given up while our own reader keeps it from saying that it is done",
          "[output][end]") {
    const Deadline start{seconds(1'000)};
    const Deadline deadline = start + seconds(13);
    OutputBacklog output;
    CHECK(output.patience(deadline, seconds(8)) == deadline);
    output.add(300);
    CHECK(output.patience(deadline, seconds(8)) == Deadline::max());
    output.left(100, start + seconds(30));
    CHECK(output.patience(deadline, seconds(8)) == Deadline::max());
    output.left(200, start + seconds(60));  // it had no room until now
    CHECK(output.patience(deadline, seconds(8)) == start + seconds(68));
}

TEST_CASE("output that was read in time leaves the deadline as it is", "[output][end]") {
    const Deadline start{seconds(1'000)};
    OutputBacklog output;
    output.add(5);
    output.left(5, start);
    CHECK(output.patience(start + seconds(13), seconds(8)) == start + seconds(13));
}

TEST_CASE("what was read is credited once", "[output]") {
    OutputBacklog output;
    output.add(7);
    output.left(4, Deadline{});
    output.left(2, Deadline{});
    CHECK(output.take_credit() == 6);
    CHECK(output.take_credit() == 0);
}

}  // namespace dtrun
