#include "worker/client/connect/retry.h"

#include "base/threads.h"

#include <algorithm>

namespace dtrun::embedded {

Outcome<void> Retry::wait(const WaitContext& context) {
    const Moment end = now() + pause_;
    pause_ = std::min(2 * pause_, longest_);
    for (;;) {
        poll_until(-1, 0, std::min(end, context.slice()));
        if (context.give_up && context.give_up()) return failure(DTRUN_CANCELLED, "interrupted");
        if (context.over()) return failure(DTRUN_TIMED_OUT, "no answer");
        if (now() >= end) return {};
    }
}

}  // namespace dtrun::embedded
