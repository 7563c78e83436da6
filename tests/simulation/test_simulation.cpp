// A daemon, its disk, and those who use it, with faults at moments that the seed decides.

#include "tests/simulation/corpus.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/universe.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <vector>

// Killed programs leave everything as it stands.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
    return "detect_leaks=0";
}

namespace dtrun::simulation {
namespace {

double in_seconds(std::chrono::milliseconds span) {
    return std::chrono::duration<double>(span).count();
}

std::vector<std::uint32_t> seeds() {
    auto kept = seeds_of("daemon");
    REQUIRE_FALSE(kept.empty());
    return kept;
}

}  // namespace

TEST_CASE("nothing acknowledged is lost and nobody waits for ever, whatever fails",
          "[simulation]") {
    Faults faults;
    if (!is_replayed()) faults.lasting = std::chrono::seconds(8);
    std::size_t acknowledged = 0;
    double lasted = 0;
    for (const std::uint32_t seed : seeds()) {
        INFO("DTRUN_SEED=" << seed);
        const RunResult result = simulate(seed, faults);
        WARN(
            fmt::format("seed {}: {} acknowledged in {:g} s of faults, {} keys, {} fences of which "
                        "{} failed, {} "
                        "generations, {} members told why a job ended, the daemon started {} "
                        "times; all over {} ms after the last fault",
                        seed, result.acknowledged, in_seconds(faults.lasting), result.keys,
                        result.fences, result.failed_fences, result.generations, result.ends,
                        result.daemon_starts, result.healed_in.count()));
        CHECK(result.overlap > 2);
        acknowledged += result.acknowledged;
        lasted += in_seconds(faults.lasting);
    }
    if (!is_replayed()) CHECK(static_cast<double>(acknowledged) > 300 * lasted);
}

TEST_CASE("the same seed gives the same run", "[simulation]") {
    const std::uint32_t seed = seeds().front();
    INFO("DTRUN_SEED=" << seed);
    Faults faults;
    faults.lasting = std::chrono::milliseconds(1'500);
    CHECK(simulate(seed, faults).trace == simulate(seed, faults).trace);
}

TEST_CASE("what a disk that flips bits has damaged is refused by name, and never served",
          "[simulation]") {
    Faults faults;
    faults.flips = true;
    faults.programs_die = faults.network = faults.stops = faults.disk = faults.clocks = false;
    faults.daemon_dies = faults.power_cuts = false;  // the daemon dies with each flip
    faults.lasting = std::chrono::seconds(6);
    std::size_t refused = 0, acknowledged = 0, read = 0;
    const std::uint32_t first = is_replayed() ? seeds().front() : 1;
    for (std::uint32_t seed = first; seed < first + (is_replayed() ? 1 : 6); ++seed) {
        INFO("DTRUN_SEED=" << seed);
        const RunResult result = simulate(seed, faults);
        refused += result.refused > 0 ? 1 : 0;
        read += result.is_read ? 1 : 0;
        acknowledged += result.acknowledged;
    }
    WARN(fmt::format("{} acknowledged; jobs were refused in {} runs, and read in {} at the end",
                     acknowledged, refused, read));
    if (is_replayed()) return;
    CHECK(refused > 0);
    CHECK(read > 0);
}

TEST_CASE("a disk that forgets what it has synced is found out", "[simulation]") {
    Faults faults;
    faults.disk_forgets = true;
    faults.daemon_dies = faults.programs_die = faults.network = faults.stops = false;
    faults.disk = faults.clocks = false;  // what is left is that machines lose their power
    faults.lasting = std::chrono::seconds(4);
    bool found = false;
    for (std::uint32_t seed = 1; seed < 6 && !found; ++seed) {
        try {
            simulate(seed, faults);
        } catch (const std::runtime_error&) {
            found = true;  // a contradiction, or a daemon that does not start again
        }
    }
    CHECK(found);
}

}  // namespace dtrun::simulation
