#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "contracts/variables.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/links/handshake.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/router.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/agent_signals.h"
#include "worker/agent/connections.h"
#include "worker/agent/debugger_proxy.h"
#include "worker/agent/elastic_clients.h"
#include "worker/agent/lifeline.h"
#include "worker/agent/machine_load.h"
#include "worker/agent/onward_logins.h"
#include "worker/agent/preflight.h"
#include "worker/agent/rank_streams.h"
#include "worker/agent/reserved_ports.h"
#include "worker/agent/services.h"
#include "worker/agent/wait_report.h"
#include "worker/ranks/nested_watch.h"
#include "worker/ranks/rank_runner.h"
#include "worker/ranks/store_elsewhere.h"
#include "worker/stores/rejoin_queue.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::agent {

/// What an agent is connected to, by whoever makes it: run_agent() for a host, tests for a simulation.
struct AgentParts {
    Fd lifeline;  ///< standard input
    /// Writes a line to standard output, for the head to read.
    std::function<void(std::string_view line)> say;
    char** host_env = nullptr;  ///< "NAME=value", up to a null pointer
    std::string node;  ///< what the scheduler that starts all agents calls this host; else empty
    std::string machine{};  ///< as machine_text(); empty: not known
    /// As connect_to_server().
    std::function<asio::awaitable<Result<Connection>>(std::vector<std::string>, std::uint16_t,
                                                      Credentials, Deadline)>
        connect;
    /// \param exited  is to be called once for each rank that was started
    /// \param stays   with a text for the user, when ranks were killed and do not end
    std::function<std::unique_ptr<ranks::RankRunner>(std::function<void(const Exited&)> exited,
                                                     std::function<void(std::string)> stays)>
        make_runner;
    std::function<Services(const ServiceParts&)> make_services;
    /// As bundled_package.h's. Empty: there is none.
    std::function<Result<std::string>()> find_package;
    /// As make_store_program(). Empty: ranks have no `dtrun store` but that of an installed dtrun.
    std::function<Result<std::string>(const std::string& prefix)> make_store_program;
    /// As ranks::check_health(). Empty: every host is healthy.
    std::function<asio::awaitable<Result<void>>(ranks::RankCommand command)> check_health;
    /// As ranks::take_stacks(). Empty: nothing is known of any rank.
    std::function<asio::awaitable<std::vector<ProcessStacks>>(
        std::vector<ranks::RunningRank> ranks, contracts::Environment env, StackRequest request)>
        take_stacks;
    /// As ranks::look_for_nested(). Empty: nobody looks.
    std::function<ranks::Nested(const std::vector<ranks::RunningRank>& ranks)> look_for_nested;
    /// As ranks::measure_ranks(), with GPUs as they were last. Empty: nothing is known.
    std::function<UsageReport(const std::vector<ranks::RunningRank>& ranks)> measure;
    /// Finds out what GPUs do, for the next measure; after the first.
    std::function<asio::awaitable<void>(std::vector<ranks::RunningRank> ranks,
                                        contracts::Environment env)>
        ask_gpus;
    /// So many free ports in a row.
    std::function<ReservedPorts(std::uint32_t count)> reserve_ports;
    MachineLoad::Source load;  ///< whether the machine is overloaded
    /// By which a relay logs in to the hosts behind it. Empty: it cannot.
    StartLogin start_login;
    /// Called when the agent has connected: signals can be taken from then on.
    std::function<void()> connected;
};

/// What runs on each host: learns from its lifeline who it is, joins the head's rendezvous server,
/// starts the ranks it is told to, and is their only contact until none of their processes is left.
///
/// At the end of the lifeline, or when the connection to the head breaks, the job on this host is ended.
/// It says one line when it is ready for its configuration ("dtrun-agent <protocol> <build id>"), and one if
/// it cannot join the head ("dtrun-agent-failed <text>").
///
/// It has many members because each concern of a host is a part of its own; the agent is what connects
/// them, and a new concern of ranks is a row of services.cpp rather than one more of them.
///
/// Thread: the loop's, the only one. Lifetime: run() has ended before it is destroyed.
class Agent {
public:
    Agent(asio::io_context& io, AgentParts parts);
    ~Agent();

