#include "worker/ranks/standby_plan.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::ranks {

void StandbyPlan::parked() {
    start_ended();
    ++parked_;
}

void StandbyPlan::died(bool was_parked, const std::string& how) {
    if (was_parked)
        --parked_;
    else
        start_ended();
    if (++deaths_ > kRestartsMax)
        give_up(fmt::format("{} of them have ended before they were used; the last one {}", deaths_,
                            how));
}

void StandbyPlan::give_up(std::string why) {
    if (!has_given_up()) why_ = std::move(why);
}

bool StandbyPlan::wants_one(Deadline now) const {
    return !has_given_up() && !is_starting() && parked_ < wanted_ && now >= quiet_at_;
}

Deadline StandbyPlan::next_deadline() const {
    if (has_given_up()) return Deadline::max();
    if (is_starting()) return late_at_;
    return parked_ < wanted_ ? quiet_at_ : Deadline::max();
}

}  // namespace dtrun::ranks
