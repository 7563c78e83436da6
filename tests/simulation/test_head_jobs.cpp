// Jobs of a head, with everything that happens to their hosts and ranks at moments that the seed decides.

#include "tests/simulation/corpus.h"
#include "tests/simulation/head_job.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <cstdlib>

namespace dtrun::loopback {
namespace {

constexpr std::size_t kJobs = 36;  // of a seed
/// Bytes of a job that lasts. A head remembers its last changes, of which a fifth of three hours has not as many.
constexpr std::size_t kKeptMax = 40'000;

TEST_CASE("a job of a head goes on as long as it can, and ends as it should", "[simulation]") {
    const auto seeds = seeds_of("head");
    REQUIRE_FALSE(seeds.empty());
    for (const std::uint32_t seed : seeds) {
        INFO("DTRUN_SEED=" << seed);
        const HeadJobs played = play_head_jobs(seed, kJobs);
        WARN(fmt::format("seed {}: {} jobs, {} worlds, {} processes that have ended", seed,
                         played.jobs, played.worlds, played.ends));
        CHECK(played.worlds > 2 * played.jobs);
    }
}

TEST_CASE("the same seed gives the same jobs of a head", "[simulation]") {
    const std::uint32_t seed = seeds_of("head").front();
    const std::size_t jobs = head_job_kinds();
    CHECK(play_head_jobs(seed, jobs).trace == play_head_jobs(seed, jobs).trace);
}

TEST_CASE("a job of days needs no more memory than after its first hours", "[simulation]") {
    using std::chrono::minutes, std::chrono::hours;
    const char* const wanted = std::getenv("DTRUN_SIMULATION_DAYS");
    const hours time = wanted != nullptr ? hours(24) * std::atoi(wanted) : hours(3);
    Script script;
    script.ranks_on_host = {2, 2, 2};
    script.lasting = {minutes(4), minutes(3), static_cast<int>(time / minutes(4))};
    for (std::uint32_t rank = 0; rank < 6; ++rank) {
        RankScript& does = script.ranks[rank];
        does.elastic = true;
        does.until = time + minutes(1);
        does.output_bytes = 40'000;
    }
    script.options = [](plan::Options& options) {
        options.elastic.emplace();
        options.elastic->ranks_min = 2;
    };
    const std::uint32_t seed = seeds_of("head").front();
    INFO("DTRUN_SEED=" << seed);
    const Ending ending = simulate(script, seed);
    REQUIRE(ending.heap.size() == static_cast<std::size_t>(script.lasting->changes));
    CHECK(ending.code == 0);
    CHECK(ending.changes == script.lasting->changes);
    const std::size_t early = ending.heap[ending.heap.size() / 5], late = ending.heap.back();
    WARN(fmt::format("{} hours, {} changes, {} lines: {} kB after a fifth, {} kB at the end",
                     time.count(), ending.changes, ending.output / 40, early / 1'000,
                     late / 1'000));
    CHECK(late < early + kKeptMax);
}

}  // namespace
}  // namespace dtrun::loopback
