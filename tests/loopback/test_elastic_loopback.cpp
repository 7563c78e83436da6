// What becomes of an elastic job when hosts and ranks are lost: each case in many orders of events.

#include "launcher/plan/exit_code.h"
#include "tests/loopback/many_orders.h"
#include "tests/support/catch.h"

#include <csignal>

namespace dtrun::loopback {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using Worlds = std::vector<std::string>;

/// Four hosts with two ranks each, which run for a minute; at least `min` ranks.
Script elastic(int min) {
    Script script;
    script.ranks_on_host = {2, 2, 2, 2};
    for (std::uint32_t rank = 0; rank < 8; ++rank) script.ranks[rank].life = 60s;
    script.options = [min](plan::Options& options) {
        options.elastic.emplace().ranks_min = min;
        options.world_size = 8;
    };
    return script;
}

TEST_CASE("an elastic job to which nothing happens is as any other", "[loopback]") {
    in_many_orders(10, elastic(4), [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started == Worlds{"1: 00112233"});
        CHECK(ending.shown.empty());
    });
}

TEST_CASE("ranks of hosts that are left go on when one is lost, in their order", "[loopback]") {
    Script script = elastic(4);
    SECTION("because it has lost its power") {
        script.hosts[HostId{1}].loses_power = 10s;
    }
    SECTION("because it is cut off") {
        script.hosts[HostId{1}].cut_off = 10s;
    }
    SECTION("because its agent was killed") {
        script.hosts[HostId{1}].agent_killed = 10s;
    }
    SECTION("because its network delivers nothing") {
        script.hosts[HostId{1}].stalled = {10s, 1h};
        script.hosts[HostId{1}].stalled_way = GENERATE(Way::both, Way::to_host, Way::from_host);
    }
    script.hosts[HostId{1}].login = Login::works;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        REQUIRE(ending.started.size() >= 2);
        CHECK(ending.started[0] == "1: 00112233");
        CHECK(ending.started[1] == "2: 002233");
        CHECK_THAT(ending.shown, Contains("host h1 lost: ") &&
                                     Contains("generation 2: 6 ranks on h0, h2 and h3"));
    });
}

TEST_CASE("a host that has its power again takes part again, as the last", "[loopback]") {
    Script script = elastic(4);
    script.hosts[HostId{0}].loses_power = 10s;
    script.hosts[HostId{0}].gets_power = 12s;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started == Worlds{"1: 00112233", "2: 112233", "3: 11223300"});
        CHECK(ending.took < 100s);
        // What is shown of it forgets that it was lost.
        const boost::json::value& host = ending.view.at("hosts").at(0);
        CHECK(host.at("state") == "left");
        CHECK_FALSE(host.as_object().contains("why"));
    });
}

TEST_CASE("a host that comes back unhealthy is left alone until it is healthy, and told once",
          "[loopback]") {
    Script script = elastic(4);
    for (auto& [rank, does] : script.ranks) does.life = 300s;
    const auto elastic_options = script.options;
    script.options = [elastic_options](plan::Options& options) {
        elastic_options(options);
        options.health_check = "check";
    };
    script.hosts[HostId{0}].loses_power = 10s;
    script.hosts[HostId{0}].gets_power = 12s;
    script.hosts[HostId{0}].unhealthy = {11s, 60s};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started == Worlds{"1: 00112233", "2: 112233", "3: 11223300"});
        const std::string complaint = "h0: --health-check: ended with exit code 1: no disk";
        const std::size_t told = ending.shown.find(complaint);
        REQUIRE(told != std::string::npos);
        CHECK(ending.shown.find(complaint, told + 1) == std::string::npos);
    });
}

TEST_CASE("a health check may take longer than a log-in, and ends a job of fixed size if it fails",
          "[loopback]") {
    Script script;
    script.options = [](plan::Options& options) { options.health_check = "check"; };
    script.hosts[HostId{1}].check_takes = 50s;
    SECTION("all are healthy") {
        in_many_orders(5, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.started == Worlds{"1: 0011"});
        });
    }
    SECTION("one is not") {
        script.hosts[HostId{1}].unhealthy = {0s, 1h};
        in_many_orders(5, script, [](const Ending& ending) {
            CHECK(ending.code == plan::kExitAgent);
            CHECK(ending.started.empty());
            CHECK_THAT(ending.shown,
                       Contains("h1: --health-check: ended with exit code 1: no disk"));
        });
    }
}

