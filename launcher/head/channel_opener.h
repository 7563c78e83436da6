#pragma once

#include "base/numbered.h"
#include "launcher/head/login_starter.h"
#include "launcher/transport/agent_file.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/known_hosts.h"
#include "launcher/transport/lent_agent.h"
#include "launcher/warm/warm_hosts.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::head {

/// Reaches hosts as the plan says: by libssh, by the user's ssh command, or as a process of this machine.
class PlannedChannels final : public ChannelOpener {
public:
    /// \param configs  is told which address of ours a host has seen
    PlannedChannels(asio::any_io_executor executor, const plan::JobSpec& spec,
                    const JobCredentials& credentials, transport::AgentFile agent,
                    AgentConfigBuilder& configs)
        : executor_(std::move(executor)),
          spec_(spec),
          credentials_(credentials),
          agent_(std::move(agent)),
          configs_(configs) {}

    asio::awaitable<Result<std::unique_ptr<transport::Channel>>> open(
        HostId host, AgentRun run, Deadline deadline,
        std::function<void(const char*)> phase) override;
    asio::awaitable<std::unique_ptr<transport::Channel>> take_kept(
        HostId host, std::function<void(const char*)> phase) override;

    asio::awaitable<std::optional<RelayLogin>> by_relay(HostId host, Deadline deadline) override;
    asio::awaitable<void> all_logged_in() override;

    /// Agents are to be started in log-ins that are kept, where there are some. \param hosts  outlives this
    void use(warm::WarmHosts& hosts) { warm_ = &hosts; }
    /// What has to be equal for that. Errc: those of SshConfig::read()
    asio::awaitable<Result<std::string>> warm_key(HostId host, Deadline deadline);
    /// Our address as a host sees it into which libssh has logged in, numeric; empty: not known.
    std::string seen_by(HostId host) const;

private:
    bool lends_agent_to(HostId host) const;
    std::string lend_agent_to(HostId host);
    asio::awaitable<Result<std::unique_ptr<transport::Channel>>> open_by_ssh(
        HostId host, std::string command, Deadline deadline,
        std::function<void(const char*)> phase);
    transport::Pool& pool();
    asio::awaitable<Result<std::unique_ptr<transport::Channel>>> log_in(
        HostId host, std::string command, Deadline deadline,
        std::function<void(const char*)> phase);
    asio::awaitable<Result<transport::SshSettings>> settings_of(HostId host, Deadline deadline);
    asio::awaitable<Result<void>> read_ssh_files(Deadline deadline);
    Result<std::unique_ptr<transport::Channel>> start_ssh(HostId host, const std::string& command,
                                                          const std::string& why,
                                                          Deadline deadline);
    std::vector<std::string> local_command(AgentRun run) const;
    std::string remote_command(AgentRun run, std::string_view option = "") const;
    Result<std::unique_ptr<transport::Channel>> start_here(const std::vector<std::string>& argv,
                                                           const std::vector<std::string>& env,
                                                           int death_signal);

    asio::any_io_executor executor_;
    const plan::JobSpec& spec_;
    const JobCredentials& credentials_;
    transport::AgentFile agent_;
    AgentConfigBuilder& configs_;
    std::unique_ptr<transport::Pool> pool_;  ///< made for the first host that is not this machine
    transport::KnownHostsFiles known_hosts_;
    warm::WarmHosts* warm_ = nullptr;
    std::optional<std::string> ssh_files_;  ///< SshConfig::digest(), once it was asked for
    std::map<HostId, std::string> seen_by_;
    std::map<std::string, std::unique_ptr<transport::LentAgent>>
        lent_agents_;  ///< by the agent's socket; made for the first relay that is to have it
    bool has_warned_ = false;  ///< that there is none to lend
};

}  // namespace dtrun::head
