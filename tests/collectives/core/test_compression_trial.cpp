#include "collectives/communicator/compression_trial.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using dtrun::collectives::CompressionTrial;
using Way = CompressionTrial::Way;

namespace {

/// Ranks that call the same, and what their calls take.
class Ranks {
public:
    Ranks(std::size_t size, double compressed, double full)
        : trials_(size), seconds_{compressed, full} {}

    /// The last rank takes as long as the operation, each other one up to `early` times less, as it may be done before.
    /// \return how all of them go
    Way call(std::mt19937_64& random, double early = 1) {
        const Way way = trials_.front().way();
        std::uniform_real_distribution<double> less(1, early);
        bool decide = false;
        for (CompressionTrial& trial : trials_) {
            REQUIRE(trial.way() == way);
            const bool last = &trial == &trials_.back();
            decide = trial.took(seconds_[way] / (last ? 1 : less(random)));
        }
        if (!decide) return way;
        CompressionTrial::Times slowest = trials_.front().times();
        for (const CompressionTrial& trial : trials_)
            for (std::size_t i = 0; i < slowest.size(); ++i)
                slowest[i] = std::max(slowest[i], trial.times()[i]);
        for (CompressionTrial& trial : trials_) trial.decide(slowest);
        return way;
    }
    void now_take(double compressed, double full) { seconds_ = {compressed, full}; }

private:
    std::vector<CompressionTrial> trials_;
    CompressionTrial::Times seconds_;
};

/// How `calls` calls go: 'c' and 'f'.
std::string ways(Ranks& ranks, int calls) {
    std::mt19937_64 random(1);
    std::string text;
    for (int i = 0; i < calls; ++i)
        text += ranks.call(random) == CompressionTrial::compressed ? 'c' : 'f';
    return text;
}

}  // namespace

TEST_CASE("what is clearly faster is known after two calls of each way", "[collectives]") {
    Ranks slow_link(4, 1, 2.6);
    CHECK(ways(slow_link, 10) == "cffccccccc");
    Ranks no_link(4, 2.6, 1);
    CHECK(ways(no_link, 10) == "cffcffffff");
}

TEST_CASE("what is nearly as fast is tried three times, and again after a thousand calls",
          "[collectives]") {
    Ranks ranks(2, 1.2, 1);
    CHECK(ways(ranks, 12) == "cffcfccfffff");
    CHECK(ways(ranks, 996) == std::string(996, 'f'));
    ranks.now_take(1, 1.2);
    CHECK(ways(ranks, 10) == "fcfccfcccc");
}

TEST_CASE("arrays of two lengths by turns are not taken for the two ways", "[collectives]") {
    constexpr double kLonger = 0.6;  // of what a value of the shorter one takes
    for (const bool longer_first : {false, true})
        for (const bool gains : {false, true}) {
            INFO("longer first: " << longer_first << ", gains: " << gains);
            Ranks ranks(2, 0, 0);
            std::string all;
            for (int call = 0; call < 12; ++call) {
                const double length = (call % 2 == 0) == longer_first ? kLonger : 1;
                ranks.now_take(length * (gains ? 1 : 1.1), length * (gains ? 1.1 : 1));
                all += ways(ranks, 1);
            }
            CHECK(all.substr(8) == (gains ? "cccc" : "ffff"));
        }
}

TEST_CASE("ranks that are done at different times decide alike, and by what the operation takes",
          "[collectives]") {
    const char* const given = std::getenv("DTRUN_SEED");
    const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20'261'128;
    INFO("DTRUN_SEED=" << seed);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 50; ++round) {
        const bool gains = random() % 2 == 0;
        Ranks ranks(1 + random() % 8, gains ? 1 : 1.1, gains ? 1.1 : 1);
        for (int i = 0; i < 8; ++i) ranks.call(random, 20);
        CHECK(ranks.call(random, 20) ==
              (gains ? CompressionTrial::compressed : CompressionTrial::full));
    }
}
