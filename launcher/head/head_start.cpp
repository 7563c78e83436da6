// How a job begins: a server that agents can reach, and an agent on each host.

#include "base/crypto.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "base/milliseconds.h"
#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "launcher/head/head.h"
#include "launcher/head/slurm_step.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/process_channel.h"

#include <unistd.h>
#include <algorithm>

namespace dtrun::head {
namespace {

constexpr unsigned kLoginsMax = 128;                  // at once; more only makes each slower
constexpr std::size_t kLookUpsMax = 16;               // of names, at once
constexpr std::chrono::seconds kWriteLimit{2};        // of a bootstrap
constexpr std::chrono::seconds kSweepLimit{4};        // a host that is down need not keep the user
constexpr std::chrono::seconds kSweepsLimit{20};      // nor need thousands, in turns of kLoginsMax
constexpr std::uint32_t kPortsOfMaster = 2;           // MASTER_PORT, and one more for JAX
constexpr std::uint64_t kOutputBytesMax = 64u << 20;  // of all hosts together, under way

std::string trim_copy(std::string_view text) {
    return std::string(trim(text));
}

/// What a log-in on this machine would give; the ranks' environment comes on top.
std::vector<std::string> login_environment() {
    std::vector<std::string> env;
    for (const char* name : {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"})
        if (const char* value = ::getenv(name)) env.push_back(fmt::format("{}={}", name, value));
    return env;
}

StartFailure failure_kind(Errc code) {
    switch (code) {
        case Errc::not_found:
        case Errc::unreachable:
            return StartFailure::unreachable;
        case Errc::timed_out:
            return StartFailure::timed_out;
        case Errc::denied:
            return StartFailure::denied;
        default:
            return StartFailure::agent;
    }
}

StartFailure failure_kind(HostProblem problem) {
    switch (problem) {
        case HostProblem::program_missing:
            return StartFailure::program_missing;
        case HostProblem::not_executable:
            return StartFailure::not_executable;
        case HostProblem::directory_missing:
            return StartFailure::directory_missing;
        case HostProblem::mpi:
            return StartFailure::mpi;
        default:
            return StartFailure::other;
    }
}

/// `ssh` as the user wants it, for one host.
std::vector<std::string> ssh_command_line(const transport::SshOptions& ssh, const Host& host,
                                          const std::string& command, std::chrono::seconds limit) {
    std::vector<std::string> argv =
        ssh.command.empty() ? std::vector<std::string>{"ssh"} : ssh.command;
    const std::string_view program = argv.front();
    const bool is_ssh = program == "ssh" || program.ends_with("/ssh");
    const std::string address = host.address.empty() ? host.name : host.address;
    if (is_ssh) {
        argv.insert(argv.end(), {"-o", "BatchMode=yes", "-o",
                                 fmt::format("ConnectTimeout={}", std::max<long>(1, limit.count())),
                                 // A firewall must not forget the lifeline, where nothing moves.
                                 "-o", "ServerAliveInterval=30"});
        if (ssh.accept_new_host_keys)
            argv.insert(argv.end(), {"-o", "StrictHostKeyChecking=accept-new"});
        const int port = host.port != 0 ? host.port : ssh.port;
        if (port != 0) argv.insert(argv.end(), {"-p", std::to_string(port)});
        const std::string& key =
            host.identity_file.empty() ? ssh.identity_file : host.identity_file;
        if (!key.empty()) argv.insert(argv.end(), {"-i", key});
        if (!host.user.empty()) argv.insert(argv.end(), {"-l", host.user});
    }
    argv.push_back(is_ssh || host.user.empty() ? address : host.user + "@" + address);
    argv.push_back(command);
    return argv;
}

}  // namespace

Result<void> Head::listen() {
    const bool all_local = std::ranges::all_of(spec_.hosts, [](const plan::JobHost& host) {
        return host.transport == plan::Transport::local;
    });
    const auto secret_of = [this](const JobId& job) {
        return job == job_id_ ? std::optional(secret_) : std::nullopt;
    };
    const auto admit = [this](const JobId&, Connection connection) {
        this->admit(std::move(connection));
    };
    ServerOptions options;
    options.encrypt = spec_.options.encrypt;
    server_ = std::make_unique<Server>(io_.get_executor(), secret_of, admit, options);

    std::vector<std::string> listen_on{"127.0.0.1"};
    const auto& wanted = spec_.options.network_interfaces;
    for (const InterfaceAddress& address : interface_addresses()) {
        if (all_local || address.loopback) continue;
        if (!wanted.empty() && std::ranges::find(wanted, address.interface) == wanted.end())
            continue;
        addresses_.push_back(address.address);
        if (!wanted.empty()) listen_on.push_back(address.address);
    }
    if (!all_local && wanted.empty()) listen_on = {"::"};
    if (!all_local && addresses_.empty())
        return fail(Errc::invalid_input,
                    "this machine has no network interface {} that hosts could reach",
                    join_names(wanted));
    auto port = server_->listen(listen_on, 0);
    if (!port && listen_on.front() == "::") port = server_->listen({"0.0.0.0"}, 0);  // no IPv6 here
    if (!port) return std::unexpected(port.error());
    port_ = *port;
    return {};
}

asio::awaitable<void> Head::start_hosts() {
    auto groups = step_groups(spec_);
    if (spec_.options.encrypt && !groups.empty())
        log::warn(
            "--encrypt: srun carries the job's secret to the hosts and does not encrypt it; "
            "--transport ssh does");
    for (auto& group : groups) tasks_.spawn(run_step(std::move(group)));
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
        if (spec_.hosts[host].transport == plan::Transport::slurm) continue;
        while (logins_ >= kLoginsMax && starting_) co_await login_slot_.async_wait(use_tuple);
        if (!starting_) co_return;
        ++logins_;
        tasks_.spawn(run_host(host));
    }
}

/// One host from the first packet to the end of the lifeline.
asio::awaitable<void> Head::run_host(std::uint32_t host) {
    const auto limit = spec_.options.connect_timeout;
    const Deadline deadline = after(limit);
    auto started = co_await log_in(host, deadline);
    --logins_;
    login_slot_.cancel();
    if (started) started = co_await tell_agent(host, deadline);
    if (!started) {
        Error error = started.error();
        if (error.code == Errc::cancelled) co_return;
        if (error.code == Errc::timed_out)
            error.message += fmt::format(" within {:.3g} s (--connect-timeout)",
                                         std::chrono::duration<double>(limit).count());
        co_return host_failed(host, error);
    }
    // The agent has its own limit for reaching us; it tells what it tried.
    co_await hold_lifeline(host, after(limit + std::chrono::seconds(2)));
}

asio::awaitable<Result<void>> Head::log_in(std::uint32_t host, Deadline deadline) {
    auto& channel = hosts_[host].channel;
    const std::string command = transport::remote_agent_command(agent_file_);
    auto done = co_await open_channel(host, command, deadline, channel);
    if (!done) co_return done;
    transport::LineReader lines(*channel);
    const auto phase = [this, host](const char* what) { set_phase(host, what); };
    const auto patience = spec_.options.connect_timeout;
    done =
        co_await transport::greet_agent(*channel, lines, agent_copies_, deadline, patience, phase);
    co_return done;
}

/// Its bootstrap, once the relay is there to which it is to connect.
asio::awaitable<Result<void>> Head::tell_agent(std::uint32_t host, Deadline deadline) {
    co_await wait_for_relay(host);
    Bytes frame = bootstrap_frame(host);
    // A slow relay is not this host's fault.
    const Deadline written_by = std::max(deadline, after(kWriteLimit));
    auto done = co_await hosts_[host].channel->write(frame, written_by);
    ::explicit_bzero(frame.data(), frame.size());
    set_phase(host, "the agent to connect back");
    co_return done;
}

asio::awaitable<Result<void>> Head::open_channel(std::uint32_t host, std::string command,
                                                 Deadline deadline,
                                                 std::unique_ptr<transport::Channel>& channel) {
    const plan::JobHost& target = spec_.hosts[host];
    if (target.transport == plan::Transport::ssh) {
        const auto phase = [this, host](const char* what) { set_phase(host, what); };
        if (!pool_)
            pool_ = std::make_unique<transport::Pool>(
                std::min<std::size_t>(hosts_.size(), kLookUpsMax));
        auto login = co_await transport::ssh_login(*pool_, known_hosts_, target.host, spec_.ssh,
                                                   command, deadline, phase);
        if (!login) co_return std::unexpected(login.error());
        channel = std::move(login->channel);
        // The address by which that host sees us is the best guess for the others too.
        const auto known = std::ranges::find(addresses_, login->local_address);
        if (known != addresses_.end()) std::rotate(addresses_.begin(), known, known + 1);
        co_return Result<void>{};
    }
    std::vector<std::string> argv{agent_file_.path};
    std::vector<std::string> env = login_environment();
    if (target.transport == plan::Transport::ssh_command) {
        set_phase(host, "ssh");
        const auto limit =
            std::chrono::duration_cast<std::chrono::seconds>(deadline - Clock::now());
        argv = ssh_command_line(spec_.ssh, target.host, command, limit);
        env.clear();
        for (char** entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);
    }
    auto started = transport::start_process(io_.get_executor(), argv, env);
    if (!started) co_return std::unexpected(started.error());
    channel = std::move(*started);
    co_return Result<void>{};
}

/// Until the relay that this host is to connect to is there. If it cannot be started the job will not
/// be either, and this host may connect to us to hear that.
asio::awaitable<void> Head::wait_for_relay(std::uint32_t host) {
    const auto parent = tree_.parent(host);
    if (!parent) co_return;
    set_phase(host, "its relay");
    while (starting_ && hosts_[*parent].relay_port == 0 && !job_.has_failed(*parent))
        co_await relay_ready_.async_wait(use_tuple);
}

Bootstrap Head::common_bootstrap() const {
    const plan::Options& options = spec_.options;
    Bootstrap boot;
    boot.job_id.assign(job_id_.begin(), job_id_.end());
    boot.secret.assign(secret_.bytes().begin(), secret_.bytes().end());
    boot.addresses = addresses_;
    boot.port = port_;
    boot.encrypt = options.encrypt;
    boot.heartbeat_timeout_ms = to_ms(options.heartbeat_timeout);
    boot.connect_timeout_ms = to_ms(options.connect_timeout);
    boot.grace_ms = to_ms(options.grace);
    boot.argv = options.program;
    boot.directory = spec_.directory;
    boot.directory_required = spec_.directory_required;
    boot.interfaces = options.network_interfaces;
    const std::uint64_t window = kOutputBytesMax / hosts_.size();
    boot.output_window_bytes =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(window, 128u << 10, 4u << 20));
    boot.input = options.stdin_target.kind == plan::StdinTarget::Kind::all    ? InputTarget::all
                 : options.stdin_target.kind == plan::StdinTarget::Kind::rank ? InputTarget::one
                                                                              : InputTarget::none;
    boot.input_rank = static_cast<std::uint32_t>(options.stdin_target.rank);
    boot.log_level = static_cast<std::uint8_t>(options.verbosity);
    if (spec_.allocation)
        boot.cpus_per_rank = static_cast<std::uint32_t>(spec_.allocation->cpus_per_rank);
    boot.contracts = spec_.contracts;
    std::vector<std::string> names;
    std::vector<int> ranks;
    for (const plan::JobHost& host : spec_.hosts) {
        names.push_back(host.host.name);
        ranks.push_back(static_cast<int>(host.ranks.size()));
    }
    boot.nodelist = compress_nodelist(names);
    boot.tasks_per_node = tasks_per_node(ranks);
    boot.torch_store = options.torch_store;
    boot.mpi = options.mpi;
    boot.mpi_job = hex(mpi_job());
    boot.max_restarts = static_cast<std::uint32_t>(options.max_restarts);
    boot.role = options.role;
    boot.run_id = options.run_id;
    boot.rank_macros = options.rank_macros;
    boot.reserve_everywhere = contracts::needs_nodes(spec_.contracts);
    boot.reserve_ports = kPortsOfMaster;
    if (boot.reserve_everywhere)
        boot.reserve_ports += static_cast<std::uint32_t>(std::ranges::max(ranks));
    return boot;
}

/// Half of what keeps others of a host out of PMIx is that they cannot guess it.
JobId Head::mpi_job() const {
    if (!spec_.daemon) return job_id_;
    constexpr std::string_view kPurpose = "dtrun mpi";
    const auto bytes = reinterpret_cast<const std::uint8_t*>(kPurpose.data());
    const Sha256 digest =
        hmac_sha256(spec_.daemon->credentials.secret.bytes(), {std::span(bytes, kPurpose.size())});
    JobId id{};
    std::copy_n(digest.begin(), id.size(), id.begin());
    return id;
}

Bytes Head::bootstrap_frame(std::uint32_t host) const {
    const plan::JobHost& target = spec_.hosts[host];
    Bootstrap boot = common_bootstrap();
    boot.host = host;
    boot.host_name = target.host.name;
    if (target.transport == plan::Transport::local) boot.addresses = {"127.0.0.1"};
    const auto parent = tree_.parent(host);
    if (parent && hosts_[*parent].relay_port != 0) {
        boot.addresses = {hosts_[*parent].address};
        boot.port = hosts_[*parent].relay_port;
    }
    boot.relay = tree_.is_relay(host);
    boot.env = target.env;
    if (host != 0 && !boot.reserve_everywhere) boot.reserve_ports = 0;
    Bytes frame = encode(boot);
    ::explicit_bzero(boot.secret.data(), boot.secret.size());
    return frame;
}

/// The same for all hosts that Slurm starts.
Bytes Head::step_bootstrap_frame() const {
    Bootstrap boot = common_bootstrap();
    for (const plan::JobHost& host : spec_.hosts) {
        const bool is_node = host.transport == plan::Transport::slurm;
        boot.nodes.push_back(is_node ? host.host.name : "");
        if (is_node && boot.env.empty()) boot.env = host.env;
    }
    boot.tree_threshold = static_cast<std::uint32_t>(spec_.options.tree_threshold);
    Bytes frame = encode(boot);
    ::explicit_bzero(boot.secret.data(), boot.secret.size());
    return frame;
}

/// Reads what the agent says besides the protocol until its end, which is the host's.
asio::awaitable<void> Head::hold_lifeline(std::uint32_t host, Deadline join_deadline) {
    HostState& state = hosts_[host];
    transport::LineReader lines(*state.channel);
    for (;;) {
        const Deadline deadline = state.session != nullptr ? Deadline::max() : join_deadline;
        const auto line = co_await lines.next(deadline);
        const std::string said = trim_copy(state.channel->take_errors());
        if (!said.empty()) log::warn("{}", said);
        if (line && line->starts_with(transport::kAgentFailed)) {
            co_return host_failed(
                host, Error{Errc::closed, "the agent cannot reach this machine: " +
                                              line->substr(transport::kAgentFailed.size())});
        }
        if (line) continue;
        if (line.error().code == Errc::cancelled || state.done) co_return;
        if (line.error().code == Errc::timed_out && state.session != nullptr) continue;
        if (state.session != nullptr) co_return;  // its connection tells, and knows better
        std::string what = "the agent started, but did not connect back";
        if (line.error().code != Errc::timed_out) {
            const std::string ending = co_await transport::describe_ending(*state.channel);
            if (state.session != nullptr || state.done) co_return;  // by now
            what = "the agent ended: " + ending;
        }
        co_return host_failed(host, Error{Errc::closed, what});
    }
}

void Head::set_phase(std::uint32_t host, const char* phase) {
    hosts_[host].phase = phase;
    progress_->host_phase(host, phase);
}

void Head::host_failed(std::uint32_t host, const Error& error) {
    progress_->host_failed(host);
    job_.host_failed({host, failure_kind(error.code), error.message});
    relay_ready_.cancel();
    step();
}

void Head::admit(Connection connection) {
    const auto session = sessions_.emplace(sessions_.end(), std::move(connection), ++last_port_,
                                           static_cast<AgentEvents&>(*this));
    ports_[session->port()] = &*session;
    tasks_.spawn(session->run_writer());
    tasks_.spawn(run_session(session));
}

asio::awaitable<void> Head::run_session(std::list<AgentSession>::iterator session) {
    co_await session->run(static_cast<Backpressure*>(this));
}

void Head::agent_joined(AgentSession& agent, Join join, bool relayed) {
    const std::uint32_t host = join.host;
    const bool known = host < hosts_.size();
    log::info("{}: agent {} on {} joined {} from {}", known ? spec_.hosts[host].host.name : "?",
              join.agent_pid, join.hostname, relayed ? "a relay" : agent.local_address(),
              relayed ? join.address : agent.peer_address());
    if (!known || hosts_[host].done || membership_.has(host + 1)) {
        const Bytes refuse =
            encode(Refuse{"this host has joined already, or is not part of the job", false});
        if (relayed) return;  // its relay has refused it
        agent.link().send(refuse);
        ports_.erase(agent.port());
        return agent.link().close();
    }
    HostState& state = hosts_[host];
    state.session = &agent;
    state.relayed = relayed;
    state.address = relayed ? join.address : agent.peer_address();
    state.relay_port = join.relay_port;
    state.addresses = join.addresses;
    local_join_ = join;
    if (!relayed) {
        agent.set_host(host);
        exchange_->add_port(agent.port(), PortKind::subtree, kNoRank);
    }
    relay_ready_.cancel();
    Member member;
    member.name = spec_.hosts[host].host.name;
    member.slots = static_cast<std::uint32_t>(spec_.hosts[host].ranks.size());
    member.peer_address = state.address;
    member.server_address = agent.local_address();
    member.free_port = join.free_port;
    member.addresses = join.addresses;
    membership_.enter(host + 1, std::move(member), Clock::now());

    if (join.problem != HostProblem::none) {
        send(host, encode(Stop{}));
        progress_->host_failed(host);
        job_.host_failed({host, failure_kind(join.problem), join.problem_text});
        return step();
    }
    if (spec_.directory != join.directory)
        elsewhere_[join.directory].push_back(spec_.hosts[host].host.name);
    progress_->host_ready(host);
    job_.host_ready(host);
    if (job_.ending()) send(host, encode(Stop{}));  // too late for it
    step();
}

asio::awaitable<void> Head::watch_start_timeout() {
    if (!spec_.options.start_timeout) co_return;
    asio::steady_timer timer(io_, *spec_.options.start_timeout);
    co_await timer.async_wait(use_tuple);
    // Every host that is not ready says what it was doing.
    for (const std::uint32_t host : job_.connecting())
        job_.host_late({host, StartFailure::timed_out, hosts_[host].phase});
    job_.start_timed_out();
    step();
}

/// Ends what an agent that is gone may have left on its host: its guard has done that, unless it was
/// killed as well.
void Head::sweep_soon(std::uint32_t host) {
    if (spec_.hosts[host].transport == plan::Transport::slurm)
        return;  // the end of its step does that
    to_sweep_.emplace_back(host, after(kSweepsLimit));
    if (sweepers_ == kLoginsMax) return;
    ++sweepers_;
    tasks_.spawn(sweep_hosts());
}

asio::awaitable<void> Head::sweep_hosts() {
    while (!to_sweep_.empty()) {
        const auto [host, until] = to_sweep_.front();
        to_sweep_.pop_front();
        if (Clock::now() < until)
            co_await sweep(host);
        else
            not_swept_.push_back(spec_.hosts[host].host.name);
    }
    --sweepers_;
    over_.cancel();
    if (sweepers_ == 0 && !not_swept_.empty())
        log::warn("{}: too many hosts are lost to look for processes there",
                  join_names(std::exchange(not_swept_, {})));
}

asio::awaitable<void> Head::sweep(std::uint32_t host) {
    const std::string job = hex(job_id_);
    const bool local = spec_.hosts[host].transport == plan::Transport::local;
    std::unique_ptr<transport::Channel> channel;
    const Deadline deadline = after(kSweepLimit);
    Result<void> opened;
    if (local) {
        auto started = transport::start_process(
            io_.get_executor(), {agent_file_.path, "--sweep", job}, login_environment());
        if (started) channel = std::move(*started);
    } else {
        const std::string command = transport::remote_sweep_command(agent_file_, job);
        opened = co_await open_channel(host, command, deadline, channel);
    }
    if (channel && opened) {
        transport::LineReader lines(*channel);
        const auto line = co_await lines.next(deadline);
        if (line)
            log::info("{}: {} processes left behind were ended", spec_.hosts[host].host.name,
                      *line);
    }
}

}  // namespace dtrun::head
