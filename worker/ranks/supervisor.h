#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "base/result.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/ranks/rank_process.h"
#include "worker/ranks/rank_runner.h"

#include <sys/resource.h>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// The ranks of one host, from fork to the last of their descendants.
///
/// The process must be a subreaper: what a rank leaves behind becomes our child, is found, and ended
/// with the job. Nothing is found by name.
///
/// Thread: the executor's. Lifetime: stop_all() must have completed, or the process ends.
class Supervisor final : public RankRunner {
public:
    /// \param exited  called once for each rank that was started
    /// \param stays   called with a text for the user, when ranks were killed and do not end
    Supervisor(asio::any_io_executor executor, std::function<void(const Exited&)> exited,
               std::function<void(std::string)> stays);

    void start(const Request& request, std::function<void(Start)> started) override;
    std::vector<RunningRank> running_ranks() const override;
    void signal(int signal) override;
    void renumber(SlotIndex place, std::uint64_t generation, Rank rank) override;
    void end(SlotIndex place, int signal) override;
    void clear_places() override { clears_places_ = true; }
    asio::awaitable<void> cleared(SlotIndex place) override;
    void kill(std::uint64_t generation, Rank rank) override;
    void signalled(int signal) override;
    void stop_all(int signal, std::chrono::milliseconds grace,
                  std::function<void(int orphans)> gone) override;
    ResetResult reset_connections(const ConnectionSet& what) override;
    void spare(pid_t child) override { spared_ = child; }

    enum class Lasts : std::uint8_t {
        job,    ///< retire() ends it
        longer  ///< as long as its owner likes, and this process lives
    };
    /// Starts a process beside the ranks, as spawn_rank() does: stop_all() leaves it and what it has
    /// started alone. \param ended  called once, with its status as of waitpid()
    Result<RankProcess> start_helper(const RankCommand& command,
                                     std::function<void(int status)> ended,
                                     Lasts lasts = Lasts::job);
    void kill_helper(pid_t helper);  ///< and its process group
    /// It goes on as a rank. \return false: it has ended
    bool adopt(pid_t helper, const Request& request);
    /// Helpers are killed, and are orphans to stop_all() from now on, but not counted.
    void retire() override;

    bool running() const { return !ranks_.empty(); }

private:
    /// A rank that was started and has not executed its program yet, as far as we know.
    struct Executing {
        Executing(const asio::any_io_executor& executor, RankProcess spawned,
                  std::function<void(Start)> then)
            : process(std::move(spawned)),
              status(executor, process.executed.get()),
              started(std::move(then)) {}
        ~Executing() { status.release(); }
        RankProcess process;
        asio::posix::stream_descriptor status;  ///< of `process`, which closes it
        std::function<void(Start)> started;
    };
    struct Running {
        std::uint64_t generation = 0;
        Rank rank{};
        SlotIndex place{};
        Deadline started;
        int sent_signal = 0;             ///< the last that was to end it
        int had_signal = 0;              ///< of a scheduler
        bool is_ending = false;          ///< it was when it was first sent one
        bool hung = false;               ///< and was killed for that
        std::vector<std::string> marks;  ///< variables by which what it has started is known
        std::shared_ptr<Executing> executing;
    };
    using Ranks = std::map<pid_t, Running>;

    void watch_children();
    void reap();
    void watch_exec(pid_t pid, const std::shared_ptr<Executing>& executing);
    bool executed(Ranks::iterator rank, const Result<void>& result);
    void report(pid_t pid, const Running& rank, int status, const rusage& used);
    bool out_of_memory();
    Running& add(pid_t pid, const Request& request);
    bool was_lost(const Running& rank, const siginfo_t& ended) const;
    void kill_left();
    void end_ranks(int signal);
    void killed_in_vain();
    void strays_or_done(bool childless);
    std::vector<pid_t> left_alone() const;
    void all_gone();

    asio::any_io_executor executor_;
    std::function<void(const Exited&)> exited_;
    std::function<void(std::string)> stays_;
    Ranks ranks_;
    struct Helper {
        std::function<void(int status)> ended;
        Lasts lasts = Lasts::job;
    };
    std::map<pid_t, Helper> helpers_;
    bool retired_ = false;
    std::set<pid_t>
        retired_groups_;  ///< of helpers that retire() has killed, which may not be gone yet
    pid_t spared_ = 0;
    asio::signal_set child_signals_;
    Timer grace_timer_;
    Timer stray_timer_;
    std::uint64_t oom_kills_seen_ = 0;
    struct Stopping {
        int signal = 0;
        std::function<void(int)> gone;
        bool killing = false;  ///< the grace is over
        bool strays_found = false;
        std::set<pid_t> killed_groups{};  ///< of ranks: who is in one of them dies with its rank
        std::set<pid_t> orphans{};
        std::optional<Deadline> strays_until{};  ///< once they are killed
    };
    std::optional<Stopping> stopping_;
    bool clears_places_ = false;
    /// What a rank that has ended may have left in its place.
    struct Left {
        std::vector<std::string> marks{};
        Deadline until;  ///< it cannot be ended
    };
    std::map<SlotIndex, Left> left_;
    Timer left_timer_;
};

}  // namespace dtrun::ranks
