#pragma once

#include "base/numbered.h"
#include "base/result.h"
#include "hostfiles/allocation.h"
#include "hostfiles/placement.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"
#include "launcher/plan/slot_id.h"
#include "launcher/transport/host_target.h"
#include "launcher/transport/ssh_config.h"
#include "rendezvous/wire/start_messages.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::plan {

/// One host of a job, with everything decided.
struct JobHost {
    Host host;
    Transport transport = Transport::ssh;
    /// Of one that is reached by ssh. Unset: it came while the job ran, and the log-in is to find out; then
    /// `transport` says ssh_command only if the user does.
    std::optional<transport::SshSettings> ssh;
    std::vector<std::pair<std::string, std::string>> env;  ///< what its ranks get from the caller
    std::vector<SlotId> ranks;                             ///< in order of local_rank
    Allocation::Node node;                                 ///< what a scheduler tells of it
};

/// One of several programs of a job. Its ranks are consecutive.
struct PlannedProgram {
    std::vector<std::string> argv;
    std::vector<Options::Variable> env;  ///< of its ranks, besides their host's
    std::string directory;               ///< empty: the job's
    int ranks = 0;
};

/// The host that the plan has chosen for a rank.
inline HostId host_of(const RankPlace& place) {
    return static_cast<HostId>(place.host);
}

/// Where the numbers of a job came from, for a person.
struct Sources {
    std::string hosts;
    std::string slots;
    std::string world_size;
};

/// One job, ready to run: what was asked for, placed and checked. Plain data.
struct JobSpec {
    Options options;
    transport::SshOptions ssh;
    Placement placement;
    PerHost<JobHost> hosts;  ///< as placement.hosts
    Sources sources;
    std::optional<Allocation> scheduler;   ///< the allocation around us, whether or not it is used
    std::optional<Allocation> allocation;  ///< the same, if hosts are from there
    bool heterogeneous = false;            ///< that allocation has several components
    bool gpus_differ = false;              ///< among the nodes of that allocation
    std::vector<std::string> contracts;    ///< whose variables ranks get
    std::vector<std::string> srun_env;     ///< "NAME=value", of every srun
    bool has_srun = true;                  ///< it is on PATH
    std::string directory;                 ///< for the ranks
    bool directory_required = false;       ///< --wdir: else home will do where it is missing
    std::optional<DaemonTarget> daemon;    ///< dtrun join: whose job it is
    std::vector<Options::Variable> env_added;  ///< that the user asked for; in every host's env
    /// What ranks get from the caller: on this machine, and elsewhere.
    std::vector<Options::Variable> environment_here, environment_there;
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
    /// The name of the rank's host.
    const std::string& host_of(SlotId rank) const {
        return hosts[plan::host_of(placement.ranks[std::to_underlying(rank)])].host.name;
    }
};

/// Decides everything that can be decided before the first packet: reads the hostfile, places ranks,
/// chooses transports and environments.
/// \param caller     the caller's environment
/// \param directory  the caller's working directory
/// \return invalid_input, not_found or denied, ready to be shown
Result<JobSpec> make_job_spec(Options options, EnvironmentView caller, std::string directory);

/// Adds a host to an elastic job that runs, or changes the slots of one that it has, and gives it places for
/// more ranks if it has more slots than ever. Places are never taken away.
/// \return its number. Errc: invalid_input, denied (it cannot be used)
Result<HostId> list_host(JobSpec& spec, const Host& host);

}  // namespace dtrun::plan
