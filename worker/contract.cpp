#include "worker/contract.h"

#include <charconv>

namespace dtrun {
namespace {

std::string text(std::uint64_t value) {
    return std::to_string(value);
}

void add_dtrun(Variables& set, const Assign& assign, const RankSlot& slot,
               const ContractFacts& facts) {
    set.insert(set.end(), {{"DTRUN_JOB", facts.job},
                           {"DTRUN_GENERATION", text(assign.generation)},
                           {"DTRUN_RANK", text(slot.rank)},
                           {"DTRUN_SIZE", text(assign.world_size)},
                           {"DTRUN_LOCAL_RANK", text(slot.local_rank)},
                           {"DTRUN_LOCAL_SIZE", text(assign.ranks.size())},
                           {"DTRUN_CROSS_RANK", text(slot.cross_rank)},
                           {"DTRUN_CROSS_SIZE", text(slot.cross_size)},
                           {"DTRUN_SLOT", text(slot.slot)},
                           {"DTRUN_HOST", facts.host_name},
                           {"DTRUN_SOCKET", facts.rank_socket}});
}

/// What hvd.init() reads (Horovod 0.28, common/gloo/gloo_context.cc and utils/env_parser.cc).
void add_horovod(ContractVariables& set, const Assign& assign, const RankSlot& slot,
                 const ContractFacts& facts) {
    set.fixed.insert(set.fixed.end(), {{"HOROVOD_HOSTNAME", facts.host_name},
                                       {"HOROVOD_RANK", text(slot.rank)},
                                       {"HOROVOD_SIZE", text(assign.world_size)},
                                       {"HOROVOD_LOCAL_RANK", text(slot.local_rank)},
                                       {"HOROVOD_LOCAL_SIZE", text(assign.ranks.size())},
                                       {"HOROVOD_CROSS_RANK", text(slot.cross_rank)},
                                       {"HOROVOD_CROSS_SIZE", text(slot.cross_size)}});
    set.defaults.insert(set.defaults.end(), {{"HOROVOD_CONTROLLER", "gloo"},
                                             {"HOROVOD_CPU_OPERATIONS", "gloo"},
                                             {"PYTHONUNBUFFERED", "1"}});
    // Not NCCL_SOCKET_IFNAME: NCCL finds the fast network, and the one we came over need not be it.
    if (!facts.interface.empty()) set.defaults.emplace_back("HOROVOD_GLOO_IFACE", facts.interface);
}

/// What torch.distributed's env:// and programs written for torchrun read.
void add_torch(ContractVariables& set, const Assign& assign, const RankSlot& slot,
               const ContractFacts& facts) {
    set.fixed.insert(set.fixed.end(), {{"RANK", text(slot.rank)},
                                       {"WORLD_SIZE", text(assign.world_size)},
                                       {"LOCAL_RANK", text(slot.local_rank)},
                                       {"LOCAL_WORLD_SIZE", text(assign.ranks.size())},
                                       {"GROUP_RANK", text(assign.node_rank)},
                                       {"GROUP_WORLD_SIZE", text(assign.node_count)},
                                       {"ROLE_RANK", text(slot.rank)},
                                       {"ROLE_WORLD_SIZE", text(assign.world_size)},
                                       {"ROLE_NAME", "default"},
                                       {"TORCHELASTIC_RESTART_COUNT", text(assign.generation - 1)},
                                       {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                       {"TORCHELASTIC_RUN_ID", facts.job},
                                       // Rank 0 hosts torch's store, on the port kept for it.
                                       {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
    set.defaults.insert(set.defaults.end(), {{"MASTER_ADDR", assign.master_address},
                                             {"MASTER_PORT", text(assign.master_port)},
                                             {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}});
    if (facts.cpus_per_rank > 0)
        set.defaults.emplace_back("OMP_NUM_THREADS", text(facts.cpus_per_rank));
    else if (assign.ranks.size() > 1)
        set.defaults.emplace_back("OMP_NUM_THREADS", "1");
}

/// What deepspeed.launcher.launch gives besides torch's: node rank, node count, local size.
void add_deepspeed(Variables& set, const Assign& assign) {
    set.insert(set.end(), {{"CROSS_RANK", text(assign.node_rank)},
                           {"CROSS_SIZE", text(assign.node_count)},
                           {"LOCAL_SIZE", text(assign.ranks.size())}});
}

/// Slurm's ids are numbers, and programs make port numbers of them.
std::string job_number(const std::string& job) {
    const std::string_view part = std::string_view(job).substr(0, 7);
    std::uint32_t number = 1;
    std::from_chars(part.data(), part.data() + part.size(), number, 16);
    return text(number);
}

/// What `srun` gives a task (srun(1), "Output environment variables"), except SLURM_STEP_ID: with it
/// MPI libraries would look for Slurm's PMI.
void add_slurm(ContractVariables& set, const Assign& assign, const RankSlot& slot,
               const ContractFacts& facts) {
    std::string ranks_here;
    for (const RankSlot& rank : assign.ranks)
        ranks_here += (ranks_here.empty() ? "" : ",") + text(rank.rank);
    const std::string ranks = text(assign.world_size);
    const std::string nodes = text(assign.node_count);
    set.fixed.insert(set.fixed.end(), {{"SLURM_PROCID", text(slot.rank)},
                                       {"SLURM_LOCALID", text(slot.local_rank)},
                                       {"SLURM_NODEID", text(assign.node_rank)},
                                       {"SLURM_GTIDS", ranks_here},
                                       {"SLURM_NTASKS", ranks},
                                       {"SLURM_NPROCS", ranks},
                                       {"SLURM_NNODES", nodes},
                                       {"SLURM_TASKS_PER_NODE", facts.slurm_tasks_per_node},
                                       {"SLURM_STEP_NODELIST", facts.slurm_nodelist},
                                       {"SLURM_STEP_NUM_NODES", nodes},
                                       {"SLURM_STEP_NUM_TASKS", ranks},
                                       {"SLURM_STEP_TASKS_PER_NODE", facts.slurm_tasks_per_node},
                                       {"SLURMD_NODENAME", facts.host_name}});
    set.defaults.insert(set.defaults.end(), {{"SLURM_JOB_ID", job_number(facts.job)},
                                             {"SLURM_JOBID", job_number(facts.job)},
                                             {"SLURM_JOB_NODELIST", facts.slurm_nodelist},
                                             {"SLURM_NODELIST", facts.slurm_nodelist},
                                             {"SLURM_JOB_NUM_NODES", nodes},
                                             {"SLURM_LAUNCH_NODE_IPADDR", assign.master_address}});
    if (facts.slurm_tasks_per_node.find(',') == std::string::npos)
        set.fixed.emplace_back("SLURM_NTASKS_PER_NODE", text(assign.ranks.size()));
}

}  // namespace

ContractVariables contract_variables(const Assign& assign, const RankSlot& slot,
                                     const ContractFacts& facts) {
    ContractVariables set;
    add_dtrun(set.fixed, assign, slot, facts);
    add_horovod(set, assign, slot, facts);
    add_torch(set, assign, slot, facts);
    add_deepspeed(set.fixed, assign);
    if (facts.slurm) add_slurm(set, assign, slot, facts);
    return set;
}

}  // namespace dtrun
