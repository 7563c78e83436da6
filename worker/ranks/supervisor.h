#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "rendezvous/rank_messages.h"
#include "worker/ranks/rank_process.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace dtrun::ranks {

/// The ranks of one host, from fork to the last of their descendants.
///
/// The process must be a subreaper: what a rank leaves behind becomes our child, is found, and ended
/// with the job. Nothing is found by name.
///
/// Thread: the executor's. Lifetime: stop_all() must have completed, or the process ends.
class Supervisor {
public:
    /// \param exited  called once for each rank that was started
    /// \param stays   called with a text for the user, when ranks were killed and do not end
    Supervisor(asio::any_io_executor executor, std::function<void(const Exited&)> exited,
               std::function<void(std::string)> stays);

    struct Request {
        std::uint64_t generation = 0;
        std::uint32_t rank = 0;
        RankCommand command;
    };
    struct Start {
        std::uint32_t rank = 0;
        pid_t pid = 0;
        Fd in, out, err;
        Result<void> executed;  ///< an error: the program could not be executed
    };
    /// Forks a rank, which executes its program while we go on: that may take long, for instance where
    /// programs are on a file system that many hosts ask at once.
    /// \param started  called once, before the rank's end is told; at once if it cannot be forked
    void start(const Request& request, std::function<void(Start)> started);

    /// Passes a signal on to the process group of every rank that runs.
    void signal(int signal);

    /// Ends one rank and its process group at once, as if it had ended by itself.
    void kill(std::uint64_t generation, std::uint32_t rank);

    /// A scheduler has sent this signal to every process here, ranks included, to end the job: they
    /// do not get it from stop_all() again, and do not end by themselves if they do.
    void signalled(int signal);

    /// Ends everything: `signal` to the ranks and, once these are gone, to what they left behind;
    /// SIGKILL to all of it after `grace`. Called again: the shorter time counts, and the last
    /// `gone`. Afterwards ranks can be started again.
    /// \param gone  called once, when no process is left: how many strays were ended
    void stop_all(int signal, std::chrono::milliseconds grace,
                  std::function<void(int strays)> gone);

    bool running() const { return !ranks_.empty(); }

    /// This child of ours is no rank's, and not to be ended with the ranks. The last one counts.
    void spare(pid_t child) { spared_ = child; }

private:
    /// A rank that was forked and has not executed its program yet, as far as we know.
    struct Executing {
        RankProcess process;
        asio::posix::stream_descriptor status;
        std::function<void(Start)> started;
    };
    struct Rank {
        std::uint64_t generation = 0;
        std::uint32_t rank = 0;
        std::chrono::steady_clock::time_point started;
        int sent_signal = 0;  ///< the last that was to end it
        int had_signal = 0;   ///< of a scheduler
        std::shared_ptr<Executing> executing;
    };
    using Ranks = std::map<pid_t, Rank>;

    void watch_children();
    void reap();
    void watch_exec(pid_t pid, const std::shared_ptr<Executing>& executing);
    bool executed(Ranks::iterator rank, const Result<void>& result);
    void report(pid_t pid, const Rank& rank, int status);
    bool out_of_memory();
    void end_ranks(int signal);
    void killed_in_vain();
    void strays_or_done(bool childless);
    void all_gone();

    asio::any_io_executor executor_;
    std::function<void(const Exited&)> exited_;
    std::function<void(std::string)> stays_;
    Ranks ranks_;
    pid_t spared_ = 0;
    asio::signal_set child_signals_;
    asio::steady_timer grace_timer_;
    asio::steady_timer stray_timer_;
    std::uint64_t oom_kills_seen_ = 0;
    struct Stopping {
        int signal = 0;
        std::function<void(int)> gone;
        bool killing = false;  ///< the grace is over
        bool strays_found = false;
        std::set<pid_t> strays{};
        std::optional<Deadline> strays_until{};  ///< once they are killed
    };
    std::optional<Stopping> stopping_;
};

}  // namespace dtrun::ranks
