#pragma once

#include "base/threads.h"

namespace dtrun::embedded {

/// Counts the threads that are in a call of a worker, so that it is destroyed only when none is left.
///
/// Thread: any. Its mutex is taken for a moment, with no other one held or taken under it.
class Callers {
public:
    /// While it lives, wait_until_none() waits.
    class InCall {
    public:
        explicit InCall(Callers& callers);
        ~InCall();
        InCall(const InCall&) = delete;
        InCall& operator=(const InCall&) = delete;

    private:
        Callers& callers_;
    };

    /// For one thread. Who calls it sees to it that calls end, and that no new ones come afterwards.
    void wait_until_none();

private:
    Mutex mutex_;
    ConditionVariable none_;
    int count_ = 0;
};

}  // namespace dtrun::embedded
