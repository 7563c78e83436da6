#pragma once

#include "tests/loopback/simulation.h"
#include "tests/support/seed.h"

#include <catch2/catch.hpp>

namespace dtrun::simulation {

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

}  // namespace dtrun::simulation
