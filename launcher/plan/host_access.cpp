#include "launcher/plan/host_access.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace dtrun::plan {
namespace {

/// The index of a host in Slurm's allocation, if we are in one and it is a node of it.
std::optional<std::size_t> find_node(const std::optional<Allocation>& allocation,
                                     const Host& host) {
    if (!allocation || allocation->scheduler != Scheduler::slurm) return {};
    if (!host.user.empty() || host.port != 0 || !host.address.empty()) return {};  // meant for ssh
    const auto found = std::ranges::find(allocation->hosts, host.name, &Host::name);
    if (found == allocation->hosts.end()) return {};
    return static_cast<std::size_t>(found - allocation->hosts.begin());
}

/// How a node of Slurm's allocation is reached where there is no srun, as in many containers.
Result<Transport> without_srun(const Host& host, std::optional<Transport> asked, bool is_here) {
    if (asked == Transport::slurm)
        return fail(Errc::invalid_input, "--transport slurm: there is no srun on PATH");
    if (is_here) return Transport::local;
    return fail(Errc::invalid_input,
                "{} is a node of this Slurm allocation, but there is no srun on PATH (is this a "
                "container?): --transport ssh reaches it by ssh, --transport local has all ranks "
                "here, and by `dtrun join` in a task on each node they meet",
                host.name);
}

Result<Transport> choose_transport(const AccessRules& rules, const Host& host, bool is_node,
                                   transport::LookUp look_up) {
    const bool in_slurm = rules.allocation && rules.allocation->scheduler == Scheduler::slurm;
    const auto is_here = [&] { return transport::is_this_machine(host, look_up); };
    if (rules.only_here) return Transport::local;
    if (rules.asked == Transport::local) {
        if (is_here()) return Transport::local;
        return fail(Errc::invalid_input, "--transport local: {} is another machine", host.name);
    }
    if (rules.asked == Transport::slurm && !in_slurm)
        return fail(Errc::invalid_input,
                    "--transport slurm: no Slurm allocation here; start dtrun in sbatch or salloc");
    if (rules.asked == Transport::slurm && !is_node)
        return fail(Errc::invalid_input, "--transport slurm: {} is not in the allocation",
                    host.name);
    if (is_node && rules.asked != Transport::ssh)
        return rules.has_srun ? Transport::slurm : without_srun(host, rules.asked, is_here());
    if (is_here()) return Transport::local;
    return rules.ssh.command.empty() ? Transport::ssh : Transport::ssh_command;
}

/// Whether the user's own ssh leads through another machine.
bool jumps(const std::vector<std::string>& command) {
    return std::ranges::any_of(command, [](const std::string& word) {
        return word.starts_with("-J") || word.find("Proxy") != std::string::npos;
    });
}

/// Finds out how ssh would log into a host, and has it do so where dtrun's own log-in cannot.
/// \param config  read where it is needed first
Result<void> add_ssh_settings(HostAccess& access, const Host& host,
                              const transport::SshOptions& ssh,
                              std::optional<transport::SshConfig>& config) {
    if (access.transport != Transport::ssh && access.transport != Transport::ssh_command) return {};
    if (!config) {
        auto read = transport::SshConfig::read();
        if (!read) return fail(read.error(), "{}", host.name);
        config = std::move(*read);
    }
    access.ssh = config->find(host, ssh);
    if (jumps(ssh.command)) access.ssh->route = "--ssh-command";
    if (!access.ssh->only_ssh.empty()) access.transport = Transport::ssh_command;
    return {};
}

/// A key that is named must be there: another one would only hide the mistake.
Result<void> check_key(const std::string& file) {
    if (file.empty() || ::access(file.c_str(), R_OK) == 0) return {};
    return fail(Errc::invalid_input, "ssh key {}: {}", file, strerror(errno));
}

/// A program that is not ssh is told only where to, and what to run there: whatever else is asked for, it
/// would not obey.
Result<void> check_ssh_command(const Host& host, const transport::SshOptions& ssh) {
    if (transport::is_openssh(ssh)) return {};
    const int port = host.port != 0 ? host.port : ssh.port;
    const std::string& key = host.identity_file.empty() ? ssh.identity_file : host.identity_file;
    std::string unheard;
    if (port != 0) unheard = fmt::format("port {} (-p)", port);
    if (!key.empty()) unheard = fmt::format("key {} (-i)", key);
    if (ssh.accept_new_host_keys) unheard = "--accept-new-host-keys";
    if (unheard.empty()) return {};
    return fail(
        Errc::invalid_input,
        "--ssh-command: only ssh itself can be told of {}, which {} is to have; write it into "
        "the command, in the way of {}",
        unheard, host.name, ssh.command.front());
}

}  // namespace

AccessRules access_rules(const Options& options, const Offer& offer, EnvironmentView caller) {
    const bool has_srun =
        !offer.in_slurm() || !find_variable(caller, "PATH") || is_on_path("srun", caller);
    return {options.transport,
            options.join.has_value(),
            options.mpirun,
            {options.ssh_port, options.ssh_identity_file, options.accept_new_host_keys,
             shell_words(options.ssh_command).value_or(std::vector<std::string>{})},
            offer.allocation,
            has_srun,
            offer.in_slurm() ? srun_environment(caller) : std::vector<std::string>{}};
}

Result<HostAccess> choose_access(const AccessRules& rules, const Host& host,
                                 transport::LookUp look_up) {
    if (auto done = check_key(host.identity_file); !done) return std::unexpected(done.error());
    const auto node = find_node(rules.allocation, host);
    const auto transport = choose_transport(rules, host, node.has_value(), look_up);
    if (!transport) return std::unexpected(transport.error());
    if (*transport == Transport::ssh_command && !rules.by_mpirun)
        if (auto done = check_ssh_command(host, rules.ssh); !done)
            return std::unexpected(done.error());
    return HostAccess{*transport, {}, node ? rules.allocation->nodes[*node] : Allocation::Node{}};
}

Result<std::vector<HostAccess>> choose_access(const AccessRules& rules, const HostList& hosts) {
    if (auto done = check_key(rules.ssh.identity_file); !done) return std::unexpected(done.error());
    std::vector<HostAccess> all;
    auto look_up = transport::LookUp::own_names;
    for (const Host& host : hosts) {
        const auto began = std::chrono::steady_clock::now();
        auto access = choose_access(rules, host, look_up);
        // A resolver that does not answer is not waited for once more for each host.
        if (std::chrono::steady_clock::now() - began >= transport::kLookUpLimit)
            look_up = transport::LookUp::none;
        if (!access) return std::unexpected(access.error());
        all.push_back(std::move(*access));
    }
    if (rules.by_mpirun || !transport::is_openssh(rules.ssh)) return all;
    std::optional<transport::SshConfig> config;
    for (std::size_t i = 0; i < hosts.size(); ++i)
        if (auto done = add_ssh_settings(all[i], hosts[i], rules.ssh, config); !done)
            return std::unexpected(done.error());
    return all;
}

}  // namespace dtrun::plan
