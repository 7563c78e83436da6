#include "worker/ranks/nested_watch.h"

#include "base/milliseconds.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace dtrun::ranks {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstLook = 3s;
constexpr auto kAgain =
    2s;  ///< after a look that has found something new, which counts if it is there again
constexpr auto kWhileFound = 15s;
/// A start takes so long at the most, as a rule; then a look comes each time that as much of the job's time has passed.
constexpr auto kStartTakes = 120s;
/// Also when one look comes in a moment in which torch is not asleep, what it waits for is told within ten seconds.
constexpr auto kInStart = 2s;
constexpr int kParts = 8;  ///< of the time so far
constexpr auto kLongest = 600s;

}  // namespace

void NestedWatch::begin(Deadline now) {
    found_.clear();
    began_ = now;
    next_ = now + kFirstLook;
}

void NestedWatch::found(const std::vector<RankWait>& waits, Deadline now) {
    const std::vector<Found> before = std::exchange(found_, {});
    for (const RankWait& wait : waits) {
        const auto same = std::ranges::find_if(before, [&wait](const Found& other) {
            return other.wait.rank == wait.rank && other.wait.what == wait.what;
        });
        const bool again = same != before.end();
        found_.push_back({wait, again ? same->since : now, again});
    }
    const auto age = now - began_;
    if (std::ranges::any_of(found_, [](const Found& found) { return !found.again; }))
        next_ = now + kAgain;
    else if (!found_.empty())
        next_ = now + kWhileFound;
    else if (age < kStartTakes)
        next_ = now + kInStart;
    else
        next_ = now + std::min<Clock::duration>(age / kParts, kLongest);
}

std::vector<RankWait> NestedWatch::waits(Deadline now) const {
    std::vector<RankWait> told;
    for (const Found& found : found_) {
        if (!found.again) continue;
        told.push_back(found.wait);
        told.back().waited_ms = to_ms(now - found.since);
    }
    return told;
}

}  // namespace dtrun::ranks
