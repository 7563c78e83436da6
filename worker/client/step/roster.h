#pragma once

#include "base/numbered.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace dtrun::embedded {

/// Which ranks of a step have come and which are still there, and what rank 0 wants of its server's
/// thread. A step begins when its last rank comes, unless rank 0 has given it up before; these two
/// are decided under one lock, so that never some ranks begin and others are told of the end.
///
/// Thread: any; everything is behind its mutex, under which no other one is taken.
class StepRoster {
public:
    explicit StepRoster(std::uint32_t ranks);

    // For rank 0, who wakes the thread afterwards.

    /// Rank 0 has waited for all ranks, in vain: gives the step up.
    /// \return "ranks 2 and 3 of 4 have not come within 1.0 s", and what keeps them from it here;
    ///         nothing, and nothing is done, if all have come
    std::optional<std::string> end_if_missing(std::chrono::milliseconds waited);
    /// The job is over; the first reason counts.
    void end(std::string why);
    /// The server is not needed any more; who has been told of an end is waited for.
    void stop();
    /// Waits until all ranks but 0 that have come have gone. Failures: timed_out, cancelled
    Outcome<void> wait_for_others(const WaitContext& context);

    // For the server's thread.

    bool is_missing(Rank rank) const;
    /// \return whether the step begins with it
    bool come(Rank rank);
    void go(Rank rank);
    void all_go();
    /// What keeps ranks from coming; empty: nothing.
    void set_problem(std::string problem);
    /// Why rank 0 wants the end, once.
    std::optional<std::string> take_end();
    bool is_stopped() const;

private:
    const std::uint32_t ranks_;
    mutable std::mutex mutex_;
    std::condition_variable others_gone_;
    std::set<Rank> missing_;
    std::uint32_t others_ = 0;  ///< connected ranks but 0
    std::string problem_;
    bool stopping_ = false;
    std::optional<std::string> end_why_;
};

}  // namespace dtrun::embedded
