// What dtrun says when ranks do not meet in the stores of their frameworks. These ranks speak what the clients of torch
// and of Horovod do; real ones are in tests/cluster.

#include "tests/loopback/many_orders.h"
#include "tests/support/catch.h"

#include <csignal>

namespace dtrun::loopback {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using Meets = RankScript::Meets;

/// Three ranks on three hosts, which meet.
Script meeting(Meets meets) {
    Script script;
    script.ranks_on_host = {1, 1, 1};
    for (const std::uint32_t rank : {0, 1, 2}) script.ranks[rank].meets = meets;
    const bool torch = meets == Meets::torch;
    script.options = [torch](plan::Options& options) {
        options.contracts = {"plain", torch ? "torch" : "horovod"};
        options.torch_store = TorchStore::proxy;
    };
    return script;
}

std::string waited_for(Meets meets) {
    return meets == Meets::torch ? "default_pg/0/" : "to call hvd.init()";
}

TEST_CASE("ranks that meet in the store of their framework end well, however late one of them is",
          "[loopback][frameworks]") {
    for (const Meets meets : {Meets::torch, Meets::horovod}) {
        Script script = meeting(meets);
        script.ranks[2].import = 8s;
        in_many_orders(10, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.took > 8s);
        });
    }
}

TEST_CASE("ranks of a host that is not heard for a moment are not taken for ones that still wait",
          "[loopback][frameworks]") {
    Script script = meeting(Meets::torch);
    script.ranks[2].import = 4s;
    script.ranks[1].life = 6s;
    script.hosts[HostId{1}].stalled = {3'990ms, 6'800ms};
    script.hosts[HostId{1}].stalled_way = Way::from_host;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.took > 10s);
    });
}

TEST_CASE("a rank that fails before it meets the others ends the job, and who waited is told",
          "[loopback][frameworks]") {
    for (const Meets meets : {Meets::torch, Meets::horovod}) {
        Script script = meeting(meets);
        script.ranks[2] = {.life = 4s, .code = 3};
        in_many_orders(10, script, [meets](const Ending& ending) {
            CHECK(ending.code == 3);
            CHECK(ending.took < 6s);
            CHECK_THAT(ending.shown, Contains("rank 2 on h2") && Contains("exited with code 3"));
            CHECK_THAT(ending.shown,
                       Contains("who waited then, and for what:") && Contains(waited_for(meets)));
        });
    }
}

TEST_CASE("a rank that ends well without having met the others is named, and they do not wait",
          "[loopback][frameworks]") {
    for (const Meets meets : {Meets::torch, Meets::horovod}) {
        Script script = meeting(meets);
        script.ranks[2] = {.life = 1s};
        in_many_orders(10, script, [meets](const Ending& ending) {
            CHECK(ending.code != 0);
            CHECK(ending.took < 6s);
            CHECK_THAT(ending.shown, Contains("rank 2 on h2") &&
                                         Contains("ended without having met the others") &&
                                         Contains(waited_for(meets)));
        });
    }
}

TEST_CASE("ranks of torch that were told another world size do not wait for one that is none",
          "[loopback][frameworks]") {
    Script script = meeting(Meets::torch);
    for (const std::uint32_t rank : {0, 1, 2}) script.ranks[rank].counts = 4;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code != 0);
        CHECK(ending.took < 6s);
        CHECK_THAT(ending.shown, Contains("world size") && Contains("wait for"));
    });
}

TEST_CASE("a rank of Horovod that was told another world size ends the job, and the reason is said",
          "[loopback][frameworks]") {
    Script script = meeting(Meets::horovod);
    for (const std::uint32_t rank : {0, 1}) script.ranks[rank].life = 1h;
    script.ranks[2].counts = 4;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 128 + SIGABRT);
        CHECK_THAT(ending.shown, Contains("rank 2 counts 4 ranks, but the job has 3"));
    });
}

TEST_CASE("with --init-timeout ranks wait so long and no longer, and the one that hangs is named",
          "[loopback][frameworks]") {
    for (const Meets meets : {Meets::torch, Meets::horovod}) {
        Script script = meeting(meets);
        script.ranks[2] = {.life = 1h};
        const auto given = script.options;
        script.options = [given](plan::Options& options) {
            given(options);
            options.init_timeout = 2s;
        };
        in_many_orders(10, script, [](const Ending& ending) {
            CHECK(ending.code != 0);
            CHECK(ending.took > 1'900ms);
            CHECK(ending.took < 6s);
            CHECK_THAT(ending.shown, Contains("(--init-timeout)") && Contains("rank 2 on h2"));
        });
    }
}

TEST_CASE("ranks that wait for a minute are an event, and so is that they go on, or end at once",
          "[loopback][frameworks][stall]") {
    const auto life = GENERATE(5'000ms, 1ms);
    Script script = meeting(Meets::torch);
    for (const std::uint32_t rank : {0, 1, 2}) script.ranks[rank].life = life;
    script.ranks[2].import = 70s;
    in_many_orders(5, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        std::vector<const watch::Event*> told;
        for (const watch::Event& event : ending.events)
            if (event.kind == watch::EventKind::stalled ||
                event.kind == watch::EventKind::stall_ended)
                told.push_back(&event);
        REQUIRE(told.size() == 2);
        CHECK(told[0]->kind == watch::EventKind::stalled);
        CHECK(told[0]->fields.at("ranks") == "ranks 0-1");
        CHECK(told[0]->fields.at("waited_s").to_number<int>() >= 60);
        CHECK(told[1]->kind == watch::EventKind::stall_ended);
        CHECK(told[1]->fields.at("what") == told[0]->fields.at("what"));
    });
}

}  // namespace
}  // namespace dtrun::loopback
