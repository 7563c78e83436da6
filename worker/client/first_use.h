#pragma once

#include "base/threads.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"

#include <functional>
#include <optional>

namespace dtrun::embedded {

/// Starts something when it is first used, once, however many threads use it at the same time.
///
/// Thread: any. Its mutex is held neither while the start runs nor while anybody waits, and no other
/// one is taken under it.
class FirstUse {
public:
    /// Returns once `start` has succeeded, in this thread or in another. One that has failed is tried
    /// again by the next call, but not by those that have waited for it when it found nobody
    /// (DTRUN_CLOSED): these would search again, one after the other.
    /// Failures: those of `start`, timed_out, cancelled
    Outcome<void> ensure(const std::function<Outcome<void>()>& start, const WaitContext& context);

private:
    using Lock = std::unique_lock<Mutex>;

    Outcome<void> wait(Lock& lock, const WaitContext& context);
    Outcome<void> run(Lock& lock, const std::function<Outcome<void>()>& start);

    Mutex mutex_;  ///< of everything below
    ConditionVariable ended_;
    bool starting_ = false;  ///< a thread is in `start`
    bool started_ = false;
    std::optional<Failure> failure_;  ///< closed, and
    Moment failed_{};                 ///< when
};

}  // namespace dtrun::embedded
