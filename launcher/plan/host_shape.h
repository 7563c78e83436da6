#pragma once

#include "base/result.h"
#include "hostfiles/allocation.h"
#include "hostfiles/host.h"

#include <string>
#include <vector>

namespace dtrun::plan {

/// How many hosts a job has and how many ranks each of them: torchrun's --nnodes and
/// --nproc-per-node, DeepSpeed's --num_nodes and --num_gpus.
struct HostShape {
    enum class Count {
        slots,        ///< as the hosts' source has it
        number,       ///< `number`
        automatic,    ///< slots that were given; else one for each GPU, else for each processor
        gpu,          ///< one for each GPU
        cpu,          ///< one for each processor
        accelerator,  ///< slots that were given; else one for each GPU, else for each NUMA node
    };
    Count count = Count::slots;
    int number = 0;          ///< 1..kSlotsMax, with Count::number
    std::string count_flag;  ///< what asked for it, for messages: "--nproc-per-node 2"

    int hosts_min = 1;
    int hosts_max = kHostsMax;  ///< of more, the first ones are taken
    std::string hosts_flag;     ///< "--nnodes 4"
    /// The job is elastic: hosts may be lost and come back, and those above hosts_max take their place.
    bool elastic = false;
    std::string elastic_words;  ///< how the user makes a job elastic, for messages

    /// The flags, such as "--node-rank 1", by which the user seems to run this command on every
    /// node by hand. Empty: none.
    std::string by_hand;
    bool not_first = false;   ///< `by_hand` says that this is not the first node
    std::string meets_at;     ///< the host at which nodes meet by `by_hand`; empty: none
    std::string one_command;  ///< what to write instead

    /// Slots are devices, as --num_gpus means them: not those of CUDA_VISIBLE_DEVICES.
    bool devices_chosen = false;

    // For this machine, if no hosts are named and no batch system has any.
    std::vector<int> devices_here;  ///< its slots; empty: counted
    std::string note_here;          ///< for the user; empty: none

    bool any() const {
        return count != Count::slots || !hosts_flag.empty() || not_first || !devices_here.empty() ||
               !note_here.empty();
    }
    bool operator==(const HostShape&) const = default;
};

/// What this machine has.
struct MachineFacts {
    int gpus = 0;          ///< that the NVIDIA driver shows and CUDA_VISIBLE_DEVICES leaves
    int gpus_present = 0;  ///< that the driver shows
    int cpus = 1;          ///< that this process may use
    int numa_nodes = 1;    ///< with processors
};

/// Where a shape is to be applied.
struct Shapeable {
    HostList hosts;                          ///< filtered
    const Allocation* allocation = nullptr;  ///< of the batch system whose hosts these are
    bool named = false;  ///< by the user; neither named nor an allocation's: this machine
    bool oversubscribe = false;
};

struct Shaped {
    HostList hosts;                  ///< with slots_max where ranks may be more than slots
    int world_size = 0;              ///< 1..kRanksMax
    std::vector<std::string> notes;  ///< for the user, one line each
};

/// Whether a name or an address, which is looked up, is this machine's.
bool means_this_machine(const std::string& name);

/// Gives this machine, if no hosts are named, the slots that a filter may choose from.
void size_this_machine(const HostShape& shape, Host& host, const MachineFacts& here);

/// Takes hosts_max of the hosts and gives each its ranks. Where all hosts of a list have one slot
/// and no more is said of them, the list is taken for names only, and any number fits.
/// \return invalid_input, with the arithmetic or with what is not known and how to say it
Result<Shaped> shape_hosts(const HostShape& shape, Shapeable given, const MachineFacts& here);

}  // namespace dtrun::plan
