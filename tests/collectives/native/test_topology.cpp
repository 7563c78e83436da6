#include "collectives/topology.h"
#include "tests/support/catch.h"

using namespace dtrun::collectives;

TEST_CASE("Hosts are numbered by their lowest rank, and places within them", "[levels]") {
    const Topology topology(3, {7, 2, 7, 2, 2});
    CHECK(topology.hosts() == 2);
    CHECK(topology.host_of(0) == 0);
    CHECK(topology.host() == 1);
    CHECK(topology.place() == 1);
    CHECK(topology.places() == 3);
    CHECK(topology.rails() == 2);  // of the host with the fewest ranks
    CHECK(std::vector<std::uint32_t>(topology.ranks_of(1).begin(), topology.ranks_of(1).end()) ==
          std::vector<std::uint32_t>{1, 3, 4});
    CHECK_FALSE(topology.one_host());
    CHECK_FALSE(topology.is_apart());
}

TEST_CASE("Each rank is carried by one rail, with the others of its host beside it", "[levels]") {
    const Topology topology(3, {7, 2, 7, 2, 2});  // hosts of ranks 0, 2 and of 1, 3, 4
    CHECK(topology.carried_by(0) == std::vector<std::uint32_t>{0, 1, 4});
    CHECK(topology.carried_by(1) == std::vector<std::uint32_t>{2, 3});
}

TEST_CASE("Ranks that are apart have a host each, and one rank is both", "[levels]") {
    CHECK(Topology::apart(1, 3).is_apart());
    CHECK(Topology::apart(1, 3).hosts() == 3);
    CHECK(Topology().one_host());
    CHECK(Topology().is_apart());
}