TEST_CASE("a rank that was killed is started again with all others", "[loopback]") {
    Script script = elastic(4);
    script.attempts[{1, 3}] = {.life = 5s, .signal = SIGKILL};
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started == Worlds{"1: 00112233", "2: 00112233"});
        CHECK_THAT(ending.shown, Contains("rank 3 on h1") && Contains("SIGKILL"));
    });
}

TEST_CASE("a program that fails by itself each time ends an elastic job with its own code",
          "[loopback]") {
    Script script = elastic(4);
    for (const std::uint32_t rank : {1u, 4u, 6u}) script.ranks[rank] = {.life = 2s, .code = 9};
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 9);
        CHECK(ending.started.size() >= 3);  // more if all three were in one slot
        CHECK_THAT(ending.shown, Contains("3 ranks in a row have failed"));
    });
}

TEST_CASE("two hosts that are lost at about the same time cost one or two generations",
          "[loopback]") {
    Script script = elastic(4);
    script.hosts[HostId{0}].loses_power = 10s;
    script.hosts[HostId{2}].loses_power = 10'200ms;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started.back() == fmt::format("{}: 1133", ending.started.size()));
        CHECK(ending.started.size() <= 3);
    });
}

TEST_CASE("below the minimum an elastic job waits for hosts, and ends if none comes",
          "[loopback]") {
    Script script = elastic(8);
    script.hosts[HostId{2}].loses_power = 10s;
    auto options = script.options;
    script.options = [options](plan::Options& asked) {
        options(asked);
        asked.elastic->timeout = 45s;
    };
    SECTION("one comes") {
        script.hosts[HostId{2}].gets_power = 20s;
        in_many_orders(10, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.started == Worlds{"1: 00112233", "2: 00113322"});
        });
    }
    SECTION("none comes") {
        in_many_orders(10, script, [](const Ending& ending) {
            CHECK(ending.code == plan::kExitCannotGoOn);
            CHECK(ending.took < 65s);
            CHECK_THAT(ending.shown,
                       Contains("6 of 8 ranks are there; waiting for 2 more; h2 lost: ") &&
                           Contains(" (until ") && Contains(", --elastic-timeout)") &&
                           Contains("too few slots were there for 45 s, now 6 of the 8 that it "
                                    "needs (--elastic-timeout)"));
        });
    }
    SECTION("or until Ctrl-C") {
        script.signals = {{25s, SIGINT}};
        in_many_orders(10, script, [](const Ending& ending) {
            CHECK(ending.code == 130);
            CHECK(ending.took < 32s);
        });
    }
}

TEST_CASE("an elastic job starts without hosts that cannot be reached, if there are enough",
          "[loopback]") {
    Script script = elastic(4);
    script.hosts[HostId{1}].login = Login::refused;
    auto options = script.options;
    script.options = [options](plan::Options& asked) {
        options(asked);
        asked.world_size = 6;
    };
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started == Worlds{"1: 002233"});
    });
}

TEST_CASE("an elastic job that cannot start anywhere says why at once", "[loopback]") {
    Script script = elastic(4);
    for (const std::uint32_t host : {0u, 1u, 2u, 3u})
        script.hosts[HostId{host}].login = Login::refused;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitAuthentication);
        CHECK(ending.took < 1s);
        CHECK_THAT(ending.shown, Contains("cannot start: 4 of 4 hosts failed"));
    });
}

TEST_CASE("a host that is silent for less than the timeout, or far away, costs nothing",
          "[loopback]") {
    Script script = elastic(4);
    script.hosts[HostId{2}].stalled = {10s, 12s};
    script.hosts[HostId{3}].slow = 200ms;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started == Worlds{"1: 00112233"});
    });
}

