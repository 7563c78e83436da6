#include "rendezvous/job/rank_map.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"

namespace dtrun {
namespace {

using Nodes = std::vector<std::uint32_t>;

/// There and back again.
std::vector<RankBlock> map_of(const Nodes& nodes, std::uint32_t node_count) {
    const std::vector<RankBlock> map = rank_map(nodes);
    const auto back = nodes_of_ranks(map, static_cast<std::uint32_t>(nodes.size()), node_count);
    REQUIRE(back.has_value());
    CHECK(*back == nodes);
    return map;
}

}  // namespace

TEST_CASE("a map of ranks is short for the usual placements", "[rank_map]") {
    using Map = std::vector<RankBlock>;
    CHECK(map_of({0, 0, 0, 0, 1, 1, 1, 1}, 2) == Map{{0, 2, 4}});
    CHECK(map_of({0, 0, 0, 1, 1}, 2) == Map{{0, 1, 3}, {1, 1, 2}});
    CHECK(map_of({0, 1, 0, 1, 0, 1}, 2) == Map{{0, 2, 1}});
    CHECK(map_of({0, 1, 2, 0, 1, 0}, 3) == Map{{0, 3, 1}, {0, 2, 1}, {0, 1, 1}});
    CHECK(map_of({0, 0, 1, 2, 2}, 3) == Map{{0, 1, 2}, {1, 1, 1}, {2, 1, 2}});
    CHECK(map_of({}, 0).empty());
}

TEST_CASE("a map of ranks with hosts that there are not is refused", "[rank_map]") {
    const auto refused = [](std::vector<RankBlock> map) {
        return !nodes_of_ranks(map, 4, 2).has_value();
    };
    CHECK(refused({}));
    CHECK(refused({{2, 1, 1}}));
    CHECK(refused({{1, 2, 1}}));
    CHECK(refused({{0, 0xffff'ffff, 1}}));
    CHECK(refused({{0, 1, 0}}));
    CHECK(refused({{0, 0, 1}}));
}

}  // namespace dtrun
