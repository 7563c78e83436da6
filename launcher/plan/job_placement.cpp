#include "launcher/plan/job_placement.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/filter.h"
#include "hostfiles/nodelist.h"
#include "hostfiles/rankfile.h"
#include "launcher/plan/machine_facts.h"
#include "launcher/plan/programs.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::plan {
namespace {

/// Filters the hosts. On a host of an allocation the user may choose from all slots that fit there, of which
/// one task has as many as processors; without such a choice it has as many as the scheduler itself would start.
Result<HostList> filter_offer(const Options& options, const Offer& offer) {
    HostList hosts = offer.hosts;
    for (Host& host : hosts) {
        if (!offer.from_allocation) break;
        const int counted = host.slots_max.value_or(host.slots);
        host.slots = counted == 1 ? room_of(*offer.allocation, host) : counted;
    }
    auto kept = filter_hosts(hosts, options.include, options.exclude);
    if (!kept || !offer.from_allocation) return kept;
    for (Host& host : *kept) {
        const auto given = std::ranges::find(offer.hosts, host.name, &Host::name);
        if (host.slot_ids.empty()) host.slots = given->slots;
    }
    return kept;
}

/// Whether hosts may have more ranks than slots: the user says so, or has said so to Slurm.
bool may_oversubscribe(const Options& options, const Offer& offer) {
    return options.oversubscribe || (offer.from_allocation && offer.allocation->is_overcommitted);
}

/// The job's batch system has not given it as much as it would need.
std::unexpected<Error> too_little(const Allocation& allocation, const HostList& hosts, int ranks) {
    int tasks = 0;
    int processors = 0;
    std::vector<std::string> names;
    for (const Host& host : hosts) {
        names.push_back(host.name);
        tasks += std::ranges::find(allocation.hosts, host.name, &Host::name)->slots;
        processors += node_of(allocation, host).cpus;
    }
    const char* const word = allocation.scheduler == Scheduler::slurm ? "task" : "slot";
    const int each = (ranks - 1) / static_cast<int>(hosts.size()) + 1;
    return fail(
        Errc::invalid_input,
        "{} ranks, but {} gave this job {}{} on {} ({}); {}, lower -np, or add "
        "--oversubscribe",
        ranks, scheduler_name(allocation.scheduler), plural(static_cast<unsigned>(tasks), word),
        processors > 0 ? " and " + plural(static_cast<unsigned>(processors), "processor") : "",
        name_hosts(names), allocation.slots_source,
        words_for_more(allocation.scheduler, each, ranks));
}

/// Makes the hosts of an allocation fit for as many ranks as the user asks for: where the batch system counts
/// fewer, processors and GPUs that it has given are shared out.
Result<void> fit_to_allocation(const Options& options, const Offer& offer, HostList& hosts) {
    int asked = options.world_size.value_or(0);
    if (options.elastic) asked = std::max(asked, options.elastic->ranks_min.value_or(0));
    if (!options.mpirun) widen(hosts, *offer.allocation, asked);  // which counts tasks itself
    long long room = 0;
    for (Host& host : hosts) {
        if (!host.slots_max) host.slots_max = host.slots;
        room += *host.slots_max;
        if (may_oversubscribe(options, offer)) host.slots_max.reset();
    }
    if (asked > room && !may_oversubscribe(options, offer))
        return too_little(*offer.allocation, hosts, asked);
    return {};
}

/// Hosts and their ranks by --nnodes, --nproc-per-node and their like.
Result<Placement> place_shape(const Options& options, Offer& offer, HostList hosts, bool named,
                              const MachineFacts& here) {
    const Allocation* const allocation = offer.from_allocation ? &*offer.allocation : nullptr;
    const bool oversubscribe = may_oversubscribe(options, offer);
    auto shaped =
        shape_hosts(options.shape, {std::move(hosts), allocation, named, oversubscribe}, here);
    if (!shaped) return std::unexpected(shaped.error());
    if (allocation == nullptr || !allocation->is_bystander)
        for (const std::string& note : shaped->notes) log::warn("{}", note);
    const HostShape& shape = options.shape;
    const bool like_srun = allocation != nullptr && allocation->scheduler == Scheduler::slurm &&
                           shape.count_flag.starts_with("-N ") && shape.number > 1 &&
                           std::cmp_equal(shape.number, allocation->hosts.size());
    if (like_srun && !allocation->is_bystander)
        log::warn(
            "{}: so many ranks on each host, as of mpirun; the number of hosts, as of srun, is "
            "the allocation's",
            shape.count_flag);
    if (!shape.count_flag.empty()) offer.sources.world_size = shape.count_flag;
    const int world_size = options.world_size.value_or(shaped->world_size);
    if (world_size > shaped->world_size)
        return fail(Errc::invalid_input,
                    "{} ranks, but {} on {} host{} are {}; lower -np or add hosts", world_size,
                    shape.count_flag, shaped->hosts.size(), shaped->hosts.size() == 1 ? "" : "s",
                    shaped->world_size);
    if (options.world_size) offer.sources.world_size += ", -np";
    // Each host's slots_max is its number of ranks, so placement fills each host exactly.
    return place_ranks(shaped->hosts, {world_size, options.map_by, true});
}

/// Where a file says of each rank where it runs.
Result<Placement> place_by_file(const Options& options, Offer& offer) {
    const auto text = read_file(options.rankfile);
    if (!text) return fail(text.error(), "--rankfile");
    const auto ranks = parse_rankfile(*text, options.rankfile);
    if (!ranks) return std::unexpected(ranks.error());
    const auto count = static_cast<int>(ranks->size());
    if (options.world_size.value_or(count) != count)
        return fail(Errc::invalid_input, "-np {}, but {} has {} ranks", *options.world_size,
                    options.rankfile, count);
    auto host_of = hosts_of_ranks(*ranks, offer.hosts);
    if (!host_of) return fail(host_of.error(), "{}", options.rankfile);
    if (std::ranges::any_of(*ranks, [](const RankLine& rank) { return !rank.cpus.empty(); }))
        log::warn("{}: slot=... has no effect: --bind-to says which processors ranks have",
                  options.rankfile);
    offer.sources.slots = offer.sources.world_size = "--rankfile " + options.rankfile;
    return place_on(offer.hosts, std::move(*host_of));
}

/// Asks about "-H s1:2222", where somebody may have thought of a port.
Result<void> check_slots(const Options& options, const HostList& hosts) {
    constexpr int kUsualMax = 1024;
    if (options.hosts.empty() || options.world_size || options.elastic) return {};
    const auto odd =
        std::ranges::find_if(hosts, [](const Host& host) { return host.slots > kUsualMax; });
    if (odd == hosts.end()) return {};
    return fail(Errc::invalid_input,
                "{}:{} is {} ranks on one host; if they are meant, add -np, and for a port of ssh "
                "write -p {}",
                odd->name, odd->slots, odd->slots, odd->slots);
}

}  // namespace

