#pragma once

#include "rendezvous/messages.h"

#include <string>
#include <utility>
#include <vector>

namespace dtrun {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What the variables are made from.
struct ContractFacts {
    std::string job;                     ///< hexadecimal id
    std::string host_name;               ///< what the user calls this host
    std::string rank_socket;             ///< of the agent, for ranks; DTRUN_SOCKET
    std::string interface;               ///< that the ranks should use; may be empty
    bool slurm = false;                  ///< ranks are to look like Slurm's tasks
    std::string slurm_nodelist{};        ///< then: hosts of the job, in Slurm's notation
    std::string slurm_tasks_per_node{};  ///< and their ranks, as 4(x2),3
    std::uint32_t cpus_per_rank = 0;     ///< that a scheduler gave; 0: not known
};

/// A variable is the launcher's word, or a default that the user's own value beats.
struct ContractVariables {
    Variables fixed;
    Variables defaults;
};

/// The environment by which a rank knows its place, in the words of dtrun, Horovod, torchrun and
/// DeepSpeed at once, and of Slurm where it is asked for; they do not contradict each other.
/// docs/ENVIRONMENT.md lists them.
ContractVariables contract_variables(const Assign& assign, const RankSlot& slot,
                                     const ContractFacts& facts);

}  // namespace dtrun
