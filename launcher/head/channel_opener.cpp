#include "launcher/head/channel_opener.h"

#include "base/environment.h"
#include "base/log.h"
#include "launcher/head/slurm_step.h"
#include "launcher/transport/named_host.h"
#include "launcher/transport/process_channel.h"
#include "launcher/transport/ssh_login.h"
#include "launcher/warm/batch_job.h"
#include "launcher/warm/warm_key.h"

#include <unistd.h>
#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

constexpr std::size_t kLookUpsMax = 16;  // of names, at once
// Options of the agent's program.
constexpr const char* kExamine = "--checkup";
constexpr const char* kKeep = "--keep";
constexpr const char* kLentAgent = "--lent-ssh-agent";

/// What a log-in on this machine would give; the ranks' environment comes on top.
std::vector<std::string> login_environment() {
    std::vector<std::string> env;
    for (const char* name : {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "XDG_CACHE_HOME"})
        if (const char* value = ::getenv(name)) env.push_back(fmt::format("{}={}", name, value));
    return env;
}

/// The file of configuration that an `ssh -F FILE` reads in place of others; empty: no such option.
std::string file_of_option(const std::vector<std::string>& command) {
    for (std::size_t i = 1; i < command.size(); ++i) {
        if (command[i] == "-F" && i + 1 < command.size()) return command[i + 1];
        if (command[i].starts_with("-F")) return command[i].substr(2);
    }
    return {};
}

/// With each '%' doubled, which ssh would replace.
std::string percents(std::string_view text) {
    std::string result;
    for (const char c : text) result.append(c == '%' ? 2 : 1, c);
    return result;
}

/// `ssh` as the user wants it, for one host.
/// \param lent_agent  where it finds the ssh-agent that the host may use: whatever its configuration says, only if the
///                    user asks for it; empty: none
std::vector<std::string> ssh_command_line(const transport::SshOptions& ssh, const Host& host,
                                          const std::string& command, std::chrono::seconds limit,
                                          const std::string& lent_agent) {
    const std::string address = host.address.empty() ? host.name : host.address;
    std::vector<std::string> argv = ssh.command;
    if (!transport::is_openssh(ssh)) {
        argv.push_back(host.user.empty() ? address : host.user + "@" + address);
        argv.push_back(command);
        return argv;
    }
    if (argv.empty())  // as our own log-in: forwardings are not a job's, and a master would stay
        argv = {"ssh",
                lent_agent.empty() ? "-a" : "-A",
                "-x",
                "-o",
                "ClearAllForwardings=yes",
                "-o",
                "ControlMaster=no"};
    if (!lent_agent.empty())
        argv.insert(argv.end(), {"-o", "IdentityAgent=" + percents(lent_agent)});
    argv.insert(argv.end(), {"-T", "-o", "RemoteCommand=none", "-o", "BatchMode=yes", "-o",
                             fmt::format("ConnectTimeout={}", std::max<long>(1, limit.count())),
                             // A firewall must not forget the idle lifeline.
                             "-o", "ServerAliveInterval=30"});
    if (ssh.accept_new_host_keys)
        argv.insert(argv.end(), {"-o", "StrictHostKeyChecking=accept-new"});
    const int port = host.port != 0 ? host.port : ssh.port;
    if (port != 0) argv.insert(argv.end(), {"-p", std::to_string(port)});
    const std::string& key = host.identity_file.empty() ? ssh.identity_file : host.identity_file;
    if (!key.empty()) argv.insert(argv.end(), {"-i", key});
    if (!host.user.empty()) argv.insert(argv.end(), {"-l", host.user});
    // The configuration is that of the name.
    if (!host.address.empty()) argv.insert(argv.end(), {"-o", "HostName=" + percents(address)});
    argv.insert(argv.end(), {host.name, command});
    return argv;
}

}  // namespace

asio::awaitable<Result<std::unique_ptr<transport::Channel>>> PlannedChannels::open(
    HostId host, AgentRun run, Deadline deadline, std::function<void(const char*)> phase) {
    const plan::JobHost& target = spec_.hosts[host];
    if (target.transport == plan::Transport::local) {
        auto here = start_here(local_command(run), login_environment(), 0);
        co_return here;
    }
    const std::string command = remote_command(run, lends_agent_to(host) ? kLentAgent : "");
    if (target.transport == plan::Transport::slurm) {
        phase("srun");
        auto argv = srun_command(spec_, {&host, 1}, command);
        argv.insert(argv.begin() + 1, "--unbuffered");  // frames are no lines, for which srun waits
        auto here = start_here(argv, spec_.access.srun_env, SIGTERM);
        co_return here;
    }
    auto channel = co_await open_by_ssh(host, command, deadline, std::move(phase));
    co_return channel;
}

