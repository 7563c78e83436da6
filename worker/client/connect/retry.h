#pragma once

#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"

#include <chrono>

namespace dtrun::embedded {

/// The pauses between tries to connect to what is not there yet: each twice the one before.
class Retry {
public:
    Retry(std::chrono::milliseconds first, std::chrono::milliseconds longest)
        : pause_(first), longest_(longest) {}

    /// Failures: timed_out, cancelled
    Outcome<void> wait(const WaitContext& context);

private:
    std::chrono::milliseconds pause_;
    std::chrono::milliseconds longest_;
};

}  // namespace dtrun::embedded
