#include "tests/support/catch.h"
#include "worker/client/step/strangers.h"

namespace dtrun::embedded {

using namespace std::chrono_literals;

TEST_CASE("strangers are late in the order in which they came", "[client][step]") {
    const Moment start{};
    Strangers strangers;
    CHECK(strangers.next() == Moment::max());
    CHECK_FALSE(strangers.late(start + 1h).has_value());
    strangers.add(1, start + 1s);
    strangers.add(2, start + 2s);
    strangers.add(3, start + 3s);
    strangers.remove(1);  // it has proved itself
    strangers.remove(7);
    CHECK(strangers.next() == start + 2s);
    CHECK_FALSE(strangers.late(start + 1s).has_value());
    CHECK(strangers.late(start + 2s) == PeerId{2});
    strangers.remove(2);
    CHECK(strangers.late(start + 3s) == PeerId{3});
}

TEST_CASE("for one stranger too many the oldest goes", "[client][step]") {
    Strangers strangers;
    for (PeerId id = 1; id < Strangers::kMax; ++id) strangers.add(id, Moment{});
    CHECK_FALSE(strangers.excess().has_value());
    strangers.add(Strangers::kMax, Moment{});
    CHECK(strangers.excess() == PeerId{1});
    strangers.remove(5);
    CHECK_FALSE(strangers.excess().has_value());
}

}  // namespace dtrun::embedded
