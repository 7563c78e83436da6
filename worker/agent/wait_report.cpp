#include "worker/agent/wait_report.h"
#include "rendezvous/wire/rank_messages.h"

#include <algorithm>
#include <utility>

namespace dtrun::agent {
namespace {

constexpr std::size_t kWaitsMax = 10'000;  // that are told of

bool goes_on(RankWait before, const RankWait& now) {
    const bool longer = before.waited_ms <= now.waited_ms;
    before.waited_ms = now.waited_ms;
    return longer && before == now;
}

}  // namespace

void WaitReport::begin(std::uint64_t generation) {
    generation_ = generation;
    is_anew_ = is_anew_ || !said_.empty();  // the head may have kept what it heard last
    said_.clear();
}

std::optional<Waits> WaitReport::request(std::vector<RankWait> waits,
                                         std::chrono::milliseconds at_least) {
    if (generation_ == 0) return std::nullopt;
    std::erase_if(waits, [at_least](const RankWait& wait) {
        return wait.waited_ms < static_cast<std::uint32_t>(at_least.count());
    });
    if (waits.size() > kWaitsMax) waits.resize(kWaitsMax);
    if (!std::exchange(is_anew_, false) && std::ranges::equal(said_, waits, goes_on) &&
        std::ranges::none_of(waits, &RankWait::starting))
        return std::nullopt;
    said_ = waits;
    return Waits{generation_, std::move(waits)};
}

}  // namespace dtrun::agent
