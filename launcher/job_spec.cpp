#include "launcher/job_spec.h"

#include "base/net.h"
#include "base/strings.h"
#include "hostfiles/filter.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "launcher/ssh_channel.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun {
namespace {

Result<HostList> read_hosts(const Options& options) {
    if (!options.hosts.empty()) return parse_hosts(options.hosts);
    if (!options.hostfile.empty()) return read_hostfile(options.hostfile);
    Host here;
    here.name = options.join ? host_name() : "localhost";
    here.slots = options.world_size.value_or(1);
    return HostList{here};
}

Result<Placement> place(const Options& options) {
    auto hosts = read_hosts(options);
    if (!hosts) return std::unexpected(hosts.error());
    if (!options.include.empty() || !options.exclude.empty()) {
        hosts = filter_hosts(*hosts, options.include, options.exclude);
        if (!hosts) return std::unexpected(hosts.error());
    }
    return place_ranks(*hosts, {options.world_size, options.map_by, options.oversubscribe});
}

Transport choose_transport(const Host& host, const SshOptions& ssh, bool joins) {
    if (joins || is_this_machine(host)) return Transport::local;
    if (!ssh.command.empty() || ssh_config_needs_openssh(host)) return Transport::ssh_command;
    return Transport::ssh;
}

/// A key that is named must be there: another one would only hide the mistake.
Result<void> check_key(const std::string& file) {
    if (file.empty() || ::access(file.c_str(), R_OK) == 0) return {};
    return fail(Errc::invalid_input, "ssh key {}: {}", file, strerror(errno));
}

Result<void> check_ranks(const Options& options, int world_size) {
    const auto check = [world_size](const char* flag, int rank) -> Result<void> {
        if (rank < world_size) return {};
        return fail(Errc::invalid_input, "{}: rank {} does not exist, the ranks are 0..{}", flag,
                    rank, world_size - 1);
    };
    if (auto done = check("--quiet-ranks", options.quiet_ranks.largest()); !done) return done;
    if (auto done = check("--only-ranks", options.only_ranks.largest()); !done) return done;
    if (options.stdin_target.kind != StdinTarget::Kind::rank) return {};
    return check("--stdin", options.stdin_target.rank);
}

}  // namespace

Result<JobSpec> make_job_spec(Options options, EnvironmentView caller, std::string directory) {
    JobSpec spec;
    auto placement = place(options);
    if (!placement) return std::unexpected(placement.error());
    spec.placement = std::move(*placement);
    if (auto done = check_ranks(options, spec.placement.world_size()); !done)
        return std::unexpected(done.error());
    auto environment = plan_environment(caller, options);
    if (!environment) return std::unexpected(environment.error());

    spec.ssh = {options.ssh_port, options.ssh_identity_file, options.accept_new_host_keys,
                shell_words(options.ssh_command).value_or(std::vector<std::string>{})};
    if (auto done = check_key(options.ssh_identity_file); !done)
        return std::unexpected(done.error());
    for (const Host& host : spec.placement.hosts) {
        if (auto done = check_key(host.identity_file); !done) return std::unexpected(done.error());
        JobHost& target = spec.hosts.emplace_back();
        target.host = host;
        target.transport = choose_transport(host, spec.ssh, options.join.has_value());
        target.env =
            target.transport == Transport::local ? environment->local : environment->remote;
    }
    for (const RankPlace& place : spec.placement.ranks)
        spec.hosts[static_cast<std::size_t>(place.host)].ranks.push_back(
            static_cast<std::uint32_t>(place.rank));
    spec.env_added = std::move(environment->added);
    if (options.join) {
        auto daemon = find_daemon(options.join->daemon, caller);
        if (!daemon) return std::unexpected(daemon.error());
        if (daemon->job.empty())
            return fail(Errc::invalid_input, "which job? --job NAME, or DTRUN_JOB_NAME");
        spec.daemon = std::move(*daemon);
    }
    spec.directory_required = !options.wdir.empty();
    const bool relative = spec.directory_required && !options.wdir.starts_with('/');
    spec.directory = !spec.directory_required ? directory
                     : relative               ? directory + "/" + options.wdir
                                              : options.wdir;
    spec.options = std::move(options);
    return spec;
}

}  // namespace dtrun
