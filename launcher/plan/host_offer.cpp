#include "launcher/plan/host_offer.h"

#include "base/fd.h"
#include "base/interfaces.h"
#include "base/process/command_output.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "launcher/plan/allocation_here.h"
#include "launcher/plan/machine_facts.h"
#include "launcher/plan/programs.h"
#include "launcher/transport/host_target.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>

namespace dtrun::plan {
namespace {

constexpr std::chrono::seconds kDiscoveryLimit{10};  // of a script's run

/// Hosts that the user has named. With `--transport slurm` the allocation must be readable all the
/// same.
Result<Offer> named_hosts(const Options& options, EnvironmentView caller) {
    Offer offer;
    auto hosts = options.hosts.empty() ? read_hostfile(options.hostfile)
                                       : parse_hosts(all_hosts_words(options));
    if (!hosts)
        return fail(hosts.error().code, "{}{}", hosts.error().message,
                    transport::file_hint(options.hosts));
    offer.hosts = std::move(*hosts);
    offer.sources.hosts = options.hosts.empty() ? "--hostfile " + options.hostfile : "-H";
    offer.sources.slots = offer.sources.hosts;
    auto allocation = slurm_here(caller);
    if (!allocation && options.transport == Transport::slurm)
        return std::unexpected(allocation.error());
    if (allocation) offer.allocation = std::move(*allocation);
    return offer;
}

Offer this_machine(const Options& options) {
    Offer offer;
    Host here;
    here.name = options.join ? host_name() : "localhost";
    here.slots = options.world_size.value_or(1);
    if (options.elastic)
        here.slots = std::max({here.slots, options.elastic->ranks_min.value_or(1),
                               options.elastic->ranks_max.value_or(1)});
    offer.hosts = {here};
    offer.sources.hosts = "this machine";
    offer.sources.slots = options.world_size ? "-np" : "one";
    return offer;
}

/// The command that lists the hosts of an elastic job as they are at that time; empty if they stay.
std::vector<std::string> discovery_of(const Options& options) {
    if (!options.elastic) return {};
    const std::string& script = options.elastic->discovery_script;
    const bool is_file = script.find('/') != std::string::npos;
    if (is_file && ::access(script.c_str(), X_OK) == 0) return {script};
    if (!script.empty()) return {"/bin/sh", "-c", script};
    const bool filtered = !options.include.empty() || !options.exclude.empty();
    if (options.hostfile.empty() || options.hostfile == "-" || filtered) return {};
    return {"/bin/cat", "--", options.hostfile};
}

/// The hosts that the user's script lists now; there may be none yet.
Result<Offer> discovered_hosts(const Options& options, EnvironmentView caller) {
    constexpr const char* kFlag = "--host-discovery-script";
    const std::string& script = options.elastic->discovery_script;
    const auto output = command_output(discovery_of(options), Captured::out, kDiscoveryLimit);
    if (!output) return fail(output.error(), "{}", kFlag);
    if (output->status != 0)
        return fail(Errc::invalid_input, "{}: {} has ended with exit code {}", kFlag, script,
                    output->status);
    auto hosts = parse_host_listing(output->text, script, options.elastic->slots_per_host);
    if (!hosts) return fail(hosts.error(), "{}", kFlag);
    Offer offer;
    offer.hosts = std::move(*hosts);
    offer.sources.hosts = offer.sources.slots = kFlag;
    if (auto allocation = slurm_here(caller); allocation && *allocation)
        offer.allocation = std::move(**allocation);
    return offer;
}

/// The hosts alone.
Result<Offer> offered_hosts(const Options& options, EnvironmentView caller) {
    if (options.elastic && !options.elastic->discovery_script.empty())
        return discovered_hosts(options, caller);
    if (!options.hosts.empty() || !options.hostfile.empty()) return named_hosts(options, caller);
    // Inside a rank the allocation belongs to the job around us.
    const bool in_rank = find_variable(caller, "DTRUN_RANK").has_value();
    if (options.join || options.transport == Transport::local || in_rank)
        return this_machine(options);
    auto allocation = allocation_here(caller);
    if (!allocation) return std::unexpected(allocation.error());
    Offer offer;
    if (!*allocation && !options.rankfile.empty()) {  // which names the hosts
        offer.sources.hosts = "--rankfile " + options.rankfile;
        return offer;
    }
    if (!*allocation) return this_machine(options);
    offer.from_allocation = true;
    offer.hosts = (*allocation)->hosts;
    offer.sources = {(*allocation)->hosts_source, (*allocation)->slots_source, ""};
    offer.allocation = std::move(*allocation);
    return offer;
}

}  // namespace

Result<Offer> find_hosts(const Options& options, EnvironmentView caller) {
    auto offer = offered_hosts(options, caller);
    if (!offer) return offer;
    offer->discovery = discovery_of(options);
    if (options.shape.any()) offer->here = machine_facts(caller);
    if (options.rankfile.empty()) return offer;
    const auto text = read_file(options.rankfile);
    if (!text) return fail(text.error(), "--rankfile");
    auto ranks = parse_rankfile(*text, options.rankfile);
    if (!ranks) return std::unexpected(ranks.error());
    offer->ranks = std::move(*ranks);
    return offer;
}

}  // namespace dtrun::plan
