#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/head/host_starter.h"
#include "launcher/head/tree_logins.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/login_gate.h"
#include "launcher/transport/login_givers.h"
#include "rendezvous/wire/login_messages.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::head {

/// What the agent's program is run for.
enum class AgentTask : std::uint8_t {
    run,      ///< to become the host's agent
    examine,  ///< to examine the host for `dtrun doctor`
    keep,     ///< to start agents for jobs in this log-in
    sweep     ///< to end what an agent that is gone has left there
};

/// A run of the agent's program.
struct AgentRun {
    AgentRun(AgentTask what) : task(what) {}
    AgentRun(AgentTask what, std::uint64_t whose) : task(what), agent(whose) {}
    AgentTask task{};
    std::uint64_t agent = 0;  ///< to sweep: the number of the agent that is gone
};

/// A log-in that a relay may do.
struct RelayLogin {
    LoginOrder order;
    std::string address;  ///< of the host, numeric; empty: not known
};

/// Opens channels to hosts.
class ChannelOpener {
public:
    virtual ~ChannelOpener() = default;
    /// A channel on which the host's agent runs, or announces that it has to be copied there first.
    /// \param phase  is told what is being done
    /// Errc: those of ssh_login() and start_process()
    virtual asio::awaitable<Result<std::unique_ptr<transport::Channel>>> open(
        HostId host, AgentRun run, Deadline deadline, std::function<void(const char*)> phase) = 0;
    /// A channel to an agent that was started for this job in a log-in which is kept for jobs. Waits as long as somebody
    /// logs in there to keep it.
    /// \return null: there is none
    virtual asio::awaitable<std::unique_ptr<transport::Channel>> take_kept(
        [[maybe_unused]] HostId host, [[maybe_unused]] std::function<void(const char*)> phase) {
        co_return nullptr;
    }
    /// How a relay would log in, to run the host's agent. Nothing: only the head can.
    virtual asio::awaitable<std::optional<RelayLogin>> by_relay(HostId, Deadline) {
        co_return std::nullopt;
    }
    /// What was lent to relays for their log-ins is taken back: none follows. More than once is as good.
    virtual asio::awaitable<void> all_logged_in() { co_return; }
};

/// Starts the agent of each host over a channel of its own: a log-in by ssh, or a process of this machine.
///
/// Where a log-in is kept, an agent in that is taken. At most --fanout log-ins go on at once, each within
/// --connect-timeout; meanwhile relays log in to hosts behind them. A host that hangs up before it knows who we are is
/// tried again until then, as it does so when too many log in at once. One that is not there yet, whose name nobody knows,
/// whose port refuses or which does not answer, is tried again for --wait-for-hosts: without that, a name that is
/// misspelt is told at once.
class LoginStarter final : public HostStarter {
public:
    struct Parts {
        asio::any_io_executor executor;
        const plan::JobSpec& spec;
        Hosts& hosts;
        const AgentConfigBuilder& configs;
        ChannelOpener& channels;
        const Secret& secret;  ///< of the job
    };
    explicit LoginStarter(Parts parts);

    void subscribe(Router<HostId>& router) override { tree_logins_.subscribe(router); }
    void start(StartEvents& events) override;
    void connect(HostId host) override;
    void look() override;
    void host_lost(HostId host) override;
    void host_left(HostId host) override;
    bool is_busy() const override { return sweepers_ > 0; }
    void beat(Clock::duration late) override;
    asio::awaitable<void> end(bool hurry) override;
    asio::awaitable<void> join() override;

private:
    bool is_ours(HostId host) const;
    asio::awaitable<void> run_host(HostId host);
    asio::awaitable<Result<void>> log_in(HostId host);
    asio::awaitable<bool> take_kept(HostId host);
    asio::awaitable<Result<void>> log_in_once(HostId host, std::optional<Deadline>& deadline);
    std::optional<HostId> relay_for(HostId host) const;
    asio::awaitable<bool> log_in_from(HostId relay, HostId host);
    void add_givers();
    void hand_over();
    asio::awaitable<Result<void>> tell_agent(HostId host);
    asio::awaitable<void> wait_for_relay(HostId host);
    asio::awaitable<void> hold_lifeline(HostId host);
    void drop(HostId host, std::chrono::milliseconds patience);
    void host_failed(HostId host, const Error& why);
    void end_carrier(HostId host, std::chrono::milliseconds patience);
    asio::awaitable<void> wait_for_end(std::shared_ptr<transport::Channel> carrier,
                                       std::chrono::milliseconds patience);
    asio::awaitable<void> sweep_hosts();
    asio::awaitable<void> sweep(HostId host, std::uint64_t agent);

    Parts parts_;
    const plan::JobSpec& spec_;
    StartEvents* events_ = nullptr;
    TreeLogins tree_logins_;
    PerHost<std::shared_ptr<transport::Channel>> lifelines_;  ///< by host
    PerHost<std::uint64_t> agents_;                           ///< number of each host's last agent
    std::uint64_t last_agent_ = 0;
    /// Those of lifelines_ that a program of this machine carries, as ssh, and that are not ending.
    std::map<HostId, std::shared_ptr<transport::Channel>> carriers_;
    std::list<std::shared_ptr<transport::Channel>> ending_;  ///< others that a program carries
    std::list<std::shared_ptr<transport::Channel>>
        left_;  ///< closed, until nothing of them runs here
    transport::AgentCopies copies_;
    transport::LoginGate gate_;
    transport::LoginGivers givers_;
    bool all_logged_in_ = false;          ///< known to channels
    std::vector<HostId> awaited_relays_;  ///< that have not joined
    std::set<HostId> given_;              ///< hosts that a relay has tried
    Deadline awaited_until_{};            ///< hosts that are not there yet
    Clock::duration lost_time_{};         ///< in which this process did not run
    Timer relay_ready_;                   ///< cancelled when a relay has joined, or none will
    Timer all_ended_;                     ///< cancelled when ending_ has become empty
    struct Sweep {
        HostId host{};
        std::uint64_t agent = 0;
        Deadline until;  ///< to begin
    };
    std::deque<Sweep> to_sweep_;
    std::vector<std::string> not_swept_;  ///< hosts for which it was too late
    unsigned sweepers_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun::head
