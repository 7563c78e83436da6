#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/loop/waiting_news.h"
#include "base/numbered.h"
#include "launcher/head/agent_session.h"
#include "launcher/head/assigner.h"
#include "launcher/head/host_starter.h"
#include "launcher/head/hosts.h"
#include "launcher/head/job.h"
#include "launcher/head/job_inspector.h"
#include "launcher/head/job_output.h"
#include "launcher/head/job_record.h"
#include "launcher/head/port_forward.h"
#include "launcher/head/sessions.h"
#include "launcher/head/stop_deadlines.h"
#include "launcher/inspect/deadlock_detector.h"
#include "launcher/inspect/host_notes.h"
#include "launcher/inspect/stall_log.h"
#include "launcher/output/lent_terminal.h"
#include "launcher/output/output.h"
#include "launcher/output/progress.h"
#include "launcher/output/stdin_pump.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"

#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::head {

/// Runs one job, from starting agents on its hosts until nothing of it is left there. Job and the
/// Assigner decide; this class carries events to them and their orders to the hosts.
///
/// How agents get onto hosts (HostStarter), how they connect (admit()), where output goes and who sends
/// signals is for the owner: run_job() has the real ones, tests a simulation.
///
/// Thread: the loop's, the only one. Lifetime: what it was given outlives it; run() once, and join()
/// before destruction unless the process ends.
class Head final : private StartEvents {
public:
    /// \param suspend  stops this process until somebody lets it go on, as the shell expects at Ctrl-Z
    Head(asio::io_context& io, plan::JobSpec& spec, Hosts& hosts, output::Output& output,
         std::function<void()> suspend);
    ~Head() override;

    /// Adds a starter, which gets agents onto some of the hosts; before run().
    void add_starter(std::unique_ptr<HostStarter> starter);

    /// \return dtrun's exit status
    asio::awaitable<int> run();
    /// Stops all tasks that are left after run(), and waits for their end.
    asio::awaitable<void> join();

    /// An agent has connected, and has proved to know the job's secret.
    void admit(Connection connection);
    /// An elastic job may use this host, with so many slots: a new one, or one that had others before.
    void list_host(const Host& host);
    /// It may not use the host any more: its ranks end when the others can go on without them.
    void delist_host(const std::string& name);
    bool has_agent(const std::string& name) const;  ///< which answers, as far as is known
    bool is_ending() const override { return job_.ending(); }
    /// dtrun was sent this signal.
    void signalled(int signal);
    /// `dtrun end` does this with its signal; until then it is signalled().
    void set_end(std::function<void(int signal)> end) { end_ = std::move(end); }
    /// Called once, when all ranks of a generation have been started.
    void set_started(std::function<void()> started) { started_ = std::move(started); }
    bool is_in_a_hurry() const { return hurry_; }
    /// As Assigner's.
    DirectStoreServer* direct_store() { return assigner_->direct_store(); }
    /// Answers commands that look into the job.
    JobInspector& inspector() { return inspector_; }
    /// Who receives what agents say.
    const AgentRouter& router() const { return router_; }
    /// What is known of the job, and whom it tells.
    JobRecord& record() { return record_; }
    /// After run(): the job as it has ended, with all that the report is made of.
    boost::json::object ended_view() const;
    /// The user's terminal, which outlives us, is the rank's as long as that runs (--pty).
    void lend(output::UserTerminal& terminal);
    void terminal_resized();
    /// The output may have something to collect().
    void output_left() { output_.return_credits(); }

private:
    // What agents say, as far as no other part receives it.
    void subscribe();
    Result<void> agent_joined(AgentSession& agent, Join join);
    void relay_lost(AgentSession& relay, const RelayLost& lost);
    void agent_closed(AgentSession& agent, const Error& why);
    void agent_lost(HostId host, const std::string& why);
    void ranks_started(HostId host, const Started& started);
    void rank_exited(HostId host, const Exited& exited);
    void output_ended(HostId host, const OutputEnd& end);
    void input_taken(HostId host, const InputCredit& credit);
    void agent_signalled(HostId host, const SignalRanks& signal);
    void ranks_wait(HostId host, Waits waits);
    void mpi_news(HostId host, const MpiStatus& news);
    void agent_done(HostId host, const Done& done);

    // What starters say and ask.
    void host_phase(HostId host, const char* phase) override;
    void host_failed(HostId host, const Error& why) override;
    bool has_failed(HostId host) const override { return job_.has_failed(host); }
    bool is_settled(HostId host) const override;
    bool is_starting() const override;
    void starter_idle() override { over_.cancel(); }

    JobContext context();
    Pace beat();
    Pace pace() const;
    bool is_alone() const;
    void decide();
    void stop_hosts(const Job::Order& order);
    void all_started();
    void start_over();
    void connect(HostId host);
    void lost(HostId host, const std::string& why);
    void give_up(AgentSession& session, const std::string& why);
    void check_twin(HostId host, Join& join);
    bool is_here(HostId host) const;
    void take_note(HostId host, const std::string& note);
    asio::awaitable<void> tell_notes_soon();
    void tell_notes();
    void watch_waits();
    void tell_stalls();
    asio::awaitable<void> end_hang(std::string why);
    void watch_answers();
    void tell_ending();
    bool is_over() const;
    void end_by(int signal);
    bool may_hang() const;
    void interrupted();
    asio::awaitable<void> look_and_end();
    asio::awaitable<void> watch_start_timeout();
    asio::awaitable<void> watch_time_limit();
    asio::awaitable<void> stop_ourselves();
    asio::awaitable<void> hurry_after(std::chrono::milliseconds span);
    void hurry();
    int finish();

    asio::io_context& io_;
    plan::JobSpec& spec_;
    Hosts& hosts_;
    std::function<void()> suspend_;
    TaskGroup tasks_;
    AgentRouter router_;
    Job job_;
    StopDeadlines stop_deadlines_;
    inspect::DeadlockDetector deadlocks_;
    inspect::StallLog stalls_;
    inspect::HostNotes notes_;
    FailureDetector detector_;
    output::Progress progress_;
    output::StdinPump stdin_;
    JobRecord record_;
    std::function<void(int)> end_;
    std::function<void()> started_;
    JobInspector inspector_;
    JobOutput output_;
    PortForward debugger_;
    std::optional<output::LentTerminal> terminal_;  ///< with --pty
    Sessions sessions_;
    std::vector<std::unique_ptr<HostStarter>> starters_;
    std::unique_ptr<Assigner> assigner_;
    Timer over_;  ///< cancelled when the job may be over
    std::map<std::string, std::vector<std::string>>
        fallback_directories_;  ///< directory -> hosts that use it
    std::map<std::string, std::set<HostId>>
        twins_;             ///< machine -> its hosts, if there are several that nobody was told of
    bool starting_ = true;  ///< hosts may still be connecting
    bool suspending_ = false;  ///< we stop in a moment
    bool told_ending_ = false;
    WaitingNews ending_news_;
    Deadline killed_at_{};       ///< ranks that have not ended by then, on the hosts
    std::uint64_t worlds_ = 0;   ///< that have been started
    bool was_busy_ = true;       ///< since memory was given back
    bool hurry_ = false;         ///< interrupted twice, or a disk is silent: nothing is waited for
    bool asked_to_end_ = false;  ///< by a signal
    bool looks_ = false;         ///< at its ranks, before a job that Ctrl-C ends is ended
};

}  // namespace dtrun::head
