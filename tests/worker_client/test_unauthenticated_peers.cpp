#include "tests/support/catch.h"
#include "worker/client/step/unauthenticated_peers.h"

#include <set>

namespace dtrun::embedded {

using namespace std::chrono_literals;

TEST_CASE("strangers are late in the order in which they came", "[client][step]") {
    const Moment start{};
    UnauthenticatedPeers peers;
    CHECK(peers.next() == Moment::max());
    CHECK_FALSE(peers.late(start + 1h).has_value());
    peers.add(1, start + 1s);
    peers.add(2, start + 2s);
    peers.add(3, start + 3s);
    peers.remove(1);  // it has proved itself
    peers.remove(7);
    CHECK(peers.next() == start + 2s);
    CHECK_FALSE(peers.late(start + 1s).has_value());
    CHECK(peers.late(start + 2s) == PeerId{2});
    peers.remove(2);
    CHECK(peers.late(start + 3s) == PeerId{3});
}

TEST_CASE("for one stranger too many any of them goes", "[client][step]") {
    UnauthenticatedPeers peers;
    for (PeerId id = 1; id < UnauthenticatedPeers::kMax; ++id) peers.add(id, Moment{});
    CHECK_FALSE(peers.excess().has_value());
    peers.add(UnauthenticatedPeers::kMax, Moment{});
    std::set<PeerId> chosen;
    for (int i = 0; i < 100; ++i) chosen.insert(peers.excess().value());
    CHECK(chosen.size() > 50);
    peers.remove(5);
    CHECK_FALSE(peers.excess().has_value());
}

}  // namespace dtrun::embedded
