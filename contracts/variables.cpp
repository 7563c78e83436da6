#include "contracts/variables.h"

#include "base/json_writer.h"
#include "base/strings.h"
#include "contracts/table.h"
#include "contracts/task_gpus.h"

#include <fmt/format.h>
#include <strings.h>
#include <algorithm>
#include <charconv>

namespace dtrun::contracts {
namespace {

std::string text(std::uint64_t value) {
    return std::to_string(value);
}

/// What all contracts are made from, and what they make.
struct Making {
    const Assign& assign;
    const RankSlot& slot;
    const ContractFacts& facts;
    const Environment& user;
    ContractVariables set{};

    void fixed(Variables variables) { append(set.fixed, std::move(variables)); }
    void fallback(Variables variables) { append(set.defaults, std::move(variables)); }
    bool has(std::string_view contract) const {
        return std::ranges::find(facts.contracts, contract) != facts.contracts.end();
    }
    std::uint32_t rank_number() const { return std::to_underlying(slot.rank); }
    std::string rank() const { return text(rank_number()); }
    std::string size() const { return text(assign.world_size); }
    std::string local_rank() const { return text(slot.local_rank); }
    std::string local_size() const { return text(assign.ranks.size()); }
    std::string node() const { return text(assign.node_rank); }
    std::string nodes() const { return text(assign.node_count); }
    std::uint32_t threads() const {
        if (facts.threads.empty()) return 0;
        return facts.threads[std::to_underlying(slot.place) % facts.threads.size()];
    }

private:
    static void append(Variables& to, Variables variables) {
        std::ranges::move(variables, std::back_inserter(to));
    }
};

void add_dtrun(Making& make) {
    make.fixed({{"DTRUN_JOB", make.facts.job},
                {"DTRUN_AGENT", text(make.facts.agent)},
                {"DTRUN_GENERATION", text(make.assign.generation)},
                {"DTRUN_RANK", make.rank()},
                {"DTRUN_SIZE", make.size()},
                {"DTRUN_LOCAL_RANK", make.local_rank()},
                {"DTRUN_LOCAL_SIZE", make.local_size()},
                {"DTRUN_CROSS_RANK", text(make.slot.cross_rank)},
                {"DTRUN_CROSS_SIZE", text(make.slot.cross_size)},
                {"DTRUN_SLOT", text(make.slot.slot)},
                {"DTRUN_HOST", make.facts.host_name},
                {"DTRUN_SOCKET", make.facts.rank_socket}});
    if (make.facts.encrypt) make.fixed({{"DTRUN_ENCRYPT", "1"}});
    if (make.facts.ranks_min == 0) return;
    make.fixed({{"DTRUN_ELASTIC", "1"},
                {"DTRUN_MIN_NP", text(make.facts.ranks_min)},
                {"DTRUN_MAX_NP", text(make.facts.ranks_max)}});
    if (!make.facts.change_file.empty())
        make.fixed({{"DTRUN_CHANGE_FILE", make.facts.change_file}});
}

/// Whether the user has chosen MPI as Horovod's controller, compared as utils/env_parser.cc does. MPI
/// then knows everybody's place, and programs take HOROVOD_RANK for a sign of Gloo.
bool horovod_asks_mpi(const Environment& user) {
    const auto controller = user.find("HOROVOD_CONTROLLER");
    return controller != user.end() && ::strcasecmp(controller->second.c_str(), "mpi") == 0;
}

/// Adds the variables by which Horovod's ranks meet over Gloo.
void add_horovod_places(Making& make) {
    make.fixed({{"HOROVOD_HOSTNAME", make.facts.host_name},
                {"HOROVOD_RANK", make.rank()},
                {"HOROVOD_SIZE", make.size()},
                {"HOROVOD_LOCAL_RANK", make.local_rank()},
                {"HOROVOD_LOCAL_SIZE", make.local_size()},
                {"HOROVOD_CROSS_RANK", text(make.slot.cross_rank)},
                {"HOROVOD_CROSS_SIZE", text(make.slot.cross_size)}});
    if (make.facts.ranks_min > 0) make.fixed({{"HOROVOD_ELASTIC", "1"}});
    if (make.facts.horovod_port != 0)
        make.fixed({{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                    {"HOROVOD_GLOO_RENDEZVOUS_PORT", text(make.facts.horovod_port)}});
}

/// What hvd.init() reads (Horovod 0.28, common/gloo/gloo_context.cc and utils/env_parser.cc).
void add_horovod(Making& make) {
    if (!horovod_asks_mpi(make.user)) add_horovod_places(make);
    make.fallback({{"HOROVOD_CONTROLLER", "gloo"},
                   {"HOROVOD_CPU_OPERATIONS", "gloo"},
                   {"PYTHONUNBUFFERED", "1"}});
    // Not NCCL_SOCKET_IFNAME: NCCL finds the fast network, and the one we came over need not be it.
    if (!make.facts.interface.empty())
        make.fallback({{"HOROVOD_GLOO_IFACE", make.facts.interface}});
}

void add_plain(Making& make) {
    make.fixed({{"RANK", make.rank()},
                {"WORLD_SIZE", make.size()},
                {"LOCAL_RANK", make.local_rank()},
                {"LOCAL_WORLD_SIZE", make.local_size()}});
}

/// What torch.distributed's env:// and programs written for torchrun read, besides the above.
void add_torch(Making& make) {
    const Assign& assign = make.assign;
    const ContractFacts& facts = make.facts;
    const TorchStore store = torch_store_for(assign, facts, make.user);
    const bool served = store != TorchStore::rank0;
    const bool near = store == TorchStore::proxy;
    make.fixed({{"GROUP_RANK", make.node()},
                {"GROUP_WORLD_SIZE", make.nodes()},
                {"ROLE_RANK", make.rank()},
                {"ROLE_WORLD_SIZE", make.size()},
                {"ROLE_NAME", facts.role},
                {"TORCHELASTIC_RESTART_COUNT", text(assign.generation - 1)},
                {"TORCHELASTIC_MAX_RESTARTS", text(facts.max_restarts)},
                {"TORCHELASTIC_RUN_ID", facts.run_id.empty() ? facts.job : facts.run_id},
                {"TORCHELASTIC_USE_AGENT_STORE", served ? "True" : "False"}});
    if (!facts.error_file.empty()) make.fixed({{"TORCHELASTIC_ERROR_FILE", facts.error_file}});
    // Without these, libraries resolve the host's own name, which on many hosts is 127.0.1.1.
    if (!facts.interface.empty())
        make.fallback(
            {{"GLOO_SOCKET_IFNAME", facts.interface}, {"TP_SOCKET_IFNAME", facts.interface}});
    make.fallback({{"MASTER_ADDR", near ? "127.0.0.1" : assign.master_address},
                   {"MASTER_PORT", text(near ? facts.proxy_port : assign.master_port)},
                   {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}});
    if (const std::uint32_t threads = make.threads(); threads > 0)
        make.fallback({{"OMP_NUM_THREADS", text(threads)}});
}

/// What deepspeed.launcher.launch gives besides torch's: node rank, node count, local size.
void add_deepspeed(Making& make) {
    make.fixed({{"CROSS_RANK", make.node()},
                {"CROSS_SIZE", make.nodes()},
                {"LOCAL_SIZE", make.local_size()}});
}

/// As deepspeed.launcher.launch: with slots 2 and 3 of a host, devices 2 and 3 are its first two.
void add_devices(Making& make) {
    if (make.user.contains("CUDA_VISIBLE_DEVICES")) return;  // and "slurm" may have its word
    std::string slots;
    for (const RankSlot& rank : make.assign.ranks)
        slots += (slots.empty() ? "" : ",") + text(rank.slot);
    make.fallback({{"CUDA_VISIBLE_DEVICES", slots}});
}

std::string endpoint(const std::string& address, std::uint32_t port) {
    const bool v6 = address.find(':') != std::string::npos;
    return v6 ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

/// gRPC, by which jax and TensorFlow connect ranks, would ask a proxy for the job's hosts as well.
void add_no_proxy(Making& make) {
    constexpr std::string_view kProxies[] = {"grpc_proxy", "https_proxy", "http_proxy"};
    const auto set = [&](std::string_view name) { return make.user.contains(name); };
    if (std::ranges::none_of(kProxies, set)) return;
    const auto given = make.user.find("no_proxy");
    std::string hosts = given == make.user.end() ? "" : given->second;
    for (const NodePlace& node : make.assign.nodes)
        hosts += (hosts.empty() ? "" : ",") + node.address;
    make.fallback({{"no_grpc_proxy", hosts}});
}

/// jax 0.10 (_src/distributed.py, _src/clusters/): the address is its own variable; for the rest it
/// looks for a cluster that it knows, and Slurm's variables come with this contract.
void add_jax(Making& make) {
    const NodePlace& first = make.assign.nodes.front();
    make.fixed({{"JAX_COORDINATOR_ADDRESS", endpoint(first.address, first.port)},
                {"JAX_NUM_PROCESSES", make.size()},
                {"JAX_PROCESS_ID", make.rank()}});
}

/// TensorFlow 2 (distribute/cluster_resolver/tfconfig_cluster_resolver.py). Worker 0 is the chief.
void add_tensorflow(Making& make) {
    std::string workers;
    for (const NodePlace& node : make.assign.nodes)
        for (std::uint32_t i = 0; i < node.ranks; ++i)
            workers +=
                (workers.empty() ? "" : ",") + json_text(endpoint(node.address, node.port + i));
    const std::string cluster = JsonWriter().raw("worker", "[" + workers + "]").text();
    const std::string task =
        JsonWriter().add("type", "worker").add("index", make.rank_number()).text();
    make.fixed({{"TF_CONFIG", JsonWriter().raw("cluster", cluster).raw("task", task).text()}});
}

/// ps-lite (src/postoffice.cc, src/van.cc). The workers are the first ranks, so that rank 0 is the
/// worker that programs expect to do what is done once; the scheduler waits at the last rank's port.
void add_mxnet(Making& make) {
    const Assign& assign = make.assign;
    if (assign.world_size < 3) return;
    std::uint32_t servers = 1;
    if (const auto asked = make.user.find("DMLC_NUM_SERVER"); asked != make.user.end())
        servers = static_cast<std::uint32_t>(
            to_int(asked->second, 1, assign.world_size - 2).value_or(servers));
    const std::uint32_t workers = assign.world_size - 1 - servers;
    const bool worker = make.rank_number() < workers;
    const bool scheduler = make.rank_number() + 1 == assign.world_size;
    const NodePlace& last = assign.nodes.back();
    make.fixed({{"DMLC_ROLE", worker      ? "worker"
                              : scheduler ? "scheduler"
                                          : "server"},
                {"DMLC_PS_ROOT_URI", last.address},
                {"DMLC_PS_ROOT_PORT", text(last.port + last.ranks - 1)},
                {"DMLC_NUM_SERVER", text(servers)},
                {"DMLC_NUM_WORKER", text(workers)}});
    if (worker) make.fixed({{"DMLC_WORKER_ID", make.rank()}});
    make.fallback({{"DMLC_NODE_HOST", assign.nodes.at(assign.node_rank).address}});
}

Variables openmpi_names(const Making& make) {
    return {{"OMPI_COMM_WORLD_RANK", make.rank()},
            {"OMPI_COMM_WORLD_SIZE", make.size()},
            {"OMPI_COMM_WORLD_LOCAL_RANK", make.local_rank()},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", make.local_size()},
            {"OMPI_COMM_WORLD_NODE_RANK", make.local_rank()}};
}

Variables pmi_names(const Making& make) {
    return {{"PMI_RANK", make.rank()},
            {"PMI_SIZE", make.size()},
            {"MPI_LOCALRANKID", make.local_rank()},
            {"MPI_LOCALNRANKS", make.local_size()}};
}

void add_openmpi_names(Making& make) {
    if (make.has("mpi") && make.facts.mpi.open_mpi) return;  // add_mpi() sets them
    make.fixed(openmpi_names(make));
}

void add_pmi_names(Making& make) {
    if (make.has("mpi") && make.facts.mpi.pmi_fd >= 0) return;  // add_mpi() sets them
    make.fixed(pmi_names(make));
}

/// Everything by which Open MPI, and MPICH and its relatives, find the agent's servers.
void add_mpi(Making& make) {
    const MpiFacts& mpi = make.facts.mpi;
    if (mpi.pmi_fd < 0) return;  // --mpi none
    make.fixed(mpi.pmix);
    make.fixed({{"PMI_FD", text(static_cast<std::uint64_t>(mpi.pmi_fd))}, {"PMI_SPAWNED", "0"}});
    make.fixed(pmi_names(make));
    if (mpi.open_mpi) make.fixed(openmpi_names(make));
    if (!mpi.memory_directory.empty())
        make.fallback({{"OMPI_MCA_btl_vader_backing_directory", mpi.memory_directory},
                       {"OMPI_MCA_btl_sm_backing_directory", mpi.memory_directory},
                       {"OMPI_MCA_osc_sm_backing_directory", mpi.memory_directory},
                       {"OMPI_MCA_osc_rdma_backing_directory", mpi.memory_directory}});
    // What Open MPI chooses itself, once it has looked whether it could make a file in /dev/shm.
    // That file stays there if the process is killed in that moment.
    make.fallback({{"OMPI_MCA_shmem", "mmap"}});
    if (mpi.oversubscribed) make.fallback({{"OMPI_MCA_mpi_yield_when_idle", "1"}});
    // Open MPI must not use interfaces with the same address on several hosts, such as docker0: it
    // would hang.
    if (make.assign.node_count > 1 && !make.facts.interface.empty() &&
        !make.user.contains("OMPI_MCA_btl_tcp_if_exclude"))
        make.fallback({{"OMPI_MCA_btl_tcp_if_include", make.facts.interface}});
}

/// Slurm's ids are numbers, and programs make port numbers of them.
std::string job_number(const std::string& job) {
    const std::string_view part = std::string_view(job).substr(0, 7);
    std::uint32_t number = 1;
    std::from_chars(part.data(), part.data() + part.size(), number, 16);
    return text(number);
}

/// The hosts of a world and their ranks, in Slurm's notation.
struct SlurmWorld {
    std::string nodelist;
    std::string tasks_per_node;
};

/// How many hosts and ranks "4(x2),3" has: 3 and 11.
std::pair<std::uint64_t, std::uint64_t> counted(std::string_view tasks_per_node) {
    constexpr long long kMax = UINT32_MAX;
    std::pair<std::uint64_t, std::uint64_t> sum;
    for (const std::string_view piece : split(tasks_per_node, ',')) {
        const std::size_t open = std::min(piece.find("(x"), piece.size());
        const std::string_view times = piece.substr(open).starts_with("(x")
                                           ? piece.substr(open + 2, piece.size() - open - 3)
                                           : "1";
        const auto hosts = static_cast<std::uint64_t>(to_int(times, 0, kMax).value_or(0));
        sum.first += hosts;
        sum.second +=
            hosts * static_cast<std::uint64_t>(to_int(piece.substr(0, open), 0, kMax).value_or(0));
    }
    return sum;
}

/// How many ranks each host has, by node_rank.
std::vector<std::uint32_t> ranks_of_hosts(const Assign& assign) {
    std::vector<std::uint32_t> ranks(assign.node_count);
    std::uint32_t left = assign.world_size;
    while (left > 0) {
        const std::uint32_t before = left;
        for (const RankBlock& block : assign.rank_map)
            for (std::uint32_t i = 0; i < block.nodes; ++i) {
                if (block.first_node + i >= ranks.size()) return {};
                const std::uint32_t here = std::min(block.ranks, left);
                ranks[block.first_node + i] += here;
                left -= here;
            }
        if (left == before) return {};
    }
    return ranks;
}

/// In the first world of a job that is not elastic what the launcher has said, which is shorter. Hosts of
/// others come, go and change places, also where their number stays, and `dtrun join` knows its own only.
SlurmWorld slurm_world(const Assign& assign, const ContractFacts& facts) {
    const auto [hosts, ranks] = counted(facts.tasks_per_node);
    if (assign.generation == 1 && facts.ranks_min == 0 && hosts == assign.node_count &&
        ranks == assign.world_size)
        return {facts.nodelist, facts.tasks_per_node};
    SlurmWorld world;
    const auto of_hosts = ranks_of_hosts(assign);
    if (of_hosts.empty() || assign.node_names.size() != of_hosts.size()) return world;
    for (std::size_t node = 0; node < of_hosts.size(); ++node) {
        const char* const comma = node == 0 ? "" : ",";
        world.nodelist += comma + assign.node_names[node];
        world.tasks_per_node += comma + text(of_hosts[node]);
    }
    const std::uint32_t first = of_hosts.front();
    if (of_hosts.size() > 1 && std::ranges::count(of_hosts, first) == std::ssize(of_hosts))
        world.tasks_per_node = fmt::format("{}(x{})", first, of_hosts.size());
    return world;
}

/// What `srun` gives a task (srun(1), "Output environment variables"), except SLURM_STEP_ID: with it
/// MPI libraries would look for Slurm's PMI.
void add_slurm(Making& make) {
    const Assign& assign = make.assign;
    const ContractFacts& facts = make.facts;
    std::string ranks_here;
    for (const RankSlot& rank : assign.ranks)
        ranks_here += (ranks_here.empty() ? "" : ",") + text(std::to_underlying(rank.rank));
    make.fixed({{"SLURM_PROCID", make.rank()},
                {"SLURM_LOCALID", make.local_rank()},
                {"SLURM_NODEID", make.node()},
                {"SLURM_GTIDS", ranks_here},
                {"SLURM_NTASKS", make.size()},
                {"SLURM_NPROCS", make.size()},
                {"SLURM_NNODES", make.nodes()},
                {"SLURM_DISTRIBUTION", "arbitrary"},
                {"SLURM_STEP_NUM_NODES", make.nodes()},
                {"SLURM_STEP_NUM_TASKS", make.size()},
                {"SLURMD_NODENAME", facts.host_name}});
    make.fallback({{"SLURM_JOB_ID", job_number(facts.job)},
                   {"SLURM_JOBID", job_number(facts.job)},
                   {"SLURM_JOB_NODELIST", facts.nodelist},
                   {"SLURM_JOB_NUM_NODES", make.nodes()},
                   {"SLURM_LAUNCH_NODE_IPADDR", assign.master_address}});
    const SlurmWorld world = slurm_world(assign, facts);
    if (!world.nodelist.empty())
        make.fixed({{"SLURM_STEP_NODELIST", world.nodelist},
                    {"SLURM_NODELIST", world.nodelist},
                    {"SLURM_TASKS_PER_NODE", world.tasks_per_node},
                    {"SLURM_STEP_TASKS_PER_NODE", world.tasks_per_node}});
    if (!world.nodelist.empty() && world.tasks_per_node.find(',') == std::string::npos)
        make.fixed({{"SLURM_NTASKS_PER_NODE", make.local_size()}});
    make.fixed(devices_of_task(make.user, std::to_underlying(make.slot.place)));
}

/// A contract's own part; what contracts share is set once.
struct Part {
    std::string_view contract;
    void (*add)(Making& make);
};

constexpr Part kParts[] = {
    {"dtrun", add_dtrun},
    {"horovod", add_horovod},
    {"torch", add_torch},
    {"deepspeed", add_deepspeed},
    {"devices", add_devices},
    {"accelerate-cpu",
     [](Making& make) {
         make.fallback({{"ACCELERATE_USE_CPU", "true"}});
     }},
    {"jax", add_jax},
    {"tensorflow", add_tensorflow},
    {"mxnet", add_mxnet},
    {"mpi", add_mpi},
    {"openmpi-names", add_openmpi_names},
    {"pmi-names", add_pmi_names},
    {"slurm", add_slurm},
};

}  // namespace

TorchStore torch_store_for(const Assign& assign, const ContractFacts& facts,
                           const Environment& user) {
    const bool asked = std::ranges::find(facts.contracts, "torch") != facts.contracts.end();
    const bool elsewhere = user.contains("MASTER_ADDR") || user.contains("MASTER_PORT");
    const bool alone = assign.world_size == 1;
    return !asked || elsewhere || alone ? TorchStore::rank0 : facts.torch_store;
}

ContractVariables contract_variables(const Assign& assign, const RankSlot& slot,
                                     const ContractFacts& facts, const Environment& user) {
    const bool knows_nodes = assign.nodes.size() == assign.node_count;
    Making make{assign, slot, facts, user};
    if (make.has("torch") || make.has("plain")) add_plain(make);
    if (knows_nodes && (make.has("jax") || make.has("tensorflow"))) add_no_proxy(make);
    for (const Part& part : kParts)
        if (make.has(part.contract) && (knows_nodes || !find_contract(part.contract)->needs_nodes))
            part.add(make);
    return std::move(make.set);
}

std::vector<std::string> names_of_rank(const ContractVariables& variables) {
    constexpr std::string_view kKnownBefore[] = {"ACCELERATE_USE_CPU",
                                                 "CUDA_VISIBLE_DEVICES",
                                                 "DTRUN_AGENT",
                                                 "GPU_DEVICE_ORDINAL",
                                                 "HIP_VISIBLE_DEVICES",
                                                 "ROCR_VISIBLE_DEVICES",
                                                 "ZE_AFFINITY_MASK",
                                                 "DTRUN_JOB",
                                                 "HOROVOD_CONTROLLER",
                                                 "HOROVOD_CPU_OPERATIONS",
                                                 "OMP_NUM_THREADS",
                                                 "PYTHONUNBUFFERED",
                                                 "TORCH_NCCL_ASYNC_ERROR_HANDLING"};
    std::vector<std::string> names;
    for (const Variables* part : {&variables.fixed, &variables.defaults})
        for (const auto& [name, value] : *part)
            if (std::ranges::find(kKnownBefore, name) == std::end(kKnownBefore))
                names.push_back(name);
    std::ranges::sort(names);
    return names;
}

}  // namespace dtrun::contracts
