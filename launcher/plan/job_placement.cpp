#include "launcher/plan/job_placement.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/filter.h"
#include "hostfiles/nodelist.h"
#include "launcher/plan/programs.h"
#include "launcher/transport/host_target.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::plan {
namespace {

/// Whether the user has said which hosts there are, or what lists them.
bool is_named(const Options& options) {
    return !options.hosts.empty() || !options.hostfile.empty() ||
           (options.elastic && !options.elastic->discovery_script.empty());
}

/// Filters the hosts. On a host of an allocation the user may choose from all slots that fit there, of which
/// one task has as many as processors; without such a choice it has as many as the scheduler itself would start.
Result<HostList> filter_offer(const Options& options, const Offer& offer, HostList hosts) {
    for (Host& host : hosts) {
        if (!offer.from_allocation) break;
        const int counted = host.slots_max.value_or(host.slots);
        host.slots = counted == 1 ? room_of(*offer.allocation, host) : counted;
    }
    auto kept = filter_hosts(hosts, options.include, options.exclude);
    if (!kept && !offer.from_allocation && !is_named(options))
        return fail(kept.error().code,
                    "{}; that is this machine alone, as neither -H nor a hostfile names others",
                    kept.error().message);
    if (!kept || !offer.from_allocation) return kept;
    for (Host& host : *kept) {
        const auto given = std::ranges::find(offer.hosts, host.name, &Host::name);
        if (host.slot_ids.empty()) host.slots = given->slots;
    }
    return kept;
}

std::string source_of_size(const Options& options) {
    return options.world_size ? "-np" : "every slot";
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
Result<HostList> fit_to_allocation(const Options& options, const Offer& offer, HostList hosts) {
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
    return hosts;
}

/// Hosts and their ranks by --nnodes, --nproc-per-node and their like.
Result<Placed> place_shape(const Options& options, const Offer& offer, HostList hosts) {
    const Allocation* const allocation = offer.used();
    const bool oversubscribe = may_oversubscribe(options, offer);
    auto shaped =
        shape_hosts(options.shape, {std::move(hosts), allocation, is_named(options), oversubscribe},
                    offer.here);
    if (!shaped) return std::unexpected(shaped.error());
    Placed placed{{}, offer.sources};
    placed.notes = std::move(shaped->notes);
    const HostShape& shape = options.shape;
    const bool like_srun = allocation != nullptr && allocation->scheduler == Scheduler::slurm &&
                           shape.count_flag.starts_with("-N ") && shape.number > 1 &&
                           std::cmp_equal(shape.number, allocation->hosts.size());
    if (like_srun)
        placed.notes.push_back(
            fmt::format("{}: so many ranks on each host, as of mpirun; the number of hosts, as of "
                        "srun, is the allocation's",
                        shape.count_flag));
    std::string& source = placed.sources.world_size;
    source = !shape.count_flag.empty() ? shape.count_flag : source_of_size(options);
    const int world_size = options.world_size.value_or(shaped->world_size);
    if (world_size > shaped->world_size)
        return fail(Errc::invalid_input,
                    "{} ranks, but {} on {} host{} are {}; lower -np or add hosts", world_size,
                    shape.count_flag, shaped->hosts.size(), shaped->hosts.size() == 1 ? "" : "s",
                    shaped->world_size);
    if (options.world_size) source += ", -np";
    // Each host's slots_max is its number of ranks, so placement fills each host exactly.
    auto placement = place_ranks(shaped->hosts, {world_size, options.map_by, true});
    if (!placement) return std::unexpected(placement.error());
    placed.placement = std::move(*placement);
    return placed;
}

/// Where a file says of each rank where it runs.
Result<Placed> place_by_file(const Options& options, const Offer& offer) {
    const auto count = static_cast<int>(offer.ranks.size());
    if (options.world_size.value_or(count) != count)
        return fail(Errc::invalid_input, "-np {}, but {} has {} ranks", *options.world_size,
                    options.rankfile, count);
    HostList hosts = offer.hosts;
    auto host_of = hosts_of_ranks(offer.ranks, hosts);
    if (!host_of) return fail(host_of.error(), "{}", options.rankfile);
    Placed placed{place_on(hosts, std::move(*host_of)), offer.sources};
    placed.sources.slots = placed.sources.world_size = "--rankfile " + options.rankfile;
    const auto has_cpus = [](const RankLine& rank) { return !rank.cpus.empty(); };
    if (std::ranges::any_of(offer.ranks, has_cpus))
        placed.notes.push_back(
            fmt::format("{}: slot=... has no effect: --bind-to says which processors ranks have",
                        options.rankfile));
    return placed;
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

/// On each host as many ranks as it has slots, at most.
Result<Placed> place_by_slots(const Options& options, const Offer& offer, HostList hosts,
                              bool filtered) {
    Placed placed{{}, offer.sources};
    placed.sources.world_size = source_of_size(options);
    PlacementRequest request{options.world_size, options.map_by, options.oversubscribe};
    if (options.elastic) request.world_size.reset();  // every slot is a place for a rank
    if (const Allocation* const allocation = offer.used()) {
        auto fitting = fit_to_allocation(options, offer, std::move(hosts));
        if (!fitting) return std::unexpected(fitting.error());
        hosts = std::move(*fitting);
        request.oversubscribe = true;
        if (!options.world_size && !filtered) {
            request.world_size = allocation->world_size;
            placed.sources.world_size = allocation->world_size_source;
        }
    }
    auto placement = place_ranks(hosts, request);
    if (!placement && is_named(options))
        return fail(placement.error().code, "{}: {}{}", offer.sources.hosts,
                    placement.error().message,
                    hosts.size() == 1 ? transport::file_hint(hosts.front().name) : "");
    if (!placement) return std::unexpected(placement.error());
    placed.placement = std::move(*placement);
    return placed;
}

Result<Placed> choose_places(const Options& options, const Offer& offer) {
    if (!options.rankfile.empty()) return place_by_file(options, offer);
    const bool shaped = options.shape.any();
    HostList hosts = offer.hosts;
    if (shaped && !is_named(options) && !offer.from_allocation && !hosts.empty())
        size_this_machine(options.shape, hosts.front(), offer.here);
    if (const auto done = check_slots(options, hosts); !done) return std::unexpected(done.error());
    const bool filtered = !options.include.empty() || !options.exclude.empty();
    if (filtered) {
        auto kept = filter_offer(options, offer, std::move(hosts));
        if (!kept) return std::unexpected(kept.error());
        hosts = std::move(*kept);
    }
    Placed placed{{}, offer.sources};
    placed.sources.world_size = source_of_size(options);
    if (hosts.empty()) return placed;  // they will come
    if (has_own_hosts(options)) {
        auto placement = place_programs(options);
        if (!placement) return std::unexpected(placement.error());
        placed.placement = std::move(*placement);
        return placed;
    }
    if (shaped) return place_shape(options, offer, std::move(hosts));
    return place_by_slots(options, offer, std::move(hosts), filtered);
}

/// How many processors each rank has of what the batch system has given. Where a host of the allocation has more
/// ranks than tasks of the batch system's, its processors are shared out among them.
int share_processors(const Allocation& allocation, const Placement& placement) {
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
    return each;
}

/// How many ranks each host of an elastic job has: all have the same number.
Result<int> ranks_per_host(const HostShape& shape, const Placement& placement) {
    if (placement.hosts.empty() && shape.count == HostShape::Count::number) return shape.number;
    if (placement.hosts.empty())
        return fail(Errc::invalid_input,
                    "{}: no host is listed yet; say as a number how many ranks each will have",
                    shape.hosts_flag);
    std::vector<int> ranks(placement.hosts.size());
    for (const RankPlace& place : placement.ranks) ++ranks[static_cast<std::size_t>(place.host)];
    const int each = ranks.front();
    const auto other = std::ranges::find_if(ranks, [each](int count) { return count != each; });
    if (other != ranks.end())
        return fail(
            Errc::invalid_input,
            "{}: all hosts of an elastic job have the same number of ranks, but {} has {} and {} "
            "has {}; say how many each has",
            shape.hosts_flag, placement.hosts.front().name, each,
            placement.hosts[static_cast<std::size_t>(other - ranks.begin())].name, *other);
    return each;
}

/// What an elastic job asks for, in ranks where it has been said in hosts.
Result<ElasticOptions> in_ranks(const Options& options, const Placement& placement) {
    ElasticOptions elastic = *options.elastic;
    const HostShape& shape = options.shape;
    if (!shape.elastic) return elastic;
    const auto each = ranks_per_host(shape, placement);
    if (!each) return std::unexpected(each.error());
    elastic.ranks_per_host = *each;
    elastic.ranks_min = *each * shape.hosts_min;
    elastic.ranks_max = *each * std::min(shape.hosts_max, kRanksMax / *each);
    if (elastic.allowed.empty()) return elastic;
    std::erase_if(elastic.allowed, [&elastic, each = *each](int size) {
        return size % each != 0 || size < *elastic.ranks_min || size > *elastic.ranks_max;
    });
    if (!elastic.allowed.empty()) return elastic;
    return fail(Errc::invalid_input,
                "{} hosts of {} ranks have none of the numbers of ranks that are allowed: {}",
                shape.hosts_flag, *each, fmt::join(options.elastic->allowed, ","));
}

/// Fails if the hosts can never have as many ranks as the job needs.
Result<void> check_elastic(const Options& options, const ElasticOptions& elastic, int slots) {
    const auto check = [slots](const char* flag, int ranks) -> Result<void> {
        if (ranks <= slots) return {};
        return fail(Errc::invalid_input, "{} {}: the hosts have only {}", flag, ranks,
                    plural(static_cast<unsigned>(slots), "slot"));
    };
    if (auto done = check("--min-np", elastic.ranks_min.value_or(1)); !done) return done;
    return check("-np", options.world_size.value_or(1));
}

/// Fails if a flag names a rank that the job has not.
Result<void> check_ranks(const Options& options, int world_size) {
    const auto check = [world_size](const char* flag, int rank) -> Result<void> {
        if (rank < world_size) return {};
        return fail(Errc::invalid_input, "{}: rank {} does not exist, the ranks are 0..{}", flag,
                    rank, world_size - 1);
    };
    if (auto done = check("--quiet-ranks", options.quiet_ranks.largest()); !done) return done;
    if (auto done = check("--only-ranks", options.only_ranks.largest()); !done) return done;
    for (const WrapOption& wrap : options.wraps)
        if (auto done = check("--wrap", wrap.ranks.largest()); !done) return done;
    if (auto done = check("--pty", options.pty.value_or(-1)); !done) return done;
    if (auto done = check("--debug-rank", options.debug_rank.value_or(-1)); !done) return done;
    if (options.stdin_target.kind != StdinTarget::Kind::rank) return {};
    return check("--stdin", options.stdin_target.rank);
}

}  // namespace

Result<Placed> place_job(const Options& options, const Offer& offer) {
    auto placed = choose_places(options, offer);
    if (!placed) return placed;
    const int slots = placed->placement.world_size();
    if (options.elastic) {
        auto elastic = in_ranks(options, placed->placement);
        if (!elastic) return std::unexpected(elastic.error());
        placed->elastic = std::move(*elastic);
    }
    const bool more_may_come = !offer.discovery.empty();
    if (placed->elastic && !more_may_come)
        if (auto done = check_elastic(options, *placed->elastic, slots); !done)
            return std::unexpected(done.error());
    if (!more_may_come)
        if (auto done = check_ranks(options, slots); !done) return std::unexpected(done.error());
    if (const Allocation* const allocation = offer.used())
        placed->cpus_per_rank = share_processors(*allocation, placed->placement);
    return placed;
}

}  // namespace dtrun::plan
