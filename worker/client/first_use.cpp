#include "worker/client/first_use.h"

namespace dtrun::embedded {

Outcome<void> FirstUse::ensure(const std::function<Outcome<void>()>& start,
                               const WaitContext& context) {
    const Moment asked = now();
    Lock lock(mutex_);
    if (auto waited = wait(lock, context); !waited) return waited;
    if (started_) return {};
    if (failure_ && failed_ >= asked) return std::unexpected(*failure_);
    auto done = run(lock, start);
    started_ = done.has_value();
    failure_.reset();
    if (!done && done.error().code == DTRUN_CLOSED) {
        failure_ = done.error();
        failed_ = now();
    }
    return done;
}

/// Waits until no other thread starts.
Outcome<void> FirstUse::wait(Lock& lock, const WaitContext& context) {
    while (starting_) {
        const Moment until = context.slice();
        if (until == Moment::max()) {
            ended_.wait(lock);
            continue;
        }
        if (ended_.wait_until(lock, until) == std::cv_status::no_timeout) continue;
        lock.unlock();
        const bool give_up = context.give_up && context.give_up();
        lock.lock();
        if (!starting_) break;
        if (give_up) return failure(DTRUN_CANCELLED, "interrupted");
        if (context.over()) return failure(DTRUN_TIMED_OUT, "timed out");
    }
    return {};
}

/// Starts without the lock, which is held again when it returns: so others see the end together
/// with what came of it.
Outcome<void> FirstUse::run(Lock& lock, const std::function<Outcome<void>()>& start) {
    struct Starting {
        FirstUse& use;
        Lock& lock;
        Starting(FirstUse& of, Lock& held) : use(of), lock(held) {
            use.starting_ = true;
            lock.unlock();
        }
        ~Starting() {
            lock.lock();
            use.starting_ = false;
            use.ended_.notify_all();
        }
    };
    const Starting starting(*this, lock);
    return start();
}

}  // namespace dtrun::embedded
