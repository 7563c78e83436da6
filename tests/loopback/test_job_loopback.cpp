// What a head and its agents decide together: each case in many orders of events.

#include "launcher/plan/exit_code.h"
#include "tests/loopback/simulation.h"
#include "tests/support/seed.h"

#include <catch2/catch.hpp>
#include <csignal>

namespace dtrun::simulation {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

/// Runs a script with several seeds, and gives every ending to `check`.
template <class Check>
void in_many_orders(int count, const Script& script, Check check) {
    const std::uint32_t seed = test_seed();
    for (int i = 0; i < count; ++i) {
        const std::uint32_t one = count == 1 ? seed : seed + static_cast<std::uint32_t>(i);
        INFO("DTRUN_SEED=" << one);
        const Ending ending = simulate(script, one);
        INFO(ending.shown);
        CHECK(ending.left == 0);
        check(ending);
    }
}

TEST_CASE("a job whose ranks end well succeeds, and shows all that they have printed",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {3, 1, 2};
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.shown.empty());
        CHECK(ending.output >= 6 * 40);
    });
}

TEST_CASE("the same seed gives the same run to the microsecond", "[loopback]") {
    Script script;
    script.ranks_on_host = {2, 2, 2};
    script.ranks[3] = {.life = 30ms, .code = 4};
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    const Ending first = simulate(script, seed);
    const Ending again = simulate(script, seed);
    CHECK(first.log == again.log);
    CHECK(first.shown == again.shown);
}

}  // namespace
}  // namespace dtrun::simulation