Result<Placement> place_job(const Options& options, Offer& offer, EnvironmentView caller) {
    if (!options.rankfile.empty()) return place_by_file(options, offer);
    const bool shaped = options.shape.any();
    const bool named = !options.hosts.empty() || !options.hostfile.empty();
    const MachineFacts here = shaped ? machine_facts(caller) : MachineFacts{};
    if (shaped && !named && !offer.from_allocation)
        size_this_machine(options.shape, offer.hosts.front(), here);
    HostList hosts = offer.hosts;
    if (const auto done = check_slots(options, hosts); !done) return std::unexpected(done.error());
    PlacementRequest request{options.world_size, options.map_by, options.oversubscribe};
    if (options.elastic) request.world_size.reset();  // every slot is a place for a rank
    const bool filtered = !options.include.empty() || !options.exclude.empty();
    if (filtered) {
        auto kept = filter_offer(options, offer);
        if (!kept) return std::unexpected(kept.error());
        hosts = std::move(*kept);
    }
    offer.sources.world_size = options.world_size ? "-np" : "every slot";
    if (hosts.empty()) return Placement{};  // they will come
    if (has_own_hosts(options)) return place_programs(options);
    if (shaped) return place_shape(options, offer, std::move(hosts), named, here);
    if (offer.from_allocation) {
        if (const auto fits = fit_to_allocation(options, offer, hosts); !fits)
            return std::unexpected(fits.error());
        request.oversubscribe = true;
        if (!options.world_size && !filtered) {
            request.world_size = offer.allocation->world_size;
            offer.sources.world_size = offer.allocation->world_size_source;
        }
    }
    auto placed = place_ranks(hosts, request);
    if (!placed && named) return fail(placed.error(), "{}", offer.sources.hosts);
    return placed;
}

void share_processors(Allocation& allocation, const Placement& placement, EnvironmentPlan& env) {
    std::vector<int> ranks(placement.hosts.size());
    for (const RankPlace& place : placement.ranks) ++ranks[static_cast<std::size_t>(place.host)];
    int each = allocation.cpus_per_rank;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const Host& host = placement.hosts[i];
        const auto given = std::ranges::find(allocation.hosts, host.name, &Host::name);
        const int cpus = node_of(allocation, host).cpus;
        if (given == allocation.hosts.end() || cpus == 0 || ranks[i] <= given->slots) continue;
        const int share = std::max(cpus / ranks[i], 1);
        each = each == 0 ? share : std::min(each, share);
    }
    if (allocation.cpus_per_rank > 0 && each != allocation.cpus_per_rank) {
        const auto is_set = [](const Options::Variable& variable) {
            return variable.first == "SLURM_CPUS_PER_TASK";
        };
        if (std::ranges::none_of(env.added, is_set))
            for (auto* const part : {&env.local, &env.remote})
                for (Options::Variable& variable : *part)
                    if (is_set(variable)) variable.second = fmt::to_string(each);
    }
    allocation.cpus_per_rank = each;
}

}  // namespace dtrun::plan
