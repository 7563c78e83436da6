#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "contracts/table.h"
#include "launcher/head/agent_session.h"
#include "launcher/head/answer_watch.h"
#include "launcher/head/job.h"
#include "launcher/head/uplink.h"
#include "launcher/head/wait_watch.h"
#include "launcher/output/output_mux.h"
#include "launcher/output/progress.h"
#include "launcher/output/stdin_pump.h"
#include "launcher/plan/job_plan.h"
#include "launcher/transport/agent_file.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/process_channel.h"
#include "launcher/transport/ssh_channel.h"
#include "rendezvous/exchange_messages.h"
#include "rendezvous/hub.h"
#include "rendezvous/hub_timer.h"
#include "rendezvous/member_messages.h"
#include "rendezvous/membership.h"
#include "rendezvous/output_messages.h"
#include "rendezvous/pulse.h"
#include "rendezvous/rank_messages.h"
#include "rendezvous/relay.h"
#include "rendezvous/server.h"
#include "rendezvous/start_messages.h"
#include "rendezvous/tree.h"

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::head {

/// Runs one job: starts an agent on each host, serves the rendezvous, shows the output, and ends when
/// nothing of the job is left anywhere. Decisions are Membership's and Job's; this class carries
/// events to them and orders from them.
///
/// Thread: the io_context's, the only one. Lifetime: `spec` outlives it; run() once.
class Head final : private AgentEvents, private Outbox, private UplinkEvents, private Backpressure {
public:
    Head(asio::io_context& io, const plan::JobSpec& spec);
    ~Head() override;

    /// \return dtrun's exit status
    asio::awaitable<int> run();

private:
    struct HostState {
        std::unique_ptr<transport::Channel> channel;  ///< the lifeline, once the agent was started
        AgentSession* session = nullptr;     ///< once it has joined; of its relay if it has one
        bool relayed = false;                ///< it is not at the other end of the session
        std::string address;                 ///< of its agent, for those behind it; numeric
        std::vector<std::string> addresses;  ///< all that it has
        std::map<std::int64_t, std::uint32_t> ranks;  ///< by pid, of those that were started
        std::uint16_t relay_port = 0;                 ///< there
        const char* phase = "waiting for its turn";
        bool done = false;
    };

    /// How far a node of a step has come, until its agent has joined.
    enum class NodeState : std::uint8_t { starting, found, wanting, ready, told, failed };
    /// One srun, which starts the agents of many hosts.
    struct Step {
        struct Node {
            std::uint32_t host = 0;
            NodeState state{};
        };
        std::unique_ptr<transport::Process> process;
        std::map<std::string, Node, std::less<>> nodes;  ///< by name
        std::string machine;                             ///< of nodes that want the agent
        Deadline join_deadline{};                        ///< of those that were told
        bool relays_unknown = false;  ///< those behind relays still wait to hear of them
        bool ended = false;           ///< srun has, or could not be started

        bool any(NodeState state) const;
        bool any_up_to(NodeState state) const;
    };

    // Starting (head_start.cpp).
    Result<void> prepare();
    Result<void> listen();
    asio::awaitable<void> start_hosts();
    asio::awaitable<void> run_host(std::uint32_t host);
    asio::awaitable<Result<void>> log_in(std::uint32_t host, Deadline deadline);
    asio::awaitable<Result<void>> tell_agent(std::uint32_t host, Deadline deadline);
    asio::awaitable<Result<void>> open_channel(std::uint32_t host, std::string command,
                                               Deadline deadline,
                                               std::unique_ptr<transport::Channel>& channel);
    asio::awaitable<void> hold_lifeline(std::uint32_t host, Deadline join_deadline);
    asio::awaitable<void> wait_for_relay(std::uint32_t host);
    Bootstrap common_bootstrap() const;
    JobId mpi_job() const;
    Bytes bootstrap_frame(std::uint32_t host) const;
    Bytes step_bootstrap_frame() const;
    void host_failed(std::uint32_t host, const Error& error);
    void set_phase(std::uint32_t host, const char* phase);
    void sweep_soon(std::uint32_t host);
    asio::awaitable<void> sweep_hosts();
    asio::awaitable<void> sweep(std::uint32_t host);
    asio::awaitable<void> watch_start_timeout();

    // Starting inside a Slurm allocation (head_slurm.cpp).
    asio::awaitable<void> run_step(std::vector<std::uint32_t> hosts);
    asio::awaitable<Result<void>> start_step(Step& step, transport::LineReader& lines);
    asio::awaitable<Result<void>> await_nodes(Step& step, transport::LineReader& lines,
                                              NodeState state, Deadline deadline);
    asio::awaitable<Result<void>> copy_to_nodes(Step& step);
    asio::awaitable<Error> hold_step(Step& step, transport::LineReader& lines);
    asio::awaitable<void> tell_relays(Step& step);
    asio::awaitable<void> wait_for_steps(std::chrono::milliseconds span);
    asio::awaitable<void> end_steps();
    void node_said(Step& step, std::string_view line);
    void nodes_late(Step& step);
    void fail_nodes(Step& step, NodeState up_to, const std::string& text);
    void signal_steps(int signal);
    void show_steps();
    bool relays_needed(const Step& step) const;
    bool has_joined(std::uint32_t host) const;
    bool is_any_missing(const Step& step) const;
    bool is_any_joining(const Step& step) const;
    bool is_any_relay_joining(const Step& step) const;

    // What agents say.
    void admit(Connection connection);
    asio::awaitable<void> run_session(std::list<AgentSession>::iterator session);
    void agent_joined(AgentSession& agent, Join join, bool relayed) override;
    void agent_started(std::uint32_t host, const Started& started) override;
    void agent_exited(std::uint32_t host, const Exited& exited) override;
    void agent_output(std::uint32_t host, const OutputView& output) override;
    void agent_output_end(std::uint32_t host, const OutputEnd& end) override;
    void agent_input_credit(std::uint32_t host, std::uint64_t bytes) override;
    void agent_paused(std::uint32_t host, const Paused& paused) override;
    void agent_signalled(std::uint32_t host, int signal) override;
    void agent_reached(std::uint32_t host, const Reached& reached) override;
    void agent_waits(std::uint32_t host, Waits waits) override;
    void agent_mpi(std::uint32_t host, const MpiNews& news) override;
    void agent_done(std::uint32_t host, const Done& done) override;
    Result<void> agent_exchanged(AgentSession& agent, const FrameView& frame) override;
    bool is_behind(const AgentSession& agent, std::uint32_t host) const override;
    void agent_lost(std::uint32_t host, const std::string& why) override;
    void agent_closed(AgentSession& agent, const Error& why) override;
    bool runs_on(std::uint32_t rank, std::uint32_t host) const;
    void give_up(AgentSession& session, const std::string& why);
    void lost(std::uint32_t host, const std::string& why);
    void beat();
    void to_port(PortId port, FrameType type, std::string_view payload) override;
    void share_with_port(PortId port, FrameType type, std::string_view payload,
                         const SharedBytes& rest) override;
    void to_root(FrameType type, std::string_view payload) override;

    // Where the ranks meet (head_meeting.cpp).
    asio::awaitable<void> meet();
    asio::awaitable<std::string> common_address(std::vector<std::string> addresses);
    void restart_ranks(const Exited& because);
    asio::awaitable<void> start_again();
    bool meets_at_master() const;
    void watch_waits();
    std::uint32_t rank_of(std::uint32_t host, std::int64_t pid) const;
    std::optional<std::uint32_t> host_at(const std::string& address) const;

    // What a daemon says, for `dtrun join` (head_join.cpp).
    void join_daemon();
    void daemon_assigned(const Assign& assign) override;
    void daemon_proposed(const Propose& propose) override;
    void daemon_stopped(const Stop& stop) override;
    Result<void> daemon_exchanged(const FrameView& frame) override;
    void daemon_is_back() override;
    Heartbeat progress() override;
    bool is_full() const override;  ///< what goes up to the daemon
    asio::awaitable<void> room() override;
    void daemon_lost(const Error& why) override;
    bool may_be_collateral(const Exited& exited) const;
    asio::awaitable<void> believe_later(std::uint32_t host, Exited exited);
    asio::awaitable<void> leave_daemon();

    // What follows.
    void step();
    void start_ranks();
    void assign(std::uint32_t host, const Assign& assign);
    void send(std::uint32_t host, Bytes frame);
    void send_to_all(const Bytes& frame);
    asio::awaitable<void> watch_signals();
    void watch_answers();
    asio::awaitable<void> hurry_after(std::chrono::milliseconds span);
    void on_signal(int signal);
    asio::awaitable<void> stop_ourselves();
    void return_credits();
    void output_failed(Error failure);
    asio::awaitable<void> drain_output();
    int finish();

    asio::io_context& io_;
    const plan::JobSpec& spec_;
    JobId job_id_ = random_job_id();
    Secret secret_ = Secret::random();
    transport::AgentFile agent_file_;
    transport::AgentCopies agent_copies_;
    std::vector<std::string> addresses_;  ///< of this machine, that hosts may try
    std::uint16_t port_ = 0;
    std::unique_ptr<transport::Pool> pool_;  ///< made for the first host that is not this machine
    transport::KnownHostsFiles known_hosts_;
    TaskGroup tasks_;
    std::vector<HostState> hosts_;
    std::list<Step> steps_;
    std::list<AgentSession> sessions_;
    std::map<PortId, AgentSession*> ports_;  ///< open ones
    PortId last_port_ = 0;
    Tree tree_;
    AnswerWatch answers_;
    Membership membership_;
    std::unique_ptr<Hub> hub_;  ///< of a job of our own
    std::unique_ptr<HubTimer> hub_timer_;
    std::unique_ptr<Relay> relay_;  ///< towards the hub of a daemon's job
    Exchange* exchange_ = nullptr;  ///< either
    std::unique_ptr<Uplink> uplink_;
    std::uint64_t generation_ = 0;  ///< of a daemon's job, that runs here
    std::uint64_t proposed_ = 0;    ///< that is coming
    std::uint32_t first_rank_ = 0;  ///< of ours, in a daemon's job
    Join local_join_;               ///< of the agent, in a daemon's job
    Pulse pulse_;
    Job job_;
    WaitWatch waits_;
    std::vector<std::pair<MemberId, Assign>> assignments_;  ///< of a generation that begins soon
    std::string master_address_;                            ///< of our own job, once it is known
    Outcome restart_because_;  ///< told when everything that ranks have printed is there
    Deadline started_at_{};    ///< ranks of this generation
    struct Probing {
        std::map<std::uint32_t, Reached> answers;  ///< by host
        std::size_t asked = 0;
    };
    std::optional<Probing> probing_;
    asio::steady_timer probed_;  ///< cancelled when a host has answered, or is lost
    std::unique_ptr<Server> server_;
    std::unique_ptr<output::OutputMux> output_;
    std::unique_ptr<output::Progress> progress_;
    std::unique_ptr<output::StdinPump> stdin_;
    asio::signal_set signals_;
    asio::steady_timer over_;         ///< cancelled when the job may be over
    asio::steady_timer output_idle_;  ///< cancelled when the output may be
    asio::steady_timer login_slot_;   ///< cancelled when a login has ended
    asio::steady_timer relay_ready_;  ///< cancelled when a relay has joined, or none will
    asio::steady_timer step_ended_;   ///< cancelled when an srun has ended
    std::map<std::string, std::vector<std::string>> elsewhere_;  ///< directory -> hosts that use it
    unsigned logins_ = 0;
    std::deque<std::pair<std::uint32_t, Deadline>> to_sweep_;  ///< hosts, and when it is too late
    std::vector<std::string> not_swept_;                       ///< for which it was
    unsigned sweepers_ = 0;
    bool starting_ = true;               ///< hosts may still be connecting
    bool suspending_ = false;            ///< we stop in a moment
    bool hurry_ = false;                 ///< interrupted twice: nothing is waited for
    int exit_code_ = 0;                  ///< of ours, if the job itself succeeds
    std::vector<std::string> failures_;  ///< of output, for the end
};

}  // namespace dtrun::head
