#pragma once

#include "base/result.h"
#include "hostfiles/allocation.h"
#include "launcher/plan/host_offer.h"
#include "launcher/plan/options.h"
#include "launcher/transport/host_target.h"
#include "launcher/transport/ssh_config.h"

#include <optional>
#include <vector>

namespace dtrun::plan {

/// What decides how hosts are reached, those of the plan and those that come later.
struct AccessRules {
    std::optional<Transport> asked{};  ///< --transport
    bool only_here = false;            ///< dtrun join
    bool by_mpirun = false;            ///< whose ssh finds out by itself
    transport::SshOptions ssh{};
    /// The allocation around us, whether or not it is used.
    std::optional<Allocation> allocation{};
    bool has_srun = true;                 ///< it is on PATH
    std::vector<std::string> srun_env{};  ///< "NAME=value", of every srun
};

/// How a host is reached.
struct HostAccess {
    Transport transport = Transport::ssh;
    /// Of one that is reached by ssh. Unset: it came while the job ran, and the log-in is to find out; then
    /// `transport` says ssh_command only if the user does.
    std::optional<transport::SshSettings> ssh{};
    Allocation::Node node{};  ///< what a scheduler tells of it
};

AccessRules access_rules(const Options& options, const Offer& offer, EnvironmentView caller);

/// How each of the hosts is reached. Looks up names that may be this machine's, and reads how ssh would log in:
/// ssh itself does where dtrun's own log-in cannot. Errc: invalid_input, not_found, denied
Result<std::vector<HostAccess>> choose_access(const AccessRules& rules, const HostList& hosts);

/// The same for one host, without its ssh settings.
Result<HostAccess> choose_access(const AccessRules& rules, const Host& host,
                                 transport::LookUp look_up);

}  // namespace dtrun::plan
