#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "base/result.h"
#include "worker/ranks/rank_process.h"
#include "worker/ranks/reset_connections.h"

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// Processes that are kept ready to become ranks, so that these start faster.
struct StandbyOptions {
    std::uint32_t count = 0;
    std::vector<std::string> preload{};  ///< Python modules that they import
    std::string directory_prefix{};      ///< as directory_prefix() makes it
};

/// A rank that runs, for those who look into it.
struct RunningRank {
    Rank rank{};
    pid_t pid = 0;
    SlotIndex place{};
};

/// Runs the ranks of one host. Supervisor does it with processes.
class RankRunner {
public:
    virtual ~RankRunner() = default;

    struct Request {
        std::uint64_t generation = 0;
        Rank rank{};
        SlotIndex place{};
        RankCommand command;
    };
    struct Start {
        Rank rank{};
        SlotIndex place{};
        pid_t pid = 0;
        Fd in, out, err;
        Fd terminal{};            ///< in place of these three, for a rank that has one
        Result<void> executed{};  ///< an error: the program could not be executed
    };
    /// Forks a rank, which executes its program while we go on: that may take long, for instance where
    /// programs are on a file system that many hosts ask at once.
    /// \param started  called once, before the rank's end is told; at once if it cannot be forked
    virtual void start(const Request& request, std::function<void(Start)> started) = 0;

    /// Keeps processes ready from now on. \param like  what ranks are expected to be, until the first is
    ///                                                   started
    virtual void keep_ready(StandbyOptions, const RankCommand&) {}

    /// The ranks that run and their processes, in the order of ranks.
    virtual std::vector<RunningRank> running_ranks() const { return {}; }

    /// Passes a signal on to the process group of every rank that runs.
    virtual void signal(int signal) = 0;

    /// A rank goes on as another one.
    virtual void renumber(SlotIndex place, std::uint64_t generation, Rank rank) = 0;

    /// Sends a signal to one rank and its process group, which ends it.
    virtual void end(SlotIndex place, int signal) = 0;

    /// Others go on when a rank fails, or is told to end: what it has started is killed when it ends.
    virtual void clear_places() {}
    /// Returns when nothing of that is left in this place, or cannot be ended.
    virtual asio::awaitable<void> cleared(SlotIndex) { co_return; }

    /// Ends one rank and its process group at once, as if it had ended by itself.
    virtual void kill(std::uint64_t generation, Rank rank) = 0;

    /// A scheduler has sent this signal to every process here, ranks included, to end the job: they
    /// do not get it from stop_all() again, and do not end by themselves if they do.
    virtual void signalled(int signal) = 0;

    /// Ends everything: `signal` to the ranks and, once these are gone, to what they left behind;
    /// SIGKILL to all of it after `grace`. Called again: the shorter time counts, and the last
    /// `gone`. Afterwards ranks can be started again.
    /// \param gone  called once, when no process is left: how many orphans were ended
    virtual void stop_all(int signal, std::chrono::milliseconds grace,
                          std::function<void(int orphans)> gone) = 0;

    /// The job ends: whatever runs here and is no rank is killed.
    virtual void retire() {}

    /// Shuts down such connections of the ranks, and of what they have started.
    virtual ResetResult reset_connections(const ConnectionSet& what) = 0;

    /// Excludes one child of ours that is no rank's from stop_all(); a later call replaces it.
    virtual void spare(pid_t child) = 0;
};

}  // namespace dtrun::ranks