asio::awaitable<Result<std::unique_ptr<transport::Channel>>> PlannedChannels::open_by_ssh(
    HostId host, std::string command, Deadline deadline, std::function<void(const char*)> phase) {
    const plan::JobHost& target = spec_.hosts[host];
    if (target.transport == plan::Transport::ssh_command) {
        phase("ssh");
        const std::string why = target.ssh ? target.ssh->only_ssh : "";
        auto by_ssh = start_ssh(host, command, why, deadline);
        co_return by_ssh;
    }
    if (lends_agent_to(host)) {  // libssh would have to carry it
        phase("ssh");
        auto by_ssh = start_ssh(host, command, "--tree-login forward-agent", deadline);
        co_return by_ssh;
    }
    auto channel = co_await log_in(host, std::move(command), deadline, std::move(phase));
    co_return channel;
}

/// Whether a host is a relay that is to log in to others with the keys of the user's ssh-agent.
bool PlannedChannels::lends_agent_to(HostId host) const {
    const plan::Options& asked = spec_.options;
    return asked.tree_login == plan::TreeLogin::forward_agent && !asked.elastic &&
           spec_.access.ssh.command.empty() &&
           Tree(static_cast<std::uint32_t>(spec_.hosts.size()),
                static_cast<std::uint32_t>(asked.tree_threshold))
               .is_relay(host);
}

/// \return where an ssh finds the user's ssh-agent that is to forward it; empty: there is none
std::string PlannedChannels::lend_agent_to(HostId host) {
    if (!lends_agent_to(host)) return {};
    const auto& settings = spec_.hosts[host].ssh;
    const char* const usual = ::getenv("SSH_AUTH_SOCK");
    std::string agent = settings ? settings->agent : "";
    if (agent.empty() && usual != nullptr) agent = usual;
    if (agent.empty() || agent == "none") {
        if (!std::exchange(has_warned_, true))
            log::warn(
                "--tree-login forward-agent: there is no ssh-agent here (SSH_AUTH_SOCK), so relays "
                "log in to other hosts by keys that they have");
        return {};
    }
    if (const auto found = lent_agents_.find(agent); found != lent_agents_.end())
        return found->second->path();
    auto lent = transport::LentAgent::lend(executor_, agent);
    if (!lent) {
        if (!std::exchange(has_warned_, true))
            log::warn("--tree-login forward-agent: {}", lent.error().message);
        return {};
    }
    return lent_agents_.emplace(agent, std::move(*lent)).first->second->path();
}

asio::awaitable<void> PlannedChannels::all_logged_in() {
    for (const auto& [agent, lent] : lent_agents_) co_await lent->take_back();
}

asio::awaitable<std::optional<RelayLogin>> PlannedChannels::by_relay(HostId host,
                                                                     Deadline deadline) {
    const plan::JobHost& target = spec_.hosts[host];
    if (!target.ssh || !target.ssh->only_ssh.empty()) co_return std::nullopt;
    const auto named = co_await transport::find_keys(pool(), known_hosts_, *target.ssh, deadline);
    if (!named) co_return std::nullopt;
    auto order =
        transport::order_login(target.host, *target.ssh, *named, remote_command(AgentTask::run));
    if (!order) co_return std::nullopt;
    // By which others may fetch the agent from it. The relay may know the name, and we not.
    const auto addresses = co_await transport::look_up(pool(), order->host, deadline);
    const std::string address = addresses ? addresses->front().to_string() : "";
    co_return RelayLogin{std::move(*order), address};
}

transport::Pool& PlannedChannels::pool() {
    if (!pool_)
        pool_ = std::make_unique<transport::Pool>(
            spec_.discovers_hosts() ? kLookUpsMax
                                    : std::min<std::size_t>(spec_.hosts.size(), kLookUpsMax));
    return *pool_;
}

asio::awaitable<std::unique_ptr<transport::Channel>> PlannedChannels::take_kept(
    HostId host, std::function<void(const char*)> phase) {
    const plan::JobHost& target = spec_.hosts[host];
    const bool is_by_ssh = target.transport == plan::Transport::ssh ||
                           target.transport == plan::Transport::ssh_command;
    if (!is_by_ssh || warm_ == nullptr || warm_->is_empty()) co_return nullptr;
    phase("a log-in that is kept");
    auto key = co_await warm_key(host, after(spec_.options.connect_timeout));
    if (!key) co_return nullptr;  // the log-in tells why
    auto taken = co_await warm_->take(std::move(*key));
    if (!taken) co_return nullptr;
    log::info("{}: in a log-in that is kept", target.host.name);
    if (!taken->seen_as.empty()) configs_.prefer(taken->seen_as);
    co_return std::move(taken->channel);
}

asio::awaitable<Result<std::string>> PlannedChannels::warm_key(HostId host, Deadline deadline) {
    const plan::JobHost& target = spec_.hosts[host];
    warm::LogInWords words{target.host,     spec_.access.ssh,       nullptr,
                           agent_.build_id, warm::batch_job_here(), {}};
    transport::SshSettings settings;
    if (transport::is_openssh(spec_.access.ssh)) {
        auto found = co_await settings_of(host, deadline);
        if (!found) co_return std::unexpected(found.error());
        settings = std::move(*found);
        words.settings = &settings;
    }
    if (words.is_by_ssh()) {
        const auto read = co_await read_ssh_files(deadline);
        if (!read) co_return std::unexpected(read.error());
        words.ssh_files = *ssh_files_;
    }
    co_return warm::warm_key(words);
}