TEST_CASE("hosts that are listed while a job runs join it, and delisted ones are left",
          "[loopback]") {
    Script script = elastic(2);
    script.hosts[HostId{3}].listed = 10s;
    script.options = [](plan::Options& options) {
        options.elastic.emplace().ranks_min = 2;
        options.world_size = 6;
    };
    SECTION("as the last") {
        in_many_orders(20, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.started == Worlds{"1: 001122", "2: 00112233"});
        });
    }
    SECTION("in any number of times") {
        script.hosts[HostId{0}].delisted = 20s;
        script.hosts[HostId{0}].relisted = 30s;
        in_many_orders(20, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.started == Worlds{"1: 001122", "2: 00112233", "3: 112233", "4: 11223300"});
        });
    }
    SECTION("unless they cannot be reached") {
        script.hosts[HostId{3}].login = Login::refused;
        in_many_orders(20, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.started == Worlds{"1: 001122"});
            CHECK_THAT(ending.shown, Contains("h3: ssh: it does not know this key"));
        });
    }
    SECTION("or until they are lost while they are being left") {
        script.hosts[HostId{1}].delisted = 20s;
        script.hosts[HostId{1}].loses_power = 20s + 5ms;
        in_many_orders(20, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.started.back() == fmt::format("{}: 002233", ending.started.size()));
        });
    }
}

TEST_CASE("a job without hosts waits for them", "[loopback]") {
    Script script = elastic(4);
    for (const std::uint32_t host : {0u, 1u, 2u, 3u})
        script.hosts[HostId{host}].listed = 1s * (host + 5);
    script.options = [](plan::Options& options) {
        plan::ElasticOptions& asked = options.elastic.emplace();
        asked.ranks_min = 4;
        asked.discovery_script = "true";
        options.world_size = 4;
    };
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started.front() == "1: 0011");
        CHECK(ending.started.back().size() == std::string("2: 00112233").size());
    });
}

TEST_CASE("what is left of a lost host's agent is ended, and not what its next agent has started",
          "[loopback]") {
    Script script = elastic(4);
    const auto options = script.options;
    script.options = [options](plan::Options& asked) {
        options(asked);
        asked.elastic->cooldown_min = asked.elastic->cooldown_max = 1s;
    };
    script.hosts[HostId{1}].cut_off = 10s;
    script.hosts[HostId{1}].sweep_takes = 3'500ms;
    SECTION("on this host") {}
    SECTION("on a machine that the job has under two names") {
        script.hosts[HostId{2}].also = HostId{1};
    }
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.sweeps == 1);
        CHECK(ending.started == Worlds{"1: 00112233", "2: 002233", "3: 00223311"});
        CHECK_THAT(ending.shown, !Contains("SIGKILL"));
    });
}

TEST_CASE("ranks that all end well while they are warned have finished", "[loopback]") {
    Script script = elastic(2);
    for (auto& [rank, does] : script.ranks) does.life = 12s;
    script.hosts[HostId{3}].listed = 5s;
    script.options = [](plan::Options& options) {
        options.elastic.emplace().ranks_min = 2;
        options.elastic->warn_time = 20s;
        options.world_size = 6;
    };
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.started == Worlds{"1: 001122"});
        CHECK(ending.took < 20s);
        CHECK_THAT(ending.shown, Contains("all ranks start again in 20 s (--warn-time)"));
    });
}

TEST_CASE("an elastic job ends with no rank left, whatever happens to it", "[loopback]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    const auto draw = [&random](int most) {
        return milliseconds(std::uniform_int_distribution<int>(0, most)(random));
    };
    for (int i = 0; i < 60; ++i) {
        Script script = elastic(1);
        for (std::uint32_t host = 0; host < 4; ++host) {
            HostScript& does = script.hosts[HostId{host}];
            switch (random() % 7) {
                case 0:
                    does.loses_power = draw(40'000);
                    does.gets_power = *does.loses_power + draw(20'000);
                    break;
                case 1:
                    does.agent_killed = draw(40'000);
                    break;
                case 2:
                    does.cut_off = draw(40'000);
                    break;
                case 4:
                    does.delisted = draw(40'000);
                    does.relisted = *does.delisted + draw(5'000);
                    break;
                case 3: {
                    const milliseconds from = draw(40'000);
                    does.stalled = {from, from + draw(10'000)};
                    does.stalled_way = static_cast<Way>(random() % 3);
                    break;
                }
                default:
                    break;
            }
        }
        for (int failures = 0; failures < 3; ++failures)
            script.attempts[{1 + random() % 3, random() % 8}] = {.life = draw(20'000),
                                                                 .signal = SIGKILL};
        if (random() % 3 == 0) script.signals = {{draw(60'000), SIGTERM}};
        const Ending ending = simulate(script, random());
        INFO(ending.shown);
        CHECK(ending.left == 0);
        const bool ended_as_asked = !script.signals.empty() && ending.code == 143;
        CHECK((ending.code == 0 || ended_as_asked));
    }
}

}  // namespace
}  // namespace dtrun::loopback
