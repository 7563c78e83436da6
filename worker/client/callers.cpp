#include "worker/client/callers.h"

namespace dtrun::embedded {

Callers::InCall::InCall(Callers& callers) : callers_(callers) {
    const std::lock_guard lock(callers_.mutex_);
    ++callers_.count_;
}

Callers::InCall::~InCall() {
    const std::lock_guard lock(callers_.mutex_);
    if (--callers_.count_ == 0) callers_.none_.notify_one();
}

void Callers::wait_until_none() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return count_ == 0; });
}

}  // namespace dtrun::embedded
