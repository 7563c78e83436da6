#pragma once

#include "base/loop/deadline.h"
#include "base/numbered.h"
#include "launcher/report/outcome.h"
#include "rendezvous/wire/rank_messages.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dtrun::head {

struct JobOptions {
    bool keep_going = false;
    std::chrono::milliseconds grace{5'000};
    int max_restarts = 0;
    std::chrono::milliseconds min_uptime{0};  ///< of a rank whose failure leads to a restart
    /// Hosts may be lost and ranks may fail, and others go on: Membership decides that.
    bool elastic = false;
    bool outlives_hosts = false;  ///< the loss of a host does not end it either
    bool is_part = false;         ///< of a job that a daemon ends, also when all ranks here have
    std::uint32_t ranks_to_end_well = 0;  ///< so many make the job a success; 0: all
};

/// The life of a job as a pure state machine: events go in, orders come out. The failure that
/// arrives first is the cause of the outcome, unless its rank failed because of one whose failure
/// arrives later; what dtrun ends afterwards are victims.
///
/// It has many methods because it has one for each event and each order: every event may be the cause,
/// and is judged by all that came before, so parts of it would have to tell each other of all events.
class Job {
public:
    using Cause = report::JobOutcome::Cause;

    /// \param ranks_on_host  [host] how many ranks it runs
    Job(PerHost<std::uint32_t> ranks_on_host, JobOptions options);

    // What happened.
    void host_added();  ///< the next one; it is not started yet
    void host_ready(HostId host);
    void host_failed(report::HostFailure failure);       ///< no agent could be started there
    void host_connecting(HostId host);                   ///< an agent is started there once more
    void host_lost(HostId host, std::string text);       ///< after it was ready
    void host_done(HostId host, std::uint32_t orphans);  ///< nothing is left there
    void ranks_started(HostId host);  ///< all that it has in this generation, but those that cannot
    void rank_exited(HostId host, const Exited& exited);
    void rank_left(HostId host);  ///< of an elastic job: it has failed, and others go on
    /// MPI_Abort. Others may notice, and fail, before this rank has exited.
    void rank_aborts(Rank rank);
    void left_mpi(std::string why);  ///< the cause of aborted(): a rank that had ended well before
    void end(int signal);            ///< a scheduler ends the job by this signal
    void interrupt(int signal);      ///< Ctrl-C (twice: kill), or a signal that asks dtrun to end
    void host_late(report::HostFailure failure);  ///< what kept it, before start_timed_out()
    void start_timed_out();
    /// A generation begins: all of its ranks start. \param ranks  on each host
    void begin(PerHost<std::uint32_t> ranks);
    void pausing();  ///< exits of ranks until the next generation do not count
    void ended_elsewhere(bool finished, std::string why);
    void no_daemon(bool refused, std::string why);  ///< it was never entered
    /// Ranks wait for one that does not come (stuck), an elastic job cannot_go_on, or it has reached its
    /// time_limit. \param text  for the report, of the first two
    void end_because(Cause why, std::string text = {});
    void cannot_start();                    ///< no host of an elastic job can be used
    void fails_always(const Exited& rank);  ///< an elastic job whose program fails by itself

    // What to do.
    struct Order {
        int signal = 0;
        std::chrono::milliseconds grace{};
    };
    bool take_start();  ///< true once: every host is ready, start the ranks
    /// The failure because of which all ranks are to be ended and started again, once.
    std::optional<Exited> take_restart();
    std::optional<Order> take_stop();  ///< once for each new order: end everything on every host
    bool over() const;                 ///< nothing is left anywhere that we know of
    bool ending() const { return stopping_; }
    bool interrupted() const { return interrupted_; }
    std::vector<HostId> connecting() const;  ///< hosts that have not answered yet
    bool has_failed(HostId host) const {
        return hosts_[host] == HostState::failed || hosts_[host] == HostState::lost;
    }
    bool running() const { return started_ && !stopping_; }
    /// Whether all hosts of this generation have started their ranks, and nothing has ended it meanwhile.
    bool all_run() const { return running() && !paused_ && to_start_.empty(); }
    bool has_live_ranks(HostId host) const { return live_on_host_[host] > 0; }
    bool aborted() const;  ///< so far the job ends because a rank has called MPI_Abort
    const report::JobOutcome& outcome() const { return outcome_; }
    void set_stacks(std::vector<std::string> lines) { outcome_.stacks = std::move(lines); }
    void set_gone(std::string why) { outcome_.gone_text = std::move(why); }
    void set_waiting(std::vector<std::string> who) { outcome_.waiting = std::move(who); }

private:
    /// `failed` and `lost` hosts of an elastic job may become `connecting` again.
    enum class HostState : std::uint8_t { connecting, ready, failed, lost, done };

    void all_answered();
    void also_failed(const Exited& exited);
    bool may_restart(const Exited& exited) const;
    void sort_host_failures();
    bool explains_first(const Exited& exited) const;
    bool is_before_cause(const Exited& exited) const;
    void cause(Cause cause);
    void stop(int signal, std::chrono::milliseconds grace);
    void set(HostId host, HostState state);
    std::uint32_t& count(HostState state) { return counts_[static_cast<std::size_t>(state)]; }
    std::uint32_t count(HostState state) const { return counts_[static_cast<std::size_t>(state)]; }

    JobOptions options_;
    PerHost<std::uint32_t> ranks_on_host_;
    PerHost<HostState> hosts_;
    std::array<std::uint32_t, 5> counts_{};  ///< hosts in each state
    PerHost<std::uint32_t> live_on_host_;
    std::uint32_t live_ = 0;
    std::set<HostId> to_start_;  ///< hosts that have not said yet that their ranks are started
    bool started_ = false;
    bool start_wanted_ = false;
    bool paused_ = false;
    bool stopping_ = false;
    bool interrupted_ = false;
    std::optional<Order> stop_order_;
    std::optional<Exited> restart_order_;
    std::optional<Rank> first_abort_;  ///< the rank
    report::JobOutcome outcome_;
};

}  // namespace dtrun::head
