#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

enum class Scheduler {
#define DTRUN_SCHEDULER(name, shown, files, more) name,
#include "hostfiles/schedulers.def"
};

/// "Slurm", "PBS", …
const char* scheduler_name(Scheduler scheduler);
/// All of these: "Slurm, Flux, PBS, … or Cobalt".
std::string scheduler_names();
/// What to ask it for, so that it counts so many ranks.
std::string words_for_more(Scheduler scheduler, int each, int all);

/// What a batch system has given to the job in which this process runs.
struct Allocation {
    /// What the batch system tells of a host besides slots; 0: not told.
    struct Node {
        int cpus = 0;
        int gpus = 0;
        int het_group = 0;  ///< component of a heterogeneous Slurm job; the first one if
                            ///< several share the host
    };

    Scheduler scheduler{};
    std::string job;  ///< the scheduler's job id
    HostList hosts;   ///< in the scheduler's order; slots: ranks that its own launcher would
                      ///< start there; slots_max: how many fit, where that is more
    std::vector<Node> nodes;  ///< [hosts.size()]
    int world_size = 0;       ///< ranks that its own launcher would start, 1..kRanksMax
    int cpus_per_rank = 0;    ///< 0: not said
    /// Slurm's --overcommit (-O): a host may have more ranks than fit.
    bool is_overcommitted = false;
    /// Whether the scheduler's parallel step has started several processes and this is not the
    /// first of them, which alone launches the ranks.
    bool is_bystander = false;

    // Where each value came from, for messages: "SLURM_JOB_NODELIST=n[1-4]".
    std::string hosts_source;
    std::string slots_source;
    std::string world_size_source;
};

/// What is told of a host; nothing of one that is not the allocation's.
Allocation::Node node_of(const Allocation& allocation, const Host& host);

/// How many ranks fit on a host: as many as the batch system counts, but one for each of the processors, or
/// of the GPUs, that it has given where these are more.
int room_of(const Allocation& allocation, const Host& host);

/// Gives hosts that fit too few of `ranks` more slots, in turn, as far as they have room; not those on which
/// the user has chosen slots.
void widen(HostList& hosts, const Allocation& allocation, int ranks);

/// Access to the environment, files and programs for find_allocation().
struct AllocationInput {
    /// Value of an environment variable, valid as long as the input.
    std::function<std::optional<std::string_view>(std::string_view name)> variable;
    /// Text of a file that a variable names. Errc: not_found, denied
    std::function<Result<std::string>(const std::string& path)> file;
    /// Runs a program, which must exit 0, and returns its standard output. It is needed because
    /// Flux sets only FLUX_URI (`flux hostlist local`), and Slurm does not tell where the GPUs of
    /// `--gpus=3` are (`scontrol show job -d`). Empty: Flux is not looked for, and those GPUs are
    /// not known.
    std::function<Result<std::string>(const std::vector<std::string>& words)> command;
};

/// Reads an allocation off the environment of a batch system, the first of schedulers.def that has one.
/// docs/HOSTS.md lists the variables and what they mean. A variable that is set to
/// nothing counts as unset.
/// \return nothing when there is none; invalid_input when there is one that contradicts itself, with
///         "<variable>:1:<column>:" or "<file>:<line>:<column>:" and what to do; what `file` and
///         `command` failed with
Result<std::optional<Allocation>> find_allocation(const AllocationInput& input);

}  // namespace dtrun
