#include "rendezvous/elastic/stop_step.h"

#include <algorithm>
#include <cmath>

namespace dtrun {

std::optional<std::uint64_t> StopStep::observe(const Heartbeat& progress, Deadline now) {
    if (progress.reporting == 0) return std::nullopt;
    counts_ = true;
    const std::uint64_t fastest = std::max(fastest_, progress.fastest_step);
    if (seen_ && fastest > fastest_ && now > *seen_) {
        const std::chrono::duration<double> span = now - *seen_;
        per_second_ = static_cast<double>(fastest - fastest_) / span.count();
    }
    if (!seen_ || fastest > fastest_) seen_ = now;
    fastest_ = fastest;
    // A rank that leaves has told of the step that it leaves before.
    if (agreed_ == 0 || fastest_ <= agreed_ || corrected_) return std::nullopt;
    corrected_ = true;
    return agreed_ = ahead();
}

std::uint64_t StopStep::agree() {
    if (!counts_) return 0;
    corrected_ = false;
    return agreed_ = ahead();
}

std::uint64_t StopStep::ahead() const {
    const double late = std::chrono::duration<double>(kLate).count();
    return fastest_ + kAtLeast + static_cast<std::uint64_t>(std::ceil(per_second_ * late));
}

}  // namespace dtrun
