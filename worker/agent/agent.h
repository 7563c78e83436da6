#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/loop/task_group.h"
#include "contracts/variables.h"
#include "rendezvous/exchange_messages.h"
#include "rendezvous/link.h"
#include "rendezvous/pulse.h"
#include "rendezvous/rank_messages.h"
#include "rendezvous/start_messages.h"
#include "worker/agent/connections.h"
#include "worker/agent/error_files.h"
#include "worker/agent/foreign_stores.h"
#include "worker/agent/machine_load.h"
#include "worker/agent/preflight.h"
#include "worker/agent/reserved_ports.h"
#include "worker/mpi/mpi_service.h"
#include "worker/ranks/input_feed.h"
#include "worker/ranks/output_pump.h"
#include "worker/ranks/supervisor.h"

#include <unistd.h>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace dtrun::agent {

/// What runs on each host: learns from standard input who it is, joins the head's rendezvous server,
/// starts the ranks it is told to, and is their only contact until none of their processes is left.
///
/// Standard input is the lifeline: at its end, or when the connection to the head breaks, the job
/// on this host is ended. Standard output carries one line when the agent is ready for its bootstrap
/// ("dtrun-agent <protocol> <build id>") and one if it cannot reach the head
/// ("dtrun-agent-failed <text>"). Agents that a scheduler starts share these streams: each line then
/// begins with "@<node> ".
///
/// Thread: the io_context's, the only one.
class Agent {
public:
    /// \param node  what the scheduler that starts all agents calls this host; else empty
    Agent(asio::io_context& io, char** host_env, std::string node);

    /// From bootstrap to the end. \return the process's exit status
    asio::awaitable<int> run();

private:
    void say(std::string_view line) const;
    asio::awaitable<Result<std::string>> read_frame(FrameType type);
    asio::awaitable<Result<void>> read_bootstrap();
    asio::awaitable<Result<void>> find_own_host();
    asio::awaitable<Result<void>> join_head();
    asio::awaitable<void> say_goodbye();
    asio::awaitable<void> watch_lifeline();
    asio::awaitable<void> watch_signals();
    void on_signal(int signal);
    void guard_got(int signal);
    asio::awaitable<void> pass_on(int signal);
    void scheduler_sent(int signal);
    bool everybody_got(int signal) const;
    asio::awaitable<void> stop_after(Stop stop);
    asio::awaitable<void> report_later(Exited exited);
    void report(const Exited& exited);
    void tell_end(const Exited& exited, std::string_view how);
    void tell_user(const std::string& text);
    asio::awaitable<void> end_aborted(std::uint64_t generation, std::uint32_t rank);
    asio::awaitable<void> serve_head();
    Result<void> handle(const FrameView& frame);

    Result<void> on_assign(std::string_view payload);
    Result<void> on_input(std::string_view payload);
    Result<void> on_pause(std::string_view payload);
    Result<void> on_stop(std::string_view payload);
    Result<void> on_probe(std::string_view payload);
    asio::awaitable<void> answer_probe(Probe probe, unsigned number);
    void choose_interface(const Assign& assign);
    void head_signalled(std::string_view payload);
    void say_who_waits(std::chrono::milliseconds at_least);
    Result<Welcome> welcome(const Hello& hello) const;
    void ranks_paused(std::uint64_t next_generation);
    void say_paused();
    void beat();
    void say_alive();
    void rank_exited(const Exited& exited);
    ranks::RankCommand command_for(const Assign& assign, const RankSlot& slot,
                                   const contracts::MpiFacts& mpi);
    asio::awaitable<void> start_when_ready();
    void forget_start();
    asio::awaitable<Result<void>> start_ranks(std::uint64_t generation);
    void start_rank(ranks::Supervisor::Request request);
    void rank_started(ranks::Supervisor::Start start, std::uint64_t generation);
    void all_started();
    bool wants_input(std::uint32_t rank) const;
    void leave(std::string_view why);
    void end_job(int signal, std::chrono::milliseconds grace);
    void finish_if_done();
    Result<void> open_ports(const Credentials& credentials, Join& join);
    Result<void> open_mpi();

    asio::io_context& io_;
    char** host_env_;
    std::string node_;
    pid_t guard_ = ::getppid();
    asio::posix::stream_descriptor lifeline_;
    Bootstrap bootstrap_;
    Preflight preflight_;
    const std::uint64_t descriptor_limit_ =
        descriptor_limit();  ///< of ranks: as it was given to us
    contracts::ContractFacts facts_;
    std::string interface_;  ///< over which the head was reached
    ReservedPorts reserved_ports_;
    ErrorFiles error_files_;
    std::unique_ptr<Link> link_;
    std::unique_ptr<Ports> ports_;
    std::unique_ptr<ForeignStores> stores_;
    std::unique_ptr<mpi::MpiService> mpi_;
    std::vector<RankWait> waits_said_;  ///< the last time
    unsigned probes_ = 0;
    std::unique_ptr<Pulse> pulse_;
    MachineLoad load_;
    Assign assign_;                          ///< of the current generation
    std::optional<std::uint64_t> starting_;  ///< this generation, whose ranks do not all run yet
    std::size_t not_started_ = 0;            ///< of them
    Started started_;                        ///< of them
    std::vector<std::pair<FrameType, std::string>> deferred_;  ///< what came for them meanwhile
    std::unique_ptr<ranks::OutputPump> pump_;
    std::map<std::uint32_t, std::unique_ptr<ranks::InputFeed>> feeds_;  ///< by rank
    ranks::Supervisor supervisor_;
    TaskGroup tasks_;
    asio::steady_timer finished_;           ///< cancelled when done_
    asio::steady_timer head_gone_;          ///< cancelled when leaving_
    bool head_stopped_ = false;             ///< as it has announced
    bool leaving_ = false;                  ///< no head to report to any more
    std::optional<std::uint64_t> pausing_;  ///< for this generation
    asio::signal_set signals_;
    int unreported_ = 0;  ///< ranks that have ended, of which the head does not know yet
    std::map<int, Deadline> signalled_;        ///< of a scheduler, straight to us, and when
    std::map<int, Deadline> guard_signalled_;  ///< the same to our guard
    std::optional<int> strays_;                ///< set when no process is left
    int strays_before_ = 0;                    ///< of generations that are over
    bool ending_ = false;                      ///< end_job() was called
    bool done_ = false;
};

}  // namespace dtrun::agent