/// Once, for all hosts.
asio::awaitable<Result<void>> PlannedChannels::read_ssh_files(Deadline deadline) {
    if (ssh_files_) co_return Result<void>{};
    const auto work = [file = file_of_option(spec_.access.ssh.command)]() -> Result<std::string> {
        const auto config = transport::SshConfig::read(file);
        if (!config) return std::unexpected(config.error());
        return config->digest();
    };
    auto found = co_await transport::run_on(pool(), work, deadline);
    if (!found) co_return fail(found.error(), "reading ssh's configuration");
    if (!*found) co_return std::unexpected(found->error());
    ssh_files_ = std::move(**found);
    co_return Result<void>{};
}

std::string PlannedChannels::seen_by(HostId host) const {
    const auto found = seen_by_.find(host);
    return found == seen_by_.end() ? "" : found->second;
}

/// By our own log-in, or by ssh if it turns out that only that can.
asio::awaitable<Result<std::unique_ptr<transport::Channel>>> PlannedChannels::log_in(
    HostId host, std::string command, Deadline deadline, std::function<void(const char*)> phase) {
    auto settings = co_await settings_of(host, deadline);
    if (!settings) co_return std::unexpected(settings.error());
    if (!settings->only_ssh.empty()) {
        phase("ssh");
        auto by_ssh = start_ssh(host, command, settings->only_ssh, deadline);
        co_return by_ssh;
    }
    auto login =
        co_await transport::ssh_login(pool(), known_hosts_, std::move(*settings),
                                      spec_.hosts[host].host.address, command, deadline, phase);
    if (!login) co_return std::unexpected(login.error());
    if (login->channel) {
        configs_.prefer(login->local_address);
        seen_by_[host] = login->local_address;
        Result<std::unique_ptr<transport::Channel>> channel = std::move(login->channel);
        co_return channel;
    }
    phase("ssh");
    log::info("{}: by ssh, which alone knows of {}", spec_.hosts[host].host.name, login->only_ssh);
    auto by_ssh = start_ssh(host, command, login->only_ssh, deadline);
    if (!by_ssh) co_return std::unexpected(std::move(login->refused));
    co_return by_ssh;
}

/// What the plan has found out, or, of a host that has come since, what the files say now.
asio::awaitable<Result<transport::SshSettings>> PlannedChannels::settings_of(HostId host,
                                                                             Deadline deadline) {
    const plan::JobHost& target = spec_.hosts[host];
    if (target.ssh) co_return *target.ssh;
    const auto work = [host = target.host,
                       options = spec_.access.ssh]() -> Result<transport::SshSettings> {
        const auto config = transport::SshConfig::read();
        if (!config) return std::unexpected(config.error());
        return config->find(host, options);
    };
    auto found = co_await transport::run_on(pool(), work, deadline);
    if (!found) co_return fail(found.error(), "reading ssh's configuration");
    co_return std::move(*found);
}

/// \param why  it has to be ssh; empty: the user has said so
Result<std::unique_ptr<transport::Channel>> PlannedChannels::start_ssh(HostId host,
                                                                       const std::string& command,
                                                                       const std::string& why,
                                                                       Deadline deadline) {
    const auto limit = std::chrono::duration_cast<std::chrono::seconds>(deadline - Clock::now());
    const auto argv = ssh_command_line(spec_.access.ssh, spec_.hosts[host].host, command, limit,
                                       lend_agent_to(host));
    auto here = start_here(argv, own_environment(), SIGTERM);
    if (here || here.error().code == Errc::internal) return here;
    const std::string& cause = here.error().message;
    if (!spec_.access.ssh.command.empty())
        return fail(Errc::invalid_input, "--ssh-command: {}", cause);
    return fail(Errc::invalid_input, "only ssh can log in there, because of {}, and {}", why,
                cause);
}

std::vector<std::string> PlannedChannels::local_command(AgentRun run) const {
    if (run.task == AgentTask::run) return {agent_.path};
    if (run.task == AgentTask::examine) return {agent_.path, kExamine};
    if (run.task == AgentTask::keep) return {agent_.path, kKeep};
    return {agent_.path, "--sweep", hex(credentials_.id), std::to_string(run.agent)};
}

/// \param option  of an agent that is to run
std::string PlannedChannels::remote_command(AgentRun run, std::string_view option) const {
    const std::string job = hex(credentials_.id);
    if (run.task == AgentTask::run) return transport::remote_agent_command(agent_, job, option);
    if (run.task == AgentTask::examine)
        return transport::remote_agent_command(agent_, job, kExamine);
    if (run.task == AgentTask::keep) return transport::remote_agent_command(agent_, job, kKeep);
    return transport::remote_sweep_command(transport::agent_build_ids(), job, run.agent);
}

Result<std::unique_ptr<transport::Channel>> PlannedChannels::start_here(
    const std::vector<std::string>& argv, const std::vector<std::string>& env, int death_signal) {
    auto started = transport::start_process(executor_, argv, env, death_signal);
    if (!started) return std::unexpected(started.error());
    return std::unique_ptr<transport::Channel>(std::move(*started));
}

}  // namespace dtrun::head
