// Elastic jobs whose processes live through several worlds: what becomes of them when processes and hosts are lost.

#include "tests/loopback/many_orders.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <csignal>

namespace dtrun::loopback {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using Worlds = std::vector<std::string>;

constexpr SlotIndex p0{0}, p1{1};

/// Hosts with two ranks each, which import for a while and then run for a minute; at least `min` ranks.
Script living(std::uint32_t hosts, int min, milliseconds import = 2s) {
    Script script;
    script.ranks_on_host.assign(hosts, 2);
    for (std::uint32_t rank = 0; rank < 2 * hosts; ++rank)
        script.ranks[rank] = {.life = 60s, .elastic = true, .import = import};
    script.options = [min, hosts](plan::Options& options) {
        options.elastic.emplace().ranks_min = min;
        options.elastic->ranks_max = static_cast<int>(2 * hosts);
    };
    return script;
}

TEST_CASE("ranks that live on go on without a lost one, and a new process joins them",
          "[loopback]") {
    Script script = living(2, 2);
    script.kills = {{10s, HostId{1}, p0}};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.met == Worlds{"1: 0011", "2: 001", "3: 0011"});
    });
}

TEST_CASE("all start again when the last rank is killed while others are prepared", "[loopback]") {
    Script script = living(1, GENERATE(1, 2));
    script.kills = {{10s, HostId{0}, p1}, {11'500ms, HostId{0}, p0}};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.met.back() == fmt::format("{}: 00", ending.met.size()));
    });
}

TEST_CASE("a newcomer that is ready after a rank has ended well disturbs nobody", "[loopback]") {
    Script script = living(2, 1);
    script.hosts[HostId{1}].listed = 10s;
    script.ranks[1].life = 14s;  // while the newcomers import
    script.ranks[2].import = script.ranks[3].import = GENERATE(1s, 2s, 3s, 4s);
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.took > 59s);
        const auto ended_well = [&ending](std::string_view rank) {
            return std::ranges::any_of(ending.log, [rank](const std::string& line) {
                return line.contains(rank) && line.contains("ended, code 0 signal 0");
            });
        };
        CHECK(ended_well("rank 0 of h0"));
        CHECK(ended_well("rank 1 of h0"));
    });
}

TEST_CASE("whatever is killed, all ranks of the last world meet, and the job ends well",
          "[loopback]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    const auto draw = [&random](int most) {
        return milliseconds(std::uniform_int_distribution<int>(0, most)(random));
    };
    for (int i = 0; i < 60; ++i) {
        Script script = living(3, static_cast<int>(1 + random() % 3));
        for (auto& [rank, does] : script.ranks) does.import = draw(3'000);
        // Mostly shortly after each other: while survivors ask for places, and newcomers import.
        milliseconds when = 5s;
        for (int kills = 0; kills < 6; ++kills) {
            when += random() % 4 == 0 ? draw(8'000) : draw(1'500);
            script.kills.push_back({when, HostId(random() % 3), random() % 2 == 0 ? p0 : p1});
        }
        HostScript& does = script.hosts[HostId(random() % 3)];
        switch (random() % 5) {
            case 0:
                does.loses_power = draw(20'000);
                does.gets_power = *does.loses_power + draw(20'000);
                break;
            case 1:
                does.agent_killed = draw(20'000);
                break;
            case 2:
                does.delisted = draw(20'000);
                does.relisted = *does.delisted + draw(5'000);
                break;
            default:
                break;
        }
        const Ending ending = simulate(script, random());
        INFO(ending.shown);
        CHECK(ending.left == 0);
        CHECK(ending.code == 0);
        CHECK(ending.took < 200s);
    }
}

}  // namespace
}  // namespace dtrun::loopback
