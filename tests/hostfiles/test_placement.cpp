#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "hostfiles/placement.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"

using namespace dtrun;

namespace {

/// The host of each rank: "s1 s1 s2", or the error's message.
std::string hosts_of(const Result<Placement>& placement) {
    if (!placement) return error_of(placement);
    std::string text;
    for (const RankPlace& place : placement->ranks) {
        const std::string& name = placement->hosts[static_cast<std::size_t>(place.host)].name;
        text += (text.empty() ? "" : " ") + name;
    }
    return text;
}

Result<Placement> place(std::string_view hosts, const PlacementRequest& request = {}) {
    return place_ranks(parse_hosts(hosts).value(), request);
}

}  // namespace

TEST_CASE("place_ranks fills a host, then goes to the next", "[hostfiles][placement]") {
    CHECK(hosts_of(place("a:2,b:1,c:2")) == "a a b c c");
    CHECK(hosts_of(place("a:2,b:1,c:2", {.world_size = 3})) == "a a b");
    CHECK(hosts_of(place("a:2,z:0,b:2")) == "a a b b");
    CHECK(hosts_of(place("a:2,b", {.world_size = 1})) == "a");
}

TEST_CASE("place_ranks takes hosts in turn when mapping by node", "[hostfiles][placement]") {
    CHECK(hosts_of(place("a:2,b:1,c:3", {.world_size = {}, .map_by = MapBy::node})) ==
          "a b c a c c");
    CHECK(hosts_of(place("a:2,z:0,c:3", {.world_size = 3, .map_by = MapBy::node})) == "a c a");
    CHECK(hosts_of(place("a:2,b:1,c:3", {.world_size = 2, .map_by = MapBy::node})) == "a b");
}

TEST_CASE("place_ranks keeps only hosts that run ranks", "[hostfiles][placement]") {
    const auto placement = place("z:0,a:1,y:0,b:1,c:1", {.world_size = 2}).value();
    CHECK(show(Result<HostList>(placement.hosts)) == "a:1, b:1");
    CHECK(placement.world_size() == 2);
    CHECK(placement.ranks[1].host == 1);
}

TEST_CASE("place_ranks numbers ranks locally and across unequal hosts", "[hostfiles][placement]") {
    // Rows: rank, host, local_rank, local_size, cross_rank, cross_size, slot
    CHECK(place("a:1,b:3,c:2").value().ranks == std::vector<RankPlace>{
                                                    {0, 0, 0, 1, 0, 3, 0},
                                                    {1, 1, 0, 3, 1, 3, 0},
                                                    {2, 1, 1, 3, 0, 2, 1},
                                                    {3, 1, 2, 3, 0, 1, 2},
                                                    {4, 2, 0, 2, 2, 3, 0},
                                                    {5, 2, 1, 2, 1, 2, 1},
                                                });
    CHECK(place("a:1,b:3", {.world_size = {}, .map_by = MapBy::node}).value().ranks ==
          std::vector<RankPlace>{
              {0, 0, 0, 1, 0, 2, 0},
              {1, 1, 0, 3, 1, 2, 0},
              {2, 1, 1, 3, 0, 1, 1},
              {3, 1, 2, 3, 0, 1, 2},
          });
}

TEST_CASE("place_ranks hands out the slot ids that a filter chose", "[hostfiles][placement]") {
    HostList hosts = parse_hosts("a:2,b:2").value();
    hosts[0].slot_ids = {5, 7};
    const auto slots_of = [&](const PlacementRequest& request) {
        std::vector<int> slots;
        const Placement placement = place_ranks(hosts, request).value();
        for (const RankPlace& rank : placement.ranks) slots.push_back(rank.slot);
        return slots;
    };
    CHECK(slots_of({}) == std::vector{5, 7, 0, 1});
    CHECK(slots_of({.world_size = 7, .oversubscribe = true}) == std::vector{5, 7, 5, 7, 0, 1, 0});
}

TEST_CASE("place_ranks oversubscribes round after round and keeps a host's ranks together",
          "[hostfiles][placement]") {
    CHECK(hosts_of(place("a:2,b:1", {.world_size = 4, .oversubscribe = true})) == "a a a b");
    CHECK(hosts_of(place("a:2,b:1", {.world_size = 6, .oversubscribe = true})) == "a a a a b b");
    CHECK(hosts_of(place("a:2,z:0,b:1", {.world_size = 7, .oversubscribe = true})) ==
          "a a a a a b b");
    CHECK(hosts_of(
              place("a:2,b:1", {.world_size = 6, .map_by = MapBy::node, .oversubscribe = true})) ==
          "a b a b a a");
    CHECK(hosts_of(place("a:2,b:1", {.world_size = 2, .oversubscribe = true})) == "a a");
    CHECK(hosts_of(place("a:2,b:1", {.world_size = {}, .oversubscribe = true})) == "a a b");
}

TEST_CASE("place_ranks respects max_slots when it oversubscribes", "[hostfiles][placement]") {
    const HostList hosts =
        parse_hostfile("a slots=2 max_slots=3\nz slots=0 max_slots=9\nb slots=1 max_slots=4", "hf")
            .value();
    const auto placed = [&](int n) {
        return hosts_of(place_ranks(hosts, {.world_size = n, .oversubscribe = true}));
    };
    CHECK(placed(4) == "a a a b");
    CHECK(placed(5) == "a a a b b");
    CHECK(placed(7) == "a a a b b b b");
    CHECK(placed(8) ==
          "8 ranks but max_slots allow 7 (a:3 + z:0 + b:4 = 7); lower -np, add hosts, or raise "
          "max_slots");
}

TEST_CASE("place_ranks shows the arithmetic when there are too few slots",
          "[hostfiles][placement]") {
    CHECK(error_of(place("s1:4,s2:4,s3:4,s4:4", {.world_size = 18})) ==
          "18 ranks but 16 slots (s1:4 + s2:4 + s3:4 + s4:4 = 16); lower -np, add hosts, or "
          "--oversubscribe");
    CHECK(error_of(place("n[1-100]:4", {.world_size = 401})) ==
          "401 ranks but 400 slots (n1:4 + n2:4 + n3:4 + n4:4 + n5:4 + n6:4 + n7:4 + n8:4 + 92 "
          "more hosts = 400); lower -np, add hosts, or --oversubscribe");
}

TEST_CASE("place_ranks refuses sizes that cannot be", "[hostfiles][placement]") {
    CHECK(error_of(place("a:4", {.world_size = 0})) == "0 ranks; -np must be at least 1");
    CHECK(error_of(place("a:4", {.world_size = -3})) == "-3 ranks; -np must be at least 1");
    CHECK(error_of(place("a:0,b:0", {.world_size = 1, .oversubscribe = true})) ==
          "no slots on 2 hosts; give at least one a slot, as in HOST:1");
    CHECK(error_of(place_ranks({}, {})) ==
          "no slots on 0 hosts; give at least one a slot, as in HOST:1");
    CHECK(error_of(place("n[1-1000]:65536")) == "more than 16777216 ranks; lower -np or the slots");
    CHECK(error_of(place("a:1", {.world_size = kRanksMax + 1, .oversubscribe = true})) ==
          "more than 16777216 ranks; lower -np or the slots");
}
