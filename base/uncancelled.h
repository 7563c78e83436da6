#pragma once

#include <pthread.h>

namespace dtrun {

/// While it lives pthread_cancel() does not end this thread, which is done at its next cancellation point
/// instead: a thread that ends within a function of ours would leave what others wait for undone, or, where
/// no exception may leave, end the process.
class Uncancelled {
public:
    Uncancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { ::pthread_setcancelstate(before_, &before_); }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace dtrun
