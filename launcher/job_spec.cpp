#include "launcher/job_spec.h"

#include "base/net.h"
#include "base/strings.h"
#include "hostfiles/filter.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "launcher/allocation_here.h"
#include "launcher/slurm_step.h"
#include "launcher/ssh_channel.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun {
namespace {

/// Where ranks may run, before anything is chosen.
struct Offer {
    HostList hosts;
    std::optional<int> world_size;  ///< nothing: every slot
    Sources sources;
    std::optional<Allocation>
        allocation;  ///< of the scheduler around us, whether or not it is used
    bool from_allocation = false;
};

/// A scheduler counts the ranks that it would start; more may fit when the user asks for more.
void fill_slots(HostList& hosts, std::optional<int> world_size) {
    int slots = 0;
    for (const Host& host : hosts) slots += host.slots;
    for (Host& host : hosts) {
        if (world_size.value_or(0) > slots) host.slots = host.slots_max.value_or(host.slots);
        host.slots_max.reset();
    }
}

Result<Offer> find_hosts(const Options& options, EnvironmentView caller) {
    Offer offer;
    offer.world_size = options.world_size;
    offer.sources.world_size = options.world_size ? "-np" : "every slot";
    const bool named = !options.hosts.empty() || !options.hostfile.empty();
    auto allocation = options.join ? std::nullopt : allocation_here(caller);
    if (!allocation && !named) return std::unexpected(allocation.error());
    if (allocation) offer.allocation = std::move(*allocation);
    if (named) {
        auto hosts =
            options.hosts.empty() ? read_hostfile(options.hostfile) : parse_hosts(options.hosts);
        if (!hosts) return std::unexpected(hosts.error());
        offer.hosts = std::move(*hosts);
        offer.sources.hosts = options.hosts.empty() ? "--hostfile " + options.hostfile : "-H";
        offer.sources.slots = offer.sources.hosts;
        return offer;
    }
    if (offer.allocation && options.transport != TransportChoice::local) {
        const Allocation& given = *offer.allocation;
        offer.from_allocation = true;
        offer.hosts = given.hosts;
        fill_slots(offer.hosts, options.world_size);
        offer.sources.hosts = given.hosts_source;
        offer.sources.slots = given.slots_source;
        const bool filtered = !options.include.empty() || !options.exclude.empty();
        if (options.world_size || filtered) return offer;
        offer.world_size = given.world_size;
        offer.sources.world_size = given.world_size_source;
        return offer;
    }
    Host here;
    here.name = options.join ? host_name() : "localhost";
    here.slots = options.world_size.value_or(1);
    offer.hosts = {here};
    offer.sources.hosts = "this machine";
    offer.sources.slots = options.world_size ? "-np" : "one";
    return offer;
}

Result<Placement> place(const Options& options, Offer& offer) {
    HostList hosts = std::move(offer.hosts);
    if (!options.include.empty() || !options.exclude.empty()) {
        auto filtered = filter_hosts(hosts, options.include, options.exclude);
        if (!filtered) return std::unexpected(filtered.error());
        hosts = std::move(*filtered);
    }
    return place_ranks(hosts, {offer.world_size, options.map_by, options.oversubscribe});
}

/// The index of a host in Slurm's allocation, if we are in one and it is a node of it.
std::optional<std::size_t> find_node(const std::optional<Allocation>& allocation,
                                     const Host& host) {
    if (!allocation || allocation->scheduler != Scheduler::slurm) return {};
    const auto found = std::ranges::find(allocation->hosts, host.name, &Host::name);
    if (found == allocation->hosts.end()) return {};
    return static_cast<std::size_t>(found - allocation->hosts.begin());
}

Result<Transport> choose_transport(const Host& host, const SshOptions& ssh, const Options& options,
                                   bool is_node, bool in_slurm) {
    if (options.join || options.transport == TransportChoice::local) {
        if (options.join || is_this_machine(host)) return Transport::local;
        return fail(Errc::invalid_input, "--transport local: {} is another machine", host.name);
    }
    if (options.transport == TransportChoice::slurm && !in_slurm)
        return fail(Errc::invalid_input,
                    "--transport slurm: no Slurm allocation here; start dtrun in sbatch or salloc");
    if (options.transport == TransportChoice::slurm && !is_node)
        return fail(Errc::invalid_input, "--transport slurm: {} is not in the allocation",
                    host.name);
    if (is_node && options.transport != TransportChoice::ssh) return Transport::slurm;
    if (is_this_machine(host)) return Transport::local;
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
    auto offer = find_hosts(options, caller);
    if (!offer) return std::unexpected(offer.error());
    auto placement = place(options, *offer);
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
    const bool in_slurm = offer->allocation && offer->allocation->scheduler == Scheduler::slurm;
    spec.slurm_contract = options.slurm_contract || (in_slurm && offer->from_allocation);
    spec.heterogeneous =
        in_slurm && std::ranges::any_of(offer->allocation->nodes, [](const Allocation::Node& node) {
            return node.het_group > 0;
        });
    if (in_slurm) spec.srun_env = srun_environment(caller);
    spec.sources = std::move(offer->sources);
    for (const Host& host : spec.placement.hosts) {
        if (auto done = check_key(host.identity_file); !done) return std::unexpected(done.error());
        JobHost& target = spec.hosts.emplace_back();
        target.host = host;
        const auto node = find_node(offer->allocation, host);
        const auto transport =
            choose_transport(host, spec.ssh, options, node.has_value(), in_slurm);
        if (!transport) return std::unexpected(transport.error());
        target.transport = *transport;
        if (node) target.node = offer->allocation->nodes[*node];
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
    if (offer->from_allocation) spec.allocation = std::move(offer->allocation);
    spec.directory_required = !options.wdir.empty();
    const bool relative = spec.directory_required && !options.wdir.starts_with('/');
    spec.directory = !spec.directory_required ? directory
                     : relative               ? directory + "/" + options.wdir
                                              : options.wdir;
    spec.options = std::move(options);
    return spec;
}

}  // namespace dtrun
