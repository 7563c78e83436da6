#include "contracts/table.h"

#include "base/strings.h"

#include <algorithm>
#include <array>

namespace dtrun::contracts {
namespace {

using enum ContractVariable::Kind;

constexpr std::array kDtrun{
    ContractVariable{"DTRUN_JOB", fixed, "id of the job, 32 hexadecimal digits"},
    ContractVariable{"DTRUN_AGENT", fixed, "number of the agent that has started it, in its job"},
    ContractVariable{"DTRUN_GENERATION", fixed, "number of the membership, from 1"},
    ContractVariable{"DTRUN_ENCRYPT", fixed,
                     "1 with --encrypt, else not set: dtrun's own collectives encrypt what goes "
                     "between hosts"},
    ContractVariable{"DTRUN_ELASTIC", fixed, "1 in an elastic job, else not set"},
    ContractVariable{"DTRUN_MIN_NP", fixed, "fewest ranks of an elastic job"},
    ContractVariable{"DTRUN_MAX_NP", fixed, "most ranks of an elastic job"},
    ContractVariable{"DTRUN_CHANGE_FILE", fixed,
                     "file of an elastic job that is there while a change of hosts is coming"},
    ContractVariable{"DTRUN_RANK", fixed, "global index"},
    ContractVariable{"DTRUN_SIZE", fixed, "number of ranks"},
    ContractVariable{"DTRUN_LOCAL_RANK", fixed, "index on the host"},
    ContractVariable{"DTRUN_LOCAL_SIZE", fixed, "number of ranks on the host"},
    ContractVariable{"DTRUN_CROSS_RANK", fixed,
                     "index of the host among those that have this local rank"},
    ContractVariable{"DTRUN_CROSS_SIZE", fixed, "number of these hosts"},
    ContractVariable{"DTRUN_SLOT", fixed,
                     "id of the slot on its host; not the local rank after --include or --exclude"},
    ContractVariable{"DTRUN_HOST", fixed, "the host's name as the user wrote it"},
    ContractVariable{"DTRUN_SOCKET", fixed,
                     "where the rank finds its agent, for the store, fences and events"},
};

constexpr std::array kTorch{
    ContractVariable{"RANK", fixed, "global index"},
    ContractVariable{"WORLD_SIZE", fixed, "number of ranks"},
    ContractVariable{"LOCAL_RANK", fixed, "index on the host"},
    ContractVariable{"LOCAL_WORLD_SIZE", fixed, "number of ranks on the host"},
    ContractVariable{"GROUP_RANK", fixed, "index of the host"},
    ContractVariable{"GROUP_WORLD_SIZE", fixed, "number of hosts"},
    ContractVariable{"ROLE_RANK", fixed, "as RANK: every rank has the same role"},
    ContractVariable{"ROLE_WORLD_SIZE", fixed, "as WORLD_SIZE"},
    ContractVariable{"ROLE_NAME", fixed, "torchrun's --role, else \"default\""},
    ContractVariable{"MASTER_ADDR", fallback,
                     "numeric address of rank 0's host, by which its peers reach it; 127.0.0.1 "
                     "with --store proxy"},
    ContractVariable{"MASTER_PORT", fallback,
                     "where torch's store listens, or, with --store rank0, will listen"},
    ContractVariable{"TORCHELASTIC_USE_AGENT_STORE", fixed,
                     "True: the store is there, no rank hosts it. False with --store rank0, with "
                     "one rank (which may start workers and a store of its own), and where the "
                     "user has set MASTER_ADDR or MASTER_PORT"},
    ContractVariable{"TORCHELASTIC_RUN_ID", fixed,
                     "torchrun's --rdzv-id, else the job's id; by it torch knows its launcher"},
    ContractVariable{"TORCHELASTIC_RESTART_COUNT", fixed, "DTRUN_GENERATION - 1"},
    ContractVariable{"TORCHELASTIC_MAX_RESTARTS", fixed, "--max-restarts"},
    ContractVariable{"TORCHELASTIC_ERROR_FILE", fixed,
                     "where @record leaves a traceback; not set where nobody would read it"},
    ContractVariable{"TORCH_NCCL_ASYNC_ERROR_HANDLING", fallback, "1, as torchrun has it"},
    ContractVariable{"GLOO_SOCKET_IFNAME", fallback,
                     "the interface by which the hosts reach each other; else ranks ask what their "
                     "host's name means, which on many hosts is 127.0.1.1"},
    ContractVariable{"TP_SOCKET_IFNAME", fallback, "the same, for torch.distributed.rpc"},
    ContractVariable{
        "OMP_NUM_THREADS", fallback,
        "cores that the rank is bound to; else what the scheduler gave each task, or, with more "
        "ranks than tasks, its processors / ranks; else, "
        "with several ranks on the host, its processors / ranks (dtrun torchrun: 1)"},
};

constexpr std::array kHorovod{
    ContractVariable{"HOROVOD_RANK", fixed,
                     "global index; this and the nine below not with HOROVOD_CONTROLLER=mpi, "
                     "where programs would take it for a sign of Gloo"},
    ContractVariable{"HOROVOD_SIZE", fixed, "number of ranks"},
    ContractVariable{"HOROVOD_LOCAL_RANK", fixed, "index on the host"},
    ContractVariable{"HOROVOD_LOCAL_SIZE", fixed, "number of ranks on the host"},
    ContractVariable{"HOROVOD_CROSS_RANK", fixed,
                     "index of the host among those that have this local rank"},
    ContractVariable{"HOROVOD_CROSS_SIZE", fixed, "number of these hosts"},
    ContractVariable{"HOROVOD_ELASTIC", fixed, "1 in an elastic job, else not set"},
    ContractVariable{"HOROVOD_HOSTNAME", fixed, "the host's name as the user wrote it"},
    ContractVariable{"HOROVOD_GLOO_RENDEZVOUS_ADDR", fixed,
                     "127.0.0.1: the agent serves Horovod's store"},
    ContractVariable{"HOROVOD_GLOO_RENDEZVOUS_PORT", fixed, "of that"},
    ContractVariable{"HOROVOD_GLOO_IFACE", fallback,
                     "the interface by which the hosts reach each other; may differ from host to "
                     "host"},
    ContractVariable{"HOROVOD_CONTROLLER", fallback, "gloo"},
    ContractVariable{"HOROVOD_CPU_OPERATIONS", fallback, "gloo"},
    ContractVariable{"PYTHONUNBUFFERED", fallback, "1"},
};

constexpr std::array kDeepspeed{
    ContractVariable{"CROSS_RANK", fixed, "index of the host"},
    ContractVariable{"CROSS_SIZE", fixed, "number of hosts"},
    ContractVariable{"LOCAL_SIZE", fixed, "number of ranks on the host"},
};

constexpr std::array kDevices{
    ContractVariable{"CUDA_VISIBLE_DEVICES", fallback,
                     "ids of the slots that the job has on the host, so that LOCAL_RANK counts "
                     "these"},
};

constexpr std::array kAccelerateCpu{
    ContractVariable{"ACCELERATE_USE_CPU", fallback, "true, as of accelerate launch --cpu"},
};

/// Of all that meet by gRPC.
constexpr ContractVariable kNoGrpcProxy{
    "no_grpc_proxy", fallback,
    "only where a proxy is set: no_proxy, and the job's hosts, for which gRPC would ask the proxy"};

constexpr std::array kJax{
    ContractVariable{"JAX_COORDINATOR_ADDRESS", fixed,
                     "rank 0's host, and a port that is free there"},
    ContractVariable{"JAX_NUM_PROCESSES", fixed,
                     "number of ranks; jax does not read it, programs do"},
    ContractVariable{"JAX_PROCESS_ID", fixed, "global index; likewise"},
    kNoGrpcProxy,
};

constexpr std::array kTensorflow{
    ContractVariable{"TF_CONFIG", fixed,
                     "JSON: each rank is a worker, at a free port of its host; and the rank's "
                     "index"},
    kNoGrpcProxy,
};

constexpr std::array kMxnet{
    ContractVariable{"DMLC_ROLE", fixed,
                     "worker; server for the DMLC_NUM_SERVER ranks before the last; scheduler for "
                     "the last"},
    ContractVariable{"DMLC_PS_ROOT_URI", fixed, "address of the scheduler's host"},
    ContractVariable{"DMLC_PS_ROOT_PORT", fixed, "where the scheduler will listen"},
    ContractVariable{"DMLC_NUM_SERVER", fixed,
                     "1, or what the user sets if that leaves a rank to be a worker"},
    ContractVariable{"DMLC_NUM_WORKER", fixed, "ranks that are neither server nor scheduler"},
    ContractVariable{"DMLC_WORKER_ID", fixed, "of a worker: its rank"},
    ContractVariable{"DMLC_NODE_HOST", fallback, "this host's address"},
};

constexpr std::array kMpi{
    ContractVariable{"PMIX_NAMESPACE", fixed, "name of the job for PMIx, which Open MPI speaks"},
    ContractVariable{"PMIX_RANK", fixed, "global index"},
    ContractVariable{"PMIX_SERVER_URI41", fixed,
                     "the agent, on loopback; libpmix is loaded there once a rank asks for it"},
    ContractVariable{"PMIX_SERVER_URI4", fixed, "the same, for older libraries"},
    ContractVariable{"PMIX_SERVER_URI3", fixed, "the same"},
    ContractVariable{"PMIX_SERVER_URI21", fixed, "the same"},
    ContractVariable{"PMIX_SERVER_URI2", fixed, "the same"},
    ContractVariable{"PMIX_SECURITY_MODE", fixed, "native"},
    ContractVariable{"PMIX_MCA_psec", fixed, "the same; others are of other launchers' servers"},
    ContractVariable{"PMIX_BFROP_BUFFER_TYPE", fixed, "how messages are packed"},
    ContractVariable{
        "PMIX_GDS_MODULE", fixed,
        "how ranks get at each other's data: memory that they share, where it is known "
        "from the start that the program is Open MPI's; else messages"},
    ContractVariable{"PMIX_DSTORE_21_BASE_PATH", fixed, "of that memory, with libpmix 4"},
    ContractVariable{"PMIX_DSTORE_ESH_BASE_PATH", fixed, "the same"},
    ContractVariable{"PMIX_SERVER_TMPDIR", fixed, "a directory of this job on this host"},
    ContractVariable{"PMIX_SYSTEM_TMPDIR", fixed, "the same"},
    ContractVariable{"PMIX_HOSTNAME", fixed, "the host's name as the user wrote it"},
    ContractVariable{"PMIX_VERSION", fixed, "of libpmix, where it is known from the start"},
    ContractVariable{"OMPI_MCA_schizo", fixed,
                     "ompi: without it Open MPI 4 ranks that find no mpirun run each alone"},
    ContractVariable{"PMI_FD", fixed,
                     "a socket to the agent, for PMI-1 and PMI-2: MPICH, Intel MPI, MVAPICH"},
    ContractVariable{"PMI_RANK", fixed, "global index"},
    ContractVariable{"PMI_SIZE", fixed, "number of ranks"},
    ContractVariable{"PMI_SPAWNED", fixed, "0"},
    ContractVariable{"MPI_LOCALRANKID", fixed, "index on the host"},
    ContractVariable{"MPI_LOCALNRANKS", fixed, "number of ranks on the host"},
    ContractVariable{
        "OMPI_COMM_WORLD_RANK", fixed,
        "global index; this and the four below only where the program itself is linked "
        "with Open MPI"},
    ContractVariable{"OMPI_COMM_WORLD_SIZE", fixed, "number of ranks"},
    ContractVariable{"OMPI_COMM_WORLD_LOCAL_RANK", fixed, "index on the host"},
    ContractVariable{"OMPI_COMM_WORLD_LOCAL_SIZE", fixed, "number of ranks on the host"},
    ContractVariable{"OMPI_COMM_WORLD_NODE_RANK", fixed, "index on the host"},
    ContractVariable{"OMPI_MCA_btl_vader_backing_directory", fallback,
                     "a directory in /dev/shm of this job on this host, removed at its end"},
    ContractVariable{"OMPI_MCA_btl_sm_backing_directory", fallback, "the same, for Open MPI 5"},
    ContractVariable{"OMPI_MCA_osc_sm_backing_directory", fallback, "the same, for windows"},
    ContractVariable{"OMPI_MCA_osc_rdma_backing_directory", fallback, "the same"},
    ContractVariable{"OMPI_MCA_shmem", fallback,
                     "mmap, which Open MPI chooses itself after it has made a file in /dev/shm to "
                     "see whether it can"},
    ContractVariable{"OMPI_MCA_btl_tcp_if_include", fallback,
                     "with several hosts the interface by which they reach each other; not with "
                     "OMPI_MCA_btl_tcp_if_exclude of the user's"},
    ContractVariable{"OMPI_MCA_mpi_yield_when_idle", fallback,
                     "1 with more ranks on the host than processors, as mpirun has it"},
};

constexpr std::array kOpenmpiNames{
    ContractVariable{"OMPI_COMM_WORLD_RANK", fixed, "global index"},
    ContractVariable{"OMPI_COMM_WORLD_SIZE", fixed, "number of ranks"},
    ContractVariable{"OMPI_COMM_WORLD_LOCAL_RANK", fixed, "index on the host"},
    ContractVariable{"OMPI_COMM_WORLD_LOCAL_SIZE", fixed, "number of ranks on the host"},
    ContractVariable{"OMPI_COMM_WORLD_NODE_RANK", fixed, "index on the host"},
};

constexpr std::array kPmiNames{
    ContractVariable{"PMI_RANK", fixed, "global index"},
    ContractVariable{"PMI_SIZE", fixed, "number of ranks"},
    ContractVariable{"MPI_LOCALRANKID", fixed, "index on the host"},
    ContractVariable{"MPI_LOCALNRANKS", fixed, "number of ranks on the host"},
};

constexpr std::array kPlain{
    ContractVariable{"RANK", fixed, "global index"},
    ContractVariable{"WORLD_SIZE", fixed, "number of ranks"},
    ContractVariable{"LOCAL_RANK", fixed, "index on the host"},
    ContractVariable{"LOCAL_WORLD_SIZE", fixed, "number of ranks on the host"},
};

constexpr std::array kSlurm{
    ContractVariable{"SLURM_PROCID", fixed, "global index"},
    ContractVariable{"SLURM_LOCALID", fixed, "index on the host"},
    ContractVariable{"SLURM_NODEID", fixed, "index of the host"},
    ContractVariable{"SLURM_NTASKS", fixed, "number of ranks"},
    ContractVariable{"SLURM_NPROCS", fixed, "number of ranks"},
    ContractVariable{"SLURM_STEP_NUM_TASKS", fixed, "number of ranks"},
    ContractVariable{"SLURM_NNODES", fixed, "number of hosts"},
    ContractVariable{"SLURM_STEP_NUM_NODES", fixed, "number of hosts"},
    ContractVariable{"SLURM_TASKS_PER_NODE", fixed, "ranks of each host, as 4(x2),3"},
    ContractVariable{"SLURM_STEP_TASKS_PER_NODE", fixed, "ranks of each host, as 4(x2),3"},
    ContractVariable{"SLURM_NTASKS_PER_NODE", fixed,
                     "ranks of each host, where all have the same number"},
    ContractVariable{"SLURM_STEP_NODELIST", fixed,
                     "the hosts, as n[1-3], in order of SLURM_NODEID"},
    ContractVariable{
        "SLURM_NODELIST", fixed,
        "the same: MPI libraries read it beside SLURM_NNODES and SLURM_TASKS_PER_NODE"},
    ContractVariable{"SLURM_DISTRIBUTION", fixed,
                     "arbitrary: which rank is where is listed. At \"block\", or without it, Intel "
                     "MPI would take the hosts for equally full, and not ask"},
    ContractVariable{"SLURM_GTIDS", fixed, "ranks of this host"},
    ContractVariable{"SLURMD_NODENAME", fixed, "the host's name"},
    ContractVariable{"SLURM_JOB_ID", fallback,
                     "the allocation's; outside one a number made of the job's id"},
    ContractVariable{"SLURM_JOBID", fallback, "as SLURM_JOB_ID"},
    ContractVariable{"SLURM_JOB_NODELIST", fallback, "the allocation's, else the job's hosts"},
    ContractVariable{"SLURM_JOB_NUM_NODES", fallback, "the allocation's, else the job's hosts"},
    ContractVariable{"CUDA_VISIBLE_DEVICES", fixed,
                     "where Slurm was asked for GPUs of each task (--gpus-per-task, --gpu-bind): "
                     "those of the rank, of the list that its node has; else it is not touched"},
    ContractVariable{"ROCR_VISIBLE_DEVICES", fixed, "the same"},
    ContractVariable{"HIP_VISIBLE_DEVICES", fixed, "the same"},
    ContractVariable{"GPU_DEVICE_ORDINAL", fixed, "the same"},
    ContractVariable{"ZE_AFFINITY_MASK", fixed, "the same"},
    ContractVariable{"SLURM_STEP_GPUS", fixed, "the same"},
    ContractVariable{"SLURM_LAUNCH_NODE_IPADDR", fallback, "rank 0's host, where programs meet"},
};

constexpr std::array<std::string_view, 1> kAddsTorch{"torch"};
constexpr std::array<std::string_view, 2> kAddsTorchAndDevices{"torch", "devices"};
constexpr std::array<std::string_view, 1> kAddsSlurm{"slurm"};

constexpr std::array kContracts{
    Contract{
        .name = "dtrun",
        .what = "programs that use libdtrun, and dtrun's own commands",
        .why =
            "Every rank has it: dtrun finds what ranks leave behind by DTRUN_JOB and DTRUN_AGENT.",
        .by_default = true,
        .variables = kDtrun},
    Contract{.name = "torch",
             .what = "torch.distributed with env://, and programs written for torchrun",
             .why = "Only torch.distributed acts on it, and only when it is called.",
             .by_default = true,
             .variables = kTorch},
    Contract{.name = "horovod",
             .what = "hvd.init() of Horovod with Gloo",
             .why = "Only Horovod reads it.",
             .by_default = true,
             .variables = kHorovod},
    Contract{.name = "deepspeed",
             .what = "deepspeed.init_distributed(), as under DeepSpeed's own launcher",
             .why = "Only DeepSpeed reads it. By name it brings \"devices\" too, which the default "
                    "set has not: a program that counts devices itself would miss some.",
             .by_default = true,
             .adds = kAddsTorchAndDevices,
             .variables = kDeepspeed},
    Contract{.name = "accelerate",
             .what = "Accelerator() of Hugging Face, one device for each rank",
             .why = "It reads torch's variables and needs no other.",
             .by_default = true,
             .adds = kAddsTorch},
    Contract{.name = "lightning",
             .what = "Trainer() and Fabric() of Lightning",
             .why = "It takes torch's variables for torchrun's, and starts no processes itself.",
             .by_default = true,
             .adds = kAddsTorch},
    Contract{.name = "mpi",
             .what = "MPI programs of Open MPI, MPICH, Intel MPI and MVAPICH; --mpi says which",
             .why = "In the default set: programs that do not use MPI look at none of these.",
             .by_default = true,
             .variables = kMpi},
    Contract{.name = "accelerate-cpu",
             .what = "Accelerator() without any device, as accelerate launch --cpu",
             .why = "On request: where there are devices they would not be used. Without it, and "
                    "without Accelerator(cpu=True), ranks that have no device train alone.",
             .adds = kAddsTorch,
             .variables = kAccelerateCpu},
    Contract{
        .name = "devices",
        .what = "programs that take device LOCAL_RANK, when --include or --exclude chose slots",
        .why = "On request: a host's slots need not be its devices.",
        .variables = kDevices},
    Contract{.name = "jax",
             .what = "jax.distributed.initialize() without arguments",
             .why =
                 "On request: each host has to find free ports. Brings \"slurm\": jax takes the "
                 "number of processes and its own from no variable of its own, but from Slurm's.",
             .needs_nodes = true,
             .adds = kAddsSlurm,
             .variables = kJax},
    Contract{.name = "tensorflow",
             .what = "tf.distribute.MultiWorkerMirroredStrategy()",
             .why = "On request: a program for one process would wait for a cluster; and each host "
                    "has to find free ports.",
             .needs_nodes = true,
             .variables = kTensorflow},
    Contract{.name = "mxnet",
             .what = "kvstore \"dist_sync\" of MXNet, and other programs over ps-lite",
             .why = "On request: ranks become servers and a scheduler, in which import mxnet never "
                    "returns; needs three ranks at least.",
             .needs_nodes = true,
             .ranks_min = 3,
             .variables = kMxnet},
    Contract{.name = "openmpi-names",
             .what = "programs that read rank and size as of mpirun, but do not use MPI",
             .why = "On request: programs take the names for a sign of mpirun, and may call MPI "
                    "because of them.",
             .variables = kOpenmpiNames},
    Contract{.name = "pmi-names",
             .what = "the same for MPICH and Intel MPI",
             .why = "On request, for the same reason.",
             .variables = kPmiNames},
    Contract{.name = "plain",
             .what = "programs that read RANK and WORLD_SIZE and meet by themselves",
             .why = "Part of torch's; alone with --contract none,plain.",
             .variables = kPlain},
    Contract{.name = "slurm",
             .what = "programs that expect to be tasks of srun",
             .why = "In the default set inside a Slurm allocation only: elsewhere programs would "
                    "look for a Slurm that is not there. SLURM_STEP_ID is never set: with it MPI "
                    "libraries look for Slurm's PMI.",
             .variables = kSlurm},
};

constexpr std::string_view kNone = "none";

std::string known_names() {
    std::vector<std::string> names{std::string(kNone)};
    for (const Contract& contract : kContracts) names.emplace_back(contract.name);
    return join_names(names, names.size());
}

/// Which of kContracts are meant.
using Chosen = std::array<bool, kContracts.size()>;

void choose(Chosen& chosen, const Contract& contract) {
    chosen[static_cast<std::size_t>(&contract - kContracts.data())] = true;
    for (const std::string_view added : contract.adds) choose(chosen, *find_contract(added));
}

}  // namespace

std::span<const Contract> all_contracts() {
    return kContracts;
}

const Contract* find_contract(std::string_view name) {
    const auto found = std::ranges::find(kContracts, name, &Contract::name);
    return found == kContracts.end() ? nullptr : &*found;
}

Result<std::vector<std::string>> effective_contracts(std::span<const std::string> named,
                                                     bool in_slurm) {
    Chosen chosen{};
    bool from_nothing = false;
    for (const std::string& value : named) {
        for (const std::string_view piece : split(value, ',')) {
            const std::string_view name = trim(piece);
            const Contract* const contract = find_contract(name);
            if (contract != nullptr)
                choose(chosen, *contract);
            else if (name == kNone)
                from_nothing = true;
            else
                return fail(Errc::invalid_input, "there is no contract \"{}\"; there are {}", name,
                            known_names());
        }
    }
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kContracts.size(); ++i) {
        const Contract& contract = kContracts[i];
        const bool in_default_set = contract.by_default || (in_slurm && contract.name == "slurm");
        const bool always = contract.name == "dtrun";
        if (chosen[i] || always || (in_default_set && !from_nothing))
            names.emplace_back(contract.name);
    }
    return names;
}

bool needs_nodes(std::span<const std::string> contracts) {
    return std::ranges::any_of(contracts, [](const std::string& name) {
        const Contract* const contract = find_contract(name);
        return contract != nullptr && contract->needs_nodes;
    });
}

Result<void> check_contracts(std::span<const std::string> contracts, std::uint32_t ranks) {
    for (const std::string& name : contracts) {
        const Contract* const contract = find_contract(name);
        if (contract != nullptr && ranks < contract->ranks_min)
            return fail(Errc::invalid_input, "contract \"{}\" needs at least {} ranks, not {}",
                        name, contract->ranks_min, ranks);
    }
    return {};
}

}  // namespace dtrun::contracts
