#include "rendezvous/job/stop_step.h"

#include <algorithm>
#include <cmath>

namespace dtrun {

std::optional<std::uint64_t> StopStep::observe(const Heartbeat& progress, Deadline now) {
    if (progress.reporting == 0) return std::nullopt;
    counts_ = true;
    fastest_ = std::max(fastest_, progress.fastest_step);
    if (!base_) base_ = {now, fastest_};
    // Hosts tell of their ranks at different moments: only over a longer time is that a speed.
    const std::chrono::duration<double> span = now - base_->first;
    if (span >= kWindow) {
        per_second_ = static_cast<double>(fastest_ - base_->second) / span.count();
        base_ = {now, fastest_};
    }
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
