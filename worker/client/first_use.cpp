#include "worker/client/first_use.h"

namespace dtrun::embedded {

Outcome<void> FirstUse::ensure(const std::function<Outcome<void>()>& start,
                               const Patience& patience) {
    const Moment asked = now();
    std::unique_lock lock(mutex_, std::defer_lock);
    while (!lock.owns_lock()) {
        const Moment until = patience.slice();
        if (until == Moment::max()) {
            lock.lock();
            break;
        }
        if (lock.try_lock_until(until)) break;
        if (patience.give_up && patience.give_up()) return failure(DTRUN_CANCELLED, "interrupted");
        if (patience.over()) return failure(DTRUN_TIMED_OUT, "timed out");
    }
    if (started_) return {};
    if (failure_ && failed_ >= asked) return std::unexpected(*failure_);
    auto done = start();
    started_ = done.has_value();
    failure_.reset();
    if (!done && done.error().code == DTRUN_CLOSED) {
        failure_ = done.error();
        failed_ = now();
    }
    return done;
}

}  // namespace dtrun::embedded
