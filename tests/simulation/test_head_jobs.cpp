// Jobs of a head, with everything that happens to their hosts and ranks at moments that the seed decides.

#include "tests/simulation/corpus.h"
#include "tests/simulation/head_job.h"
#include "tests/support/catch.h"

#include <fmt/format.h>

namespace dtrun::loopback {
namespace {

constexpr std::size_t kJobs = 33;  // of a seed

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

}  // namespace
}  // namespace dtrun::loopback
