#include "rendezvous/job/world.h"
#include "rendezvous/job/world_plan.h"
#include "tests/support/catch.h"

namespace dtrun {
namespace {

std::vector<SlotIndex> places(std::initializer_list<std::uint32_t> numbers) {
    std::vector<SlotIndex> places;
    for (const std::uint32_t number : numbers) places.push_back(SlotIndex{number});
    return places;
}

/// Each seat as "host.slot", with a '*' if its process is fresh.
std::string written(const std::vector<RankAssignment>& world) {
    std::string text;
    for (const RankAssignment& assigned : world)
        text += std::to_string(std::to_underlying(assigned.host)) + "." +
                std::to_string(std::to_underlying(assigned.rank.place)) +
                (assigned.fresh ? "* " : " ");
    return text;
}

}  // namespace

TEST_CASE("a world of fresh processes fills one host after the other", "[elastic]") {
    const auto world =
        plan_world({{HostId{0}, {}, places({0, 1})}, {HostId{1}, {}, places({0})}}, {8, {}});
    CHECK(written(world) == "0.0* 0.1* 1.0* ");
    CHECK(world[2].rank == RankSlot{Rank{2}, 0, 1, 2, 0, SlotIndex{0}});
    CHECK(world[1].rank == RankSlot{Rank{1}, 1, 0, 1, 0, SlotIndex{1}});
}

TEST_CASE("a process in a vacant place gets its local rank back, but never rank 0 from a survivor",
          "[elastic]") {
    CHECK(written(plan_world(
              {{HostId{0}, places({0, 2}), places({1})}, {HostId{1}, places({1}), places({0})}},
              {8, {}})) == "0.0 0.1* 0.2 1.0* 1.1 ");
    CHECK(written(plan_world({{HostId{0}, places({1, 2}), places({0})}}, {8, {}})) ==
          "0.1 0.2 0.0* ");
}

TEST_CASE("survivors have their ranks before newcomers have any", "[elastic]") {
    CHECK(written(plan_world(
              {{HostId{0}, places({0}), places({1, 2})}, {HostId{1}, places({0, 1}), places({2})}},
              {4, {}})) == "0.0 0.1* 1.0 1.1 ");
}

TEST_CASE("a world of whole hosts leaves out one that cannot give all its ranks", "[elastic]") {
    const WorldSizes whole{4, {}, 2};
    CHECK(written(plan_world({{HostId{0}, {}, places({0, 1})},
                              {HostId{1}, {}, places({1})},
                              {HostId{2}, {}, places({0, 1, 2})}},
                             whole)) == "0.0* 0.1* 2.0* 2.1* ");
    CHECK(written(plan_world({{HostId{0}, places({1}), places({0})}, {HostId{1}, {}, {}}},
                             whole)) == "0.1 0.0* ");
    // The third host is a spare.
    CHECK(plan_world({{HostId{0}, {}, places({0, 1})},
                      {HostId{1}, {}, places({0, 1})},
                      {HostId{2}, {}, places({0, 1})}},
                     whole)
              .back()
              .host == HostId{1});
}

TEST_CASE("a host whose processes are all fresh never has rank 0 while one lives elsewhere",
          "[elastic]") {
    const auto world = plan_world({{HostId{0}, {}, places({0, 1})},
                                   {HostId{1}, places({1, 0}), {}},
                                   {HostId{2}, places({0}), places({1})}},
                                  {8, {}});
    CHECK(written(world) == "1.0 1.1 2.0 2.1* 0.0* 0.1* ");
}

TEST_CASE("a world has at most as many ranks as are allowed, and the newest go first",
          "[elastic]") {
    const std::vector<HostOffer> hosts{{HostId{0}, places({0, 1}), {}},
                                       {HostId{1}, {}, places({0, 1, 2})}};
    CHECK(plan_world(hosts, {4, {}}).size() == 4);
    CHECK(written(plan_world(hosts, {8, {2, 3, 6}})) == "0.0 0.1 1.0* ");
    CHECK(plan_world(hosts, {8, {6, 8}}).empty());
    CHECK(allowed_size({8, {2, 4, 8}}, 7) == 4);
    CHECK(allowed_size({5, {2, 4, 8}}, 9) == 4);
}

TEST_CASE("each host of a world is told the names of all in one text, if they fit into one",
          "[elastic]") {
    PerHost<Member> members;
    for (const char* const name : {"n1", "n2", "n3"}) {
        Member& member = members.emplace_back();
        member.name = name;
        member.peer_address = "10.0.0.1";
    }
    const auto world = plan_world(
        {{HostId{0}, {}, places({0})}, {HostId{1}, {}, places({0})}, {HostId{2}, {}, places({0})}},
        {8, {}});
    const auto as_one = assign_world(
        1, world, members, false,
        +[](std::span<const std::string> names) { return "all " + std::to_string(names.size()); });
    const auto as_list = assign_world(
        1, world, members, false, +[](std::span<const std::string>) { return std::string(); });
    for (const HostId host : {HostId{0}, HostId{1}, HostId{2}}) {
        CHECK(as_one.at(host).nodelist == "all 3");
        CHECK(as_one.at(host).node_names.empty());
        CHECK(as_list.at(host).nodelist.empty());
        CHECK(as_list.at(host).node_names == std::vector<std::string>{"n1", "n2", "n3"});
    }
}

}  // namespace dtrun
