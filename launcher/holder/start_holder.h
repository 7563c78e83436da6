#pragma once

#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <chrono>

namespace dtrun::holder {

inline constexpr std::chrono::minutes kKeepDefault{10};

/// Up to when whoever starts a holder waits for it.
enum class Wait {
    until_known,  ///< jobs can ask it for what it is to hold
    until_tried,  ///< it has logged into each host, or cannot
};

/// How far it has come.
struct Started {
    bool has_begun = false;  ///< else it has said why not, on standard error
    unsigned held = 0;       ///< hosts, of which others may have been held before
    unsigned failed = 0;     ///< hosts, each with a line on standard error
};

/// Starts a process of its own, in a session of its own, that logs into the hosts of a job as the job would, and keeps
/// the log-ins for later ones (options.warm.keep, else kKeepDefault). Hosts that are held already are held on. To be
/// called before there are threads.
Started start_holder(plan::Options options, plan::EnvironmentView environment, Wait wait);

}  // namespace dtrun::holder