    /// From its configuration to the end. \return the process's exit status
    asio::awaitable<int> run();

    /// Passes on a signal that the agent itself has got, or that its guard has got and passed on.
    void got_signal(int signal, bool guard_lives) { signals_.agent_got(signal, guard_lives); }
    void guard_got(int signal) { signals_.guard_got(signal); }
    /// Who receives what the head says.
    const Router<>& router() const { return router_; }

private:
    /// The ranks of a generation, until all have executed their programs.
    struct Start {
        std::uint64_t generation = 0;
        std::size_t missing = 0;
        Started started{};
        std::vector<std::pair<FrameType, std::string>>
            deferred{};  ///< what came for them meanwhile
    };

    asio::awaitable<Result<void>> join_head();
    asio::awaitable<Result<Connection>> connect(const Credentials& credentials);
    bool is_elastic() const { return config_.ranks_min > 0; }
    Join describe_host(const Connection& connection) const;
    void learn_facts(const JobId& job);
    Result<void> open_for_ranks(const Credentials& credentials, Join& join);
    asio::awaitable<void> check_health();
    asio::awaitable<void> check_debugger();
    std::vector<std::string> environment_of_checks() const;
    asio::awaitable<void> prepare_services(Join& join);
    void keep_ready();
    void find_package();
    void look_for_libraries();
    void offer_store_program();
    asio::awaitable<void> say_goodbye();
    asio::awaitable<void> shut_down();
    asio::awaitable<void> watch_lifeline();
    asio::awaitable<void> serve_head();
    Result<void> handle(const FrameView& frame);
    void subscribe();
    Result<void> begin(Assign assign);
    void pause(const Pause& pause);
    void stop(const Stop& stop);
    void lose(ResetConnections wanted);
    void notify(const Notify& notify);
    void daemon_is_there(const Heard& heard);
    void announce(const Change& change, std::uint32_t grace_ms, const std::string& why);
    asio::awaitable<void> reset_connections(ResetConnections reset_connections);
    asio::awaitable<void> answer_probe(Probe probe, unsigned number);
    void head_signalled(int signal);
    asio::awaitable<void> stop_after(Stop stop);
    Pace beat();
    void say_alive();
    void look_for_nested();
    void say_who_waits(std::chrono::milliseconds at_least, std::vector<RankWait> waits = {});
    Connections::ForRanks for_ranks();
    Result<std::optional<Welcome>> welcome(PeerId peer, const Hello& hello);
    Result<Welcome> welcome_here(const Hello& hello) const;
    Welcome describe_place(const RankSlot& slot, const Assign& world) const;
    static Result<void> name_nodes(Assign& world);
    void choose_interface(const Assign& assign);
    asio::awaitable<void> start_when_ready(std::vector<RankSlot> fresh);
    asio::awaitable<Result<void>> start_ranks(Assign world, std::vector<RankSlot> fresh,
                                              std::function<bool(SlotIndex)> wanted);
    asio::awaitable<void> start_prepared(Assign world, std::uint64_t number);
    ranks::RankCommand bare_command(Rank rank) const;
    ranks::RankCommand command_for(const Assign& world, const RankSlot& slot,
                                   const ranks::RankOffer& offer);
    void keep_devices(const RankSlot& slot, contracts::Environment& env) const;
    Result<void> prepare(Prepare prepare);
    void end_processes(EndRanks order);
    asio::awaitable<void> end_ranks(EndRanks order);
    std::vector<RankSlot> take_over(const Assign& world);
    void rank_started(ranks::RankRunner::Start start, std::uint64_t generation);
    void all_started();
    void forget_start();
    void rank_exited(const Exited& ended);
    asio::awaitable<void> report_later(Exited exited);
    void report(const Exited& exited);
    void tell_end(const Exited& exited, std::string_view how);
    void rank_hangs(Rank rank, const std::string& why);
    asio::awaitable<void> tell_hang(Rank rank, std::string why);
    void tell_head(Bytes frame);
    void tell_user(const std::string& text);
    asio::awaitable<void> answer_usage(std::uint32_t number);
    asio::awaitable<void> answer_stacks(StackRequest request);
    asio::awaitable<std::vector<ProcessStacks>> look_at(std::optional<Rank> only,
                                                        StackRequest request);
    void open_onward_logins(const Credentials& credentials);
    Result<void> open_debug_door();
    void add_debugger(ranks::RankCommand& command, const RankSlot& slot);
    void tell_debugger(Rank rank);
    asio::awaitable<void> end_aborted(std::uint64_t generation, Rank rank);
    void end_services(std::function<void()> gone);
    void say_paused();
    void leave(std::string_view why);
    void end_job(int signal, std::chrono::milliseconds grace);
    void finish_if_done();

