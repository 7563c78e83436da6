#pragma once

#include "rendezvous/wire/job_settings.h"
#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::contracts {

/// Names and values, the last word on each.
using Environment = std::map<std::string, std::string, std::less<>>;

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What a rank is told for the sake of MPI.
struct MpiFacts {
    Variables pmix{};                ///< of worker/mpi/pmix_server.h
    int pmi_fd = -1;                 ///< the rank's end of its socket for PMI; -1: none
    std::string memory_directory{};  ///< for memory that ranks share; empty: the library's choice
    bool oversubscribed = false;     ///< more ranks here than processors
    bool open_mpi = false;           ///< the program is linked with it
    bool mpich = false;              ///< or with this
};

/// What the variables are made from.
struct ContractFacts : TorchSettings {
    std::string job;                       ///< hexadecimal id
    std::string host_name;                 ///< what the user calls this host
    std::string rank_socket;               ///< of the agent, for ranks; DTRUN_SOCKET
    std::string interface;                 ///< that the ranks should use; may be empty
    std::vector<std::string> contracts{};  ///< as effective_contracts() makes them
    std::uint64_t agent = 0;               ///< number of the agent that starts the ranks
    std::string nodelist{};                ///< hosts of the job, in Slurm's notation
    std::string tasks_per_node{};          ///< and their ranks, as 4(x2),3
    std::uint16_t proxy_port = 0;          ///< of torch's store on loopback, with TorchStore::proxy
    std::uint16_t horovod_port = 0;        ///< of Horovod's store on loopback; 0: none
    bool encrypt = false;                  ///< --encrypt
    std::uint32_t ranks_min = 0;           ///< of an elastic job; 0: it is not elastic
    std::uint32_t ranks_max = 0;           ///< of an elastic job
    std::string change_file{};             ///< DTRUN_CHANGE_FILE of an elastic job
    std::string error_file{};              ///< of this rank, for torch's @record; empty: none
    /// OMP_NUM_THREADS of the ranks by place, in turn; empty or 0: OpenMP's own choice
    std::vector<std::uint32_t> threads{};
    MpiFacts mpi{};  ///< of this rank
};

/// A variable is the launcher's word, or a default that the user's own value beats.
struct ContractVariables {
    Variables fixed;
    Variables defaults;
};

/// Who serves torch's store to the ranks of a job. Not the agents but rank 0, whatever
/// `facts.torch_store` says, where nobody asked for torch's contract; where the user has set
/// MASTER_ADDR or MASTER_PORT, as rank 0 then listens there; and with one rank, perhaps the parent
/// of workers that meet elsewhere, which torch would make clients of a store that is not there.
TorchStore torch_store_for(const Assign& assign, const ContractFacts& facts,
                           const Environment& user);

/// The environment by which a rank knows its place, in the words of each of `facts.contracts`.
/// No name stands in it twice, and each is in the table of contracts/table.h.
/// \param user  what the rank's environment has without this; only asked for choices of the user's.
///              Its other values are beaten, or beat the defaults, where the two are put together
/// A contract that needs to know all hosts sets nothing where `assign.nodes` does not have them.
ContractVariables contract_variables(const Assign& assign, const RankSlot& slot,
                                     const ContractFacts& facts, const Environment& user);

/// Names among these that describe a rank or its world, so that they are other ones at the next start, sorted.
/// Left out is what programs and libraries read while they are loaded, and what marks them as the job's.
std::vector<std::string> names_of_rank(const ContractVariables& variables);

}  // namespace dtrun::contracts
