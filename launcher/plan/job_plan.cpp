#include "launcher/plan/job_plan.h"

#include "base/log.h"
#include "contracts/table.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/job_placement.h"
#include "rendezvous/wire/modes.h"

#include <algorithm>

namespace dtrun::plan {
namespace {

/// Warns of a loopback MASTER_ADDR, at which each host finds only itself.
void warn_of_loopback(const Placement& placement, const std::vector<Options::Variable>& asked) {
    const auto master = std::ranges::find(asked, "MASTER_ADDR", &Options::Variable::first);
    if (placement.hosts.size() < 2 || master == asked.end()) return;
    boost::system::error_code error;
    const auto address = asio::ip::make_address(master->second, error);
    if (master->second != "localhost" && (error || !address.is_loopback())) return;
    log::warn(
        "MASTER_ADDR={}: ranks on {} will not find rank 0 there, which is on {}; leave it out",
        master->second, placement.hosts[1].name, placement.hosts[0].name);
}

/// Warns of flags that turn out to have no effect.
void warn_of_idle_flags(const Options& options, const Placement& placement,
                        const std::vector<Options::Variable>& asked) {
    const std::vector<std::uint32_t>& filter = options.rank_output.local_ranks;
    const auto is_shown = [&filter](const RankPlace& place) {
        return std::ranges::find(filter, static_cast<std::uint32_t>(place.local_rank)) !=
               filter.end();
    };
    if (!filter.empty() && std::ranges::none_of(placement.ranks, is_shown))
        log::warn("--local-ranks-filter: no rank has such a local rank, so none is shown");
    warn_of_loopback(placement, asked);
    const auto is_quiet = [&options](const RankPlace& place) {
        return options.quiet_ranks.contains(place.rank) ||
               (!options.only_ranks.empty() && !options.only_ranks.contains(place.rank));
    };
    if (!placement.ranks.empty() && std::ranges::all_of(placement.ranks, is_quiet))
        log::warn("--only-ranks and --quiet-ranks leave no rank whose output is shown");
    if (options.store_given.value_or(TorchStore::rank0) == TorchStore::rank0) return;
    for (const char* const name : {"MASTER_ADDR", "MASTER_PORT"}) {
        if (std::ranges::find(asked, name, &Options::Variable::first) == asked.end()) continue;
        log::warn("--store {} has no effect: rank 0 serves torch's store where {} is given",
                  options.store_given == TorchStore::proxy ? "proxy" : "agent", name);
        return;
    }
}

Result<std::vector<std::string>> choose_contracts(const Options& options, bool in_slurm,
                                                  int world_size) {
    if (options.mpirun) return std::vector<std::string>{};  // what ranks get is mpirun's business
    auto chosen = contracts::effective_contracts(options.contracts, in_slurm);
    if (!chosen) return fail(chosen.error(), "--contract");
    const auto ranks = static_cast<std::uint32_t>(std::max(world_size, 1));
    if (auto done = contracts::check_contracts(*chosen, ranks); !done)
        return fail(done.error(), "--contract");
    if (options.join && contracts::needs_nodes(*chosen))
        return fail(Errc::invalid_input,
                    "--contract: one of these names all hosts, which only a job that one dtrun "
                    "launches knows; leave it out with dtrun join");
    return chosen;
}

/// What of the job changes the environment of its ranks.
Surroundings surroundings_of(const Options& options, const Offer& offer, const Placed& placed,
                             const std::vector<std::string>& contracts, bool leaves_machine,
                             const std::string& directory) {
    Surroundings surroundings;
    const bool chosen = !options.hosts.empty() || !options.hostfile.empty() ||
                        !options.include.empty() || !options.exclude.empty() ||
                        !offer.discovery.empty() || options.shape.devices_chosen;
    surroundings.names_devices =
        chosen && std::ranges::find(contracts, "devices") != contracts.end();
    const int told = offer.from_allocation ? offer.allocation->cpus_per_rank : 0;
    if (told > 0) surroundings.cpus_per_task = placed.cpus_per_rank;
    if (options.directory_in_pythonpath && leaves_machine) surroundings.modules = directory;
    return surroundings;
}

/// torch's own clients do not encrypt: with --encrypt they stay on their hosts, unless the user has chosen.
/// In an elastic job the store must not end with the host of rank 0.
TorchStore choose_store(const Options& options, bool has_network) {
    const bool by_default = !options.store_given && options.torch_store == TorchStore::agent;
    const bool near = options.encrypt || options.elastic;
    return near && has_network && by_default ? TorchStore::proxy : options.torch_store;
}

/// The daemon of `dtrun join`; none for a plan that is only shown, of a job whose nodes meet.
Result<std::optional<DaemonTarget>> choose_daemon(const Options& options, EnvironmentView caller) {
    if (!options.join) return std::nullopt;
    const bool by_hand = options.join->by_hand;
    if (by_hand && options.plan != PlanFormat::none) return std::nullopt;
    auto daemon = by_hand ? find_rendezvous(*options.join, caller)
                          : find_daemon(options.join->daemon, caller, NameOf::daemon_to_come);
    if (!daemon) return std::unexpected(daemon.error());
    if (daemon->job.empty())
        return fail(Errc::invalid_input, "which job? --job NAME, or DTRUN_JOB_NAME");
    return std::move(*daemon);
}

PerHost<JobHost> job_hosts(const Placement& placement, std::vector<HostAccess> access) {
    PerHost<JobHost> hosts;
    for (std::size_t i = 0; i < access.size(); ++i)
        hosts.push_back({std::move(access[i]), placement.hosts[i], {}});
    for (const RankPlace& place : placement.ranks)
        hosts[host_of(place)].ranks.push_back(static_cast<SlotId>(place.rank));
    return hosts;
}

}  // namespace

std::size_t JobSpec::program_of(SlotId rank) const {
    std::size_t next = 0;  // the first rank of the program behind
    for (std::size_t i = 0; i < programs.size(); ++i) {
        next += static_cast<std::size_t>(programs[i].ranks);
        if (std::to_underlying(rank) < next) return i;
    }
    return 0;
}

Result<HostId> list_host(JobSpec& spec, const Host& host) {
    const auto hosts = spec.hosts.hosts();
    const auto named = [&spec, &host](HostId id) { return spec.hosts[id].host.name == host.name; };
    const auto found = std::ranges::find_if(hosts, named);
    const bool is_new = found == hosts.end();
    const HostId id = is_new ? static_cast<HostId>(spec.hosts.size()) : *found;
    if (is_new) {
        auto access = choose_access(spec.access, host, transport::LookUp::none);
        if (!access) return std::unexpected(access.error());
        spec.hosts.push_back({std::move(*access), host, {}});
        spec.placement.hosts.push_back(host);
    }
    std::vector<SlotId>& ranks = spec.hosts[id].ranks;
    while (std::cmp_less(ranks.size(), host.slots)) {
        RankPlace place;
        place.rank = spec.placement.world_size();
        place.host = static_cast<int>(id);
        place.slot = place.local_rank = static_cast<int>(ranks.size());
        ranks.push_back(static_cast<SlotId>(place.rank));
        spec.placement.ranks.push_back(place);
    }
    return id;
}

Result<JobSpec> make_job_spec(Options options, EnvironmentView caller, std::string directory) {
    const auto offer = find_hosts(options, caller);
    if (!offer) return std::unexpected(offer.error());
    auto placed = place_job(options, *offer);
    if (!placed) return std::unexpected(placed.error());
    const Placement& placement = placed->placement;
    auto contracts = choose_contracts(options, offer->in_slurm(), placement.world_size());
    if (!contracts) return std::unexpected(contracts.error());
    std::vector<std::string>& notes = placed->notes;
    notes.insert(notes.end(), options.notes.begin(), options.notes.end());
    if (offer->in_slurm() && offer->from_allocation && !options.mpirun)
        options.binding = follow_slurm(options.binding, caller, notes);
    const bool is_bystander = offer->from_allocation && offer->allocation->is_bystander;
    // Told now: they may say why a later step fails.
    for (const std::string& note : notes)
        if (!is_bystander) log::warn("{}", note);

    AccessRules rules = access_rules(options, *offer, caller);
    auto access = choose_access(rules, placement.hosts);
    if (!access) return std::unexpected(access.error());
    const auto is_elsewhere = [](const HostAccess& host) {
        return host.transport != Transport::local;
    };
    const bool discovers = !offer->discovery.empty();
    const bool leaves_machine = discovers || std::ranges::any_of(*access, is_elsewhere);
    auto there = options.wdir.empty() ? directory : whole_directory(options.wdir, directory);
    if (!there) return std::unexpected(there.error());
    auto environment = plan_environment(
        caller, options,
        surroundings_of(options, *offer, *placed, *contracts, leaves_machine, *there));
    if (!environment) return std::unexpected(environment.error());
    auto programs = plan_programs(options, caller, directory);
    if (!programs) return std::unexpected(programs.error());
    auto daemon = choose_daemon(options, caller);
    if (!daemon) return std::unexpected(daemon.error());

    if (!is_bystander) warn_of_idle_flags(options, placement, environment->added);
    options.torch_store =
        choose_store(options, placement.hosts.size() > 1 || options.join || discovers);
    options.elastic = std::move(placed->elastic);
    const bool directory_required = !options.wdir.empty();
    auto hosts = job_hosts(placement, std::move(*access));
    return JobSpec{.options = std::move(options),
                   .access = std::move(rules),
                   .placement = std::move(placed->placement),
                   .hosts = std::move(hosts),
                   .sources = std::move(placed->sources),
                   .is_bystander = is_bystander,
                   .cpus_per_rank = placed->cpus_per_rank,
                   .contracts = std::move(*contracts),
                   .directory = std::move(*there),
                   .directory_required = directory_required,
                   .daemon = std::move(*daemon),
                   .environment = std::move(*environment),
                   .programs = std::move(*programs),
                   .discovery = offer->discovery};
}

}  // namespace dtrun::plan
