#pragma once

#include "worker/client/outcome.h"
#include "worker/client/patience.h"

#include <functional>
#include <mutex>
#include <optional>

namespace dtrun::embedded {

/// Starts something when it is first used, once, however many threads use it at the same time.
///
/// Thread: any. Its mutex is held while the start runs, so it is taken before all others; who waits
/// for it has its own patience.
class FirstUse {
public:
    /// Returns once `start` has succeeded, in this thread or in another. One that has failed is tried
    /// again by the next call, but not by those that have waited for it when it found nobody
    /// (DTRUN_CLOSED): these would search again, one after the other.
    /// Failures: those of `start`, timed_out, cancelled
    Outcome<void> ensure(const std::function<Outcome<void>()>& start, const Patience& patience);

private:
    std::timed_mutex mutex_;  ///< of everything below
    bool started_ = false;
    std::optional<Failure> failure_;  ///< closed, and
    Moment failed_{};                 ///< when
};

}  // namespace dtrun::embedded
