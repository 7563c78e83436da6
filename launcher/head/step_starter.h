#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/head/host_starter.h"
#include "launcher/head/slurm_step.h"
#include "launcher/transport/agent_file.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/process_channel.h"

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::head {

/// Starts the agents of all nodes of a Slurm allocation by one srun, which they share as their channel.
class StepStarter final : public HostStarter {
public:
    /// Starts a program on this machine, as transport::start_process() does.
    using StartProcess = std::function<Result<std::unique_ptr<transport::Process>>(
        const std::vector<std::string>& argv, const std::vector<std::string>& env)>;

    struct Parts {
        asio::any_io_executor executor;
        const plan::JobSpec& spec;
        const Hosts& hosts;
        const AgentConfigBuilder& configs;
        transport::AgentFile agent;
        StartProcess start_process;
    };
    explicit StepStarter(Parts parts);

    void start(StartEvents& events) override;
    void connect(HostId host) override;
    void look() override { relay_ready_.cancel(); }
    void host_lost(HostId) override {}  // the end of its step ends what is left there
    void host_left(HostId) override {}
    bool is_busy() const override { return false; }
    void beat(Clock::duration late) override;
    asio::awaitable<void> end(bool hurry) override;
    std::string why_gone() const override { return endings_.text(); }
    asio::awaitable<void> join() override;

private:
    /// How far a node of a step has come, until its agent has joined.
    enum class NodeState : std::uint8_t { starting, found, wanting, stored, ready, told, failed };
    /// One srun, which starts the agents of many hosts.
    struct Step {
        struct Node {
            HostId host{};
            NodeState state{};
            transport::HostWants wants{};  ///< if it lacks the agent
        };
        std::unique_ptr<transport::Process> process;
        std::map<std::string, Node, std::less<>> nodes;  ///< by name
        Deadline join_deadline{};     ///< for nodes that have their configuration
        bool relays_unknown = false;  ///< nodes behind relays have not been told these
        bool has_begun = false;       ///< its agents have their configurations
        bool ended = false;           ///< srun has, or could not be started
        bool signalled = false;       ///< by us

        std::map<NodeState, std::size_t> counts;  ///< how many nodes are in each state; none of 0

        void set(Node& node, NodeState state);
        void forget(const std::string& name);
        bool any(NodeState state) const { return counts.contains(state); }
        bool any_up_to(NodeState state) const {
            return !counts.empty() && counts.begin()->first <= state;
        }
    };

    asio::awaitable<void> run_step(std::vector<HostId> hosts);
    asio::awaitable<Result<void>> start_step(Step& step, transport::LineReader& lines);
    asio::awaitable<Result<void>> await_nodes(Step& step, transport::LineReader& lines,
                                              NodeState state, Deadline deadline);
    asio::awaitable<Result<void>> copy_to_nodes(Step& step);
    Result<void> lacking(Step& step, const std::string& machine, const Error& why);
    asio::awaitable<Error> hold_step(Step& step, transport::LineReader& lines);
    asio::awaitable<void> tell_relays(Step& step);
    asio::awaitable<void> wait_for_steps(std::chrono::milliseconds span);
    void node_said(Step& step, std::string_view line);
    void hear(Step& step, const std::string& text);
    void nodes_late(Step& step);
    void fail_nodes(Step& step, NodeState up_to, const std::string& text);
    void signal_steps(int signal);
    bool relays_needed(const Step& step) const;
    bool is_any_missing(const Step& step) const;
    bool is_any_joining(const Step& step) const;
    bool is_any_relay_joining(const Step& step) const;

    Parts parts_;
    const plan::JobSpec& spec_;
    StartEvents* events_ = nullptr;
    transport::AgentCopies copies_;
    std::list<Step> steps_;
    StepEndings endings_;  ///< that came from outside
    Timer relay_ready_;    ///< cancelled when a relay has joined, or none will
    Timer step_ended_;     ///< cancelled when an srun has ended
    TaskGroup tasks_;
};

}  // namespace dtrun::head