    asio::io_context& io_;
    AgentParts parts_;
    Router<> router_;  ///< what the head says
    Lifeline lifeline_;
    AgentConfig config_;
    StorePort store_port_;  ///< of Welcome
    Preflight preflight_;
    const std::uint64_t descriptor_limit_ =
        descriptor_limit();  ///< of ranks: as it was given to us
    contracts::ContractFacts facts_;
    std::string package_;          ///< folder of the Python package that came with us; empty: none
    std::string programs_;         ///< folder for the end of the ranks' PATH; empty: there is none
    std::string package_problem_;  ///< why there is none, if the user should know
    std::string interface_;        ///< over which the head was reached
    ReservedPorts reserved_ports_;
    std::unique_ptr<Link> link_;
    bool is_asked_ = false;  ///< by the head, at this moment, whether we are there
    bool joined_ = false;    ///< the head has been told that this host is ready, or why it is not
    std::vector<Bytes> early_;  ///< what it is told after that
    std::unique_ptr<Connections> connections_;
    std::unique_ptr<ranks::RankRunner> runner_;
    stores::RejoinQueue rejoins_;  ///< of an elastic job
    std::unique_ptr<ElasticClients> elastic_clients_;
    Services services_;
    std::unique_ptr<RankStreams> streams_;
    std::unique_ptr<OnwardLogins> onward_logins_;    ///< of a relay
    std::unique_ptr<DebuggerProxy> debugger_proxy_;  ///< if a rank here waits for a debugger
    Debugger debugger_ = Debugger::none;
    std::string debug_place_;                ///< where that debugger is reached
    std::optional<DebugStatus> debug_news_;  ///< what is told when that rank has been started
    bool looking_ = false;                   ///< tools look at ranks
    std::unique_ptr<FailureDetector> detector_;
    MachineLoad load_;
    WaitReport wait_report_;
    ranks::NestedWatch nested_watch_;
    bool said_nested_ = false;  ///< that ranks have worlds of their own
    AgentSignals signals_;
    Assign assign_;               ///< of the current generation
    std::optional<Start> start_;  ///< of that generation, until all its ranks run
    bool was_busy_ = false;       ///< since memory was given back
    /// An order to start processes for a generation that has not begun.
    struct Preparation {
        std::uint64_t number = 0;
        std::set<SlotIndex> places{};  ///< that are still wanted
    };
    Preparation preparing_;  ///< the last one
    /// Places whose processes are being started, run, or have ended and are not reported yet; and the
    /// number of each process.
    std::map<SlotIndex, std::uint64_t> processes_;
    std::uint64_t last_process_ = 0;
    unsigned probes_ = 0;
    bool said_severing_ = false;  ///< whether connections of ranks can be ended here
    TaskGroup tasks_;
    Timer look_ends_;  ///< cancelled when tools have looked at ranks
    Timer finished_;   ///< cancelled when the agent is done, or has no head any more

    /// How the job on this host ends, or pauses.
    struct Ending {
        bool head_stopped = false;             ///< the head, by Ctrl-Z, as it has announced
        bool leaving = false;                  ///< there is no head to report to any more
        std::optional<std::uint64_t> pausing;  ///< all is over for this generation to begin
        int unreported = 0;          ///< ranks that have ended, of which the head does not know yet
        std::optional<int> orphans;  ///< set when no process is left
        int orphans_before = 0;      ///< of generations that are over
        bool ending = false;         ///< end_job() was called
        bool done = false;
    } ending_;
};

}  // namespace dtrun::agent
