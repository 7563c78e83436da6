#pragma once

#include "base/numbered.h"
#include "base/result.h"
#include "hostfiles/placement.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/host_access.h"
#include "launcher/plan/host_offer.h"
#include "launcher/plan/options.h"
#include "launcher/plan/programs.h"
#include "launcher/plan/slot_id.h"
#include "rendezvous/wire/start_messages.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::plan {

/// One host of a job, with everything decided.
struct JobHost : HostAccess {
    Host host;
    std::vector<SlotId> ranks;  ///< in order of local_rank
};

/// The host that the plan has chosen for a rank.
inline HostId host_of(const RankPlace& place) {
    return static_cast<HostId>(place.host);
}

/// One job, ready to run: what was asked for, placed and checked. Plain data.
struct JobSpec {
    Options options;
    AccessRules access{};  ///< how hosts are reached that come later
    Placement placement{};
    PerHost<JobHost> hosts{};  ///< as placement.hosts
    Sources sources{};
    /// Slurm's step has started several of us, and this is not the first, which alone launches the ranks.
    bool is_bystander = false;
    int cpus_per_rank = 0;                 ///< of what a batch system has given; 0: it has not said
    std::vector<std::string> contracts{};  ///< whose variables ranks get
    std::string directory{};               ///< for the ranks
    bool directory_required = false;       ///< --wdir: else home will do where it is missing
    std::optional<DaemonTarget> daemon{};  ///< dtrun join: whose job it is
    EnvironmentPlan environment{};         ///< of all ranks
    std::vector<PlannedProgram> programs{};  ///< if there are several, all
    std::vector<ForwardedRlimit> limits{};   ///< of the caller, for ranks elsewhere
    std::vector<std::string>
        discovery{};  ///< command that lists the hosts, again and again; empty: none

    /// Whether hosts may come that are not known yet.
    bool discovers_hosts() const { return !discovery.empty(); }

    /// The index of the rank's program; 0 where there is one.
    std::size_t program_of(SlotId rank) const;
    /// The rank's program and its arguments.
    const std::vector<std::string>& argv_of(SlotId rank) const {
        return programs.empty() ? options.program : programs[program_of(rank)].argv;
    }
    /// What the ranks of this host get from the caller.
    const std::vector<Options::Variable>& env_of(const JobHost& host) const {
        return host.transport == Transport::local ? environment.local : environment.remote;
    }
    /// The name of the rank's host.
    const std::string& host_of(SlotId rank) const {
        return hosts[plan::host_of(placement.ranks[std::to_underlying(rank)])].host.name;
    }
};

/// Decides everything that can be decided before the first packet, in five steps of which each takes values and
/// gives a value: find_hosts(), place_job(), choose_access(), plan_environment() and plan_programs().
/// \param caller     the caller's environment
/// \param directory  the caller's working directory
/// \return invalid_input, not_found or denied, ready to be shown
Result<JobSpec> make_job_spec(Options options, EnvironmentView caller, std::string directory);

/// Adds a host to an elastic job that runs, or changes the slots of one that it has, and gives it places for
/// more ranks if it has more slots than ever. Places are never taken away.
/// \return its number. Errc: invalid_input, denied (it cannot be used)
Result<HostId> list_host(JobSpec& spec, const Host& host);

}  // namespace dtrun::plan
