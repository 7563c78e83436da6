#include "contracts/variables.h"

#include "contracts/table.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"
#include "worker/mpi/pmix_environment.h"

#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace dtrun {

using namespace contracts;
using namespace mpi;
namespace {

std::vector<std::string> effective(std::vector<std::string> named, bool in_slurm = false) {
    auto names = effective_contracts(named, in_slurm);
    REQUIRE(names.has_value());
    return *names;
}

/// Seven ranks, four on the first of two hosts and three on the second.
Assign second_host() {
    Assign assign;
    assign.generation = 2;
    assign.world_size = 7;
    assign.node_rank = 1;
    assign.node_count = 2;
    assign.master_address = "10.0.0.1";
    assign.master_port = 20'123;
    assign.ranks = {{Rank{4}, 0, 1, 2, 0}, {Rank{5}, 1, 1, 2, 3}, {Rank{6}, 2, 0, 1, 4}};
    assign.nodes = {{"10.0.0.1", 20'124, 4}, {"10.0.0.2", 21'000, 3}};
    assign.node_names = {"s1", "s2"};
    assign.rank_map = {{0, 1, 4}, {1, 1, 3}};
    return assign;
}

ContractFacts default_facts(std::vector<std::string> named = {}) {
    ContractFacts facts{{}, "00000abcdef", "s2", "@dtrun-1", "eth1", effective(std::move(named))};
    facts.agent = 7;
    facts.horovod_port = 4'711;
    facts.proxy_port = 5'000;
    facts.max_restarts = 3;
    facts.threads = {4};
    facts.nodelist = "s[1-2]";
    facts.tasks_per_node = "4,3";
    return facts;
}

/// Of rank 5, which is in the middle of the second host.
ContractVariables sample(const ContractFacts& facts = default_facts(),
                         const Environment& user = {}) {
    const Assign assign = second_host();
    return contract_variables(assign, assign.ranks[1], facts, user);
}

std::map<std::string, std::string> as_map(const Variables& variables) {
    std::map<std::string, std::string> map;
    for (const auto& [name, value] : variables) {
        INFO(name << " is set twice");
        CHECK(map.emplace(name, value).second);
    }
    return map;
}

/// Fixed ones and defaults together: as a user's program finds them who has set nothing.
std::map<std::string, std::string> all_of(const ContractVariables& set) {
    std::map<std::string, std::string> all = as_map(set.fixed);
    for (const auto& [name, value] : as_map(set.defaults)) {
        INFO(name << " is fixed and a default");
        CHECK(all.emplace(name, value).second);
    }
    return all;
}

}  // namespace

TEST_CASE("a rank finds its place in the words of each launcher", "[contract]") {
    const auto fixed = as_map(sample().fixed);
    const std::map<std::string, std::string> expected{{"DTRUN_JOB", "00000abcdef"},
                                                      {"DTRUN_AGENT", "7"},
                                                      {"DTRUN_GENERATION", "2"},
                                                      {"DTRUN_RANK", "5"},
                                                      {"DTRUN_SIZE", "7"},
                                                      {"DTRUN_LOCAL_RANK", "1"},
                                                      {"DTRUN_LOCAL_SIZE", "3"},
                                                      {"DTRUN_CROSS_RANK", "1"},
                                                      {"DTRUN_CROSS_SIZE", "2"},
                                                      {"DTRUN_SLOT", "3"},
                                                      {"DTRUN_HOST", "s2"},
                                                      {"DTRUN_SOCKET", "@dtrun-1"},
                                                      {"HOROVOD_HOSTNAME", "s2"},
                                                      {"HOROVOD_RANK", "5"},
                                                      {"HOROVOD_SIZE", "7"},
                                                      {"HOROVOD_LOCAL_RANK", "1"},
                                                      {"HOROVOD_LOCAL_SIZE", "3"},
                                                      {"HOROVOD_CROSS_RANK", "1"},
                                                      {"HOROVOD_CROSS_SIZE", "2"},
                                                      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                                                      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"},
                                                      {"RANK", "5"},
                                                      {"WORLD_SIZE", "7"},
                                                      {"LOCAL_RANK", "1"},
                                                      {"LOCAL_WORLD_SIZE", "3"},
                                                      {"GROUP_RANK", "1"},
                                                      {"GROUP_WORLD_SIZE", "2"},
                                                      {"ROLE_RANK", "5"},
                                                      {"ROLE_WORLD_SIZE", "7"},
                                                      {"ROLE_NAME", "default"},
                                                      {"TORCHELASTIC_RESTART_COUNT", "1"},
                                                      {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                                      {"TORCHELASTIC_RUN_ID", "00000abcdef"},
                                                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                      {"CROSS_RANK", "1"},
                                                      {"CROSS_SIZE", "2"},
                                                      {"LOCAL_SIZE", "3"}};
    CHECK(fixed == expected);
}

TEST_CASE("what the user may know better is only a default", "[contract]") {
    const auto defaults = as_map(sample().defaults);
    CHECK(defaults == std::map<std::string, std::string>{{"HOROVOD_CONTROLLER", "gloo"},
                                                         {"HOROVOD_CPU_OPERATIONS", "gloo"},
                                                         {"HOROVOD_GLOO_IFACE", "eth1"},
                                                         {"GLOO_SOCKET_IFNAME", "eth1"},
                                                         {"TP_SOCKET_IFNAME", "eth1"},
                                                         {"PYTHONUNBUFFERED", "1"},
                                                         {"MASTER_ADDR", "10.0.0.1"},
                                                         {"MASTER_PORT", "20123"},
                                                         {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                                         {"OMP_NUM_THREADS", "4"}});
}

TEST_CASE("Horovod that is to use MPI finds no signs of Gloo", "[contract][mpi]") {
    for (const char* mpi : {"mpi", "MPI"})
        for (const auto& [name, value] :
             all_of(sample(default_facts(), {{"HOROVOD_CONTROLLER", mpi}}))) {
            INFO(name);
            CHECK((!name.starts_with("HOROVOD_") || name == "HOROVOD_GLOO_IFACE" ||
                   name == "HOROVOD_CONTROLLER" || name == "HOROVOD_CPU_OPERATIONS"));
        }
    CHECK(
        all_of(sample(default_facts(), {{"HOROVOD_CONTROLLER", "gloo"}})).contains("HOROVOD_RANK"));
}

TEST_CASE("a rank that may use MPI finds the agent's servers", "[contract][mpi]") {
    ContractFacts facts = default_facts();
    facts.mpi.pmix = {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "dtrun-1"}};
    facts.mpi.pmi_fd = 17;
    const auto environment = all_of(sample(facts));
    CHECK(environment.at("PMIX_RANK") == "5");
    CHECK(environment.at("PMI_FD") == "17");
    CHECK(environment.at("PMI_RANK") == "5");
    CHECK(environment.at("PMI_SIZE") == "7");
    CHECK(environment.at("MPI_LOCALNRANKS") == "3");
    CHECK(environment.at("OMPI_MCA_btl_tcp_if_include") == "eth1");
    CHECK(environment.at("OMPI_MCA_shmem") == "mmap");
    CHECK_FALSE(all_of(sample()).contains("OMPI_MCA_btl_tcp_if_include"));  // MPI is not offered
    for (const char* const name : {"OMPI_COMM_WORLD_RANK", "OMPI_MCA_mpi_yield_when_idle",
                                   "OMPI_MCA_btl_vader_backing_directory"})
        CHECK_FALSE(environment.contains(name));

    facts.mpi.open_mpi = facts.mpi.oversubscribed = true;
    facts.mpi.memory_directory = "/dev/shm/dtrun-x";
    facts.contracts = effective({"openmpi-names,pmi-names"});
    const auto more = all_of(sample(facts, {{"OMPI_MCA_btl_tcp_if_exclude", "docker0"}}));
    CHECK(more.at("OMPI_COMM_WORLD_LOCAL_RANK") == "1");
    CHECK(more.at("OMPI_MCA_mpi_yield_when_idle") == "1");
    CHECK(more.at("OMPI_MCA_btl_vader_backing_directory") == "/dev/shm/dtrun-x");
    CHECK(more.at("OMPI_MCA_btl_sm_backing_directory") == "/dev/shm/dtrun-x");
    CHECK_FALSE(more.contains("OMPI_MCA_btl_tcp_if_include"));
}

TEST_CASE("a rank finds its place in Slurm's words where they are asked for", "[contract]") {
    ContractFacts facts = default_facts({"slurm"});
    facts.threads = {8};
    const auto fixed = as_map(sample(facts).fixed);
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"SLURM_PROCID", "5"},
                                            {"SLURM_LOCALID", "1"},
                                            {"SLURM_NODEID", "1"},
                                            {"SLURM_GTIDS", "4,5,6"},
                                            {"SLURM_NTASKS", "7"},
                                            {"SLURM_NPROCS", "7"},
                                            {"SLURM_NNODES", "2"},
                                            {"SLURM_TASKS_PER_NODE", "4,3"},
                                            {"SLURM_STEP_NODELIST", "s1,s2"},
                                            {"SLURM_NODELIST", "s1,s2"},
                                            {"SLURM_DISTRIBUTION", "arbitrary"},
                                            {"SLURM_STEP_NUM_TASKS", "7"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                                            {"SLURMD_NODENAME", "s2"}}) {
        INFO(name);
        CHECK(fixed.at(name) == value);
    }
    CHECK_FALSE(fixed.contains("SLURM_NTASKS_PER_NODE"));  // they differ
    CHECK_FALSE(fixed.contains("SLURM_STEP_ID"));
    const auto defaults = as_map(sample(facts).defaults);
    CHECK(defaults.at("SLURM_JOB_ID") == "171");  // 0x00000ab
    CHECK(defaults.at("SLURM_JOB_NODELIST") == "s[1-2]");
    CHECK(defaults.at("OMP_NUM_THREADS") == "8");
}

TEST_CASE("of a world that has changed a rank hears no hosts of the one before",
          "[contract][slurm]") {
    const ContractFacts facts = default_facts({"slurm"});
    Assign world = second_host();
    world.generation = 1;
    const auto first = all_of(contract_variables(world, world.ranks[0], facts, {}));
    CHECK(first.at("SLURM_STEP_NODELIST") == "s[1-2]");
    world.generation = 2;  // s1 is lost, and s3 has come: as many hosts and ranks as before
    world.node_names = {"s2", "s3"};
    world.rank_map = {{0, 1, 3}, {1, 1, 4}};
    world.nodes.clear();
    const auto other = all_of(contract_variables(world, world.ranks[0], facts, {}));
    CHECK(other.at("SLURM_STEP_NODELIST") == "s2,s3");
    CHECK(other.at("SLURM_NODELIST") == "s2,s3");
    CHECK(other.at("SLURM_TASKS_PER_NODE") == "3,4");
    CHECK(other.at("SLURM_STEP_TASKS_PER_NODE") == "3,4");
    world.rank_map = {{0, 2, 1}};  // ranks in turn, until every rank has its host
    const auto in_turn = all_of(contract_variables(world, world.ranks[0], facts, {}));
    CHECK(in_turn.at("SLURM_TASKS_PER_NODE") == "4,3");
}

TEST_CASE("torch's ranks are clients where an agent serves the store", "[contract][torch]") {
    const auto environment = [](TorchStore store, const Environment& user = {}) {
        ContractFacts facts = default_facts();
        facts.torch_store = store;
        return all_of(sample(facts, user));
    };
    const auto agent = environment(TorchStore::agent);
    CHECK(agent.at("TORCHELASTIC_USE_AGENT_STORE") == "True");
    CHECK(agent.at("MASTER_ADDR") == "10.0.0.1");
    CHECK(agent.at("MASTER_PORT") == "20123");
    const auto proxy = environment(TorchStore::proxy);
    CHECK(proxy.at("TORCHELASTIC_USE_AGENT_STORE") == "True");
    CHECK(proxy.at("MASTER_ADDR") == "127.0.0.1");
    CHECK(proxy.at("MASTER_PORT") == "5000");
    const auto rank0 = environment(TorchStore::rank0);
    CHECK(rank0.at("TORCHELASTIC_USE_AGENT_STORE") == "False");
    CHECK(rank0.at("MASTER_ADDR") == "10.0.0.1");
    CHECK(rank0.at("MASTER_PORT") == "20123");
}

TEST_CASE("rank 0 hosts torch's store where the user says where", "[contract][torch]") {
    ContractFacts facts = default_facts();
    facts.torch_store = TorchStore::proxy;
    for (const Environment& user :
         {Environment{{"MASTER_ADDR", "10.9.9.9"}}, Environment{{"MASTER_PORT", "29500"}}}) {
        CHECK(torch_store_for(second_host(), facts, user) == TorchStore::rank0);
        const auto environment = all_of(sample(facts, user));
        CHECK(environment.at("TORCHELASTIC_USE_AGENT_STORE") == "False");
        // The half that the user has left open must not lead to the proxy.
        CHECK(environment.at("MASTER_ADDR") == "10.0.0.1");
        CHECK(environment.at("MASTER_PORT") == "20123");
    }
    CHECK(torch_store_for(second_host(), facts, {{"PATH", "/bin"}}) == TorchStore::proxy);
}

TEST_CASE("one rank alone may host a store of torch for workers of its own", "[contract][torch]") {
    Assign alone;
    alone.generation = 1;
    alone.world_size = alone.node_count = 1;
    alone.master_address = "127.0.0.1";
    alone.master_port = 20'123;
    alone.ranks = {{Rank{0}, 0, 0, 1, 0}};
    const ContractFacts facts = default_facts();
    CHECK(torch_store_for(alone, facts, {}) == TorchStore::rank0);
    const auto environment = all_of(contract_variables(alone, alone.ranks[0], facts, {}));
    CHECK(environment.at("TORCHELASTIC_USE_AGENT_STORE") == "False");
}

TEST_CASE("nobody serves torch's store where torch's contract is not asked for",
          "[contract][torch]") {
    const ContractFacts facts = default_facts({"none,plain"});
    CHECK(torch_store_for(second_host(), facts, {}) == TorchStore::rank0);
    const auto environment = all_of(sample(facts));
    CHECK(environment.at("RANK") == "5");
    CHECK(environment.at("LOCAL_WORLD_SIZE") == "3");
    CHECK_FALSE(environment.contains("MASTER_ADDR"));
    CHECK_FALSE(environment.contains("TORCHELASTIC_RUN_ID"));
}

TEST_CASE("torchrun's names and files are passed on", "[contract][torch]") {
    ContractFacts facts = default_facts();
    CHECK_FALSE(all_of(sample(facts)).contains("TORCHELASTIC_ERROR_FILE"));
    facts.run_id = "night-run";
    facts.role = "trainer";
    facts.error_file = "/tmp/error.json";
    const auto fixed = as_map(sample(facts).fixed);
    CHECK(fixed.at("TORCHELASTIC_RUN_ID") == "night-run");
    CHECK(fixed.at("ROLE_NAME") == "trainer");
    CHECK(fixed.at("TORCHELASTIC_ERROR_FILE") == "/tmp/error.json");
}

TEST_CASE("Horovod is not sent to a store that nobody serves", "[contract][horovod]") {
    ContractFacts facts = default_facts();
    facts.horovod_port = 0;
    CHECK_FALSE(all_of(sample(facts)).contains("HOROVOD_GLOO_RENDEZVOUS_ADDR"));
    CHECK_FALSE(all_of(sample(facts)).contains("HOROVOD_GLOO_RENDEZVOUS_PORT"));
}

TEST_CASE("DeepSpeed's devices are the host's slots, where it is named", "[contract][deepspeed]") {
    CHECK_FALSE(all_of(sample()).contains("CUDA_VISIBLE_DEVICES"));
    const auto defaults = as_map(sample(default_facts({"deepspeed"})).defaults);
    CHECK(defaults.at("CUDA_VISIBLE_DEVICES") == "0,3,4");
}

TEST_CASE("accelerate uses processors only where that is asked for", "[contract][accelerate]") {
    CHECK_FALSE(all_of(sample()).contains("ACCELERATE_USE_CPU"));
    const auto defaults = as_map(sample(default_facts({"accelerate-cpu"})).defaults);
    CHECK(defaults.at("ACCELERATE_USE_CPU") == "true");
}

TEST_CASE("jax finds its coordinator on rank 0's host, beside torch's store", "[contract][jax]") {
    const auto fixed = as_map(sample(default_facts({"jax"})).fixed);
    CHECK(fixed.at("JAX_COORDINATOR_ADDRESS") == "10.0.0.1:20124");
    CHECK(fixed.at("JAX_NUM_PROCESSES") == "7");
    CHECK(fixed.at("JAX_PROCESS_ID") == "5");
    CHECK(fixed.at("SLURM_PROCID") == "5");  // which is where jax itself looks

    Assign assign = second_host();
    assign.nodes[0].address = "fd00::1";
    const auto over_v6 = contract_variables(assign, assign.ranks[0], default_facts({"jax"}), {});
    CHECK(as_map(over_v6.fixed).at("JAX_COORDINATOR_ADDRESS") == "[fd00::1]:20124");
}

TEST_CASE("TensorFlow finds every rank in TF_CONFIG", "[contract][tensorflow]") {
    const auto fixed = as_map(sample(default_facts({"tensorflow"})).fixed);
    const boost::json::value expected = {
        {"cluster",
         {{"worker",
           {"10.0.0.1:20124", "10.0.0.1:20125", "10.0.0.1:20126", "10.0.0.1:20127",
            "10.0.0.2:21000", "10.0.0.2:21001", "10.0.0.2:21002"}}}},
        {"task", {{"type", "worker"}, {"index", 5}}}};
    CHECK(boost::json::parse(fixed.at("TF_CONFIG")) == expected);
}

TEST_CASE("no proxy is asked for the job's own hosts", "[contract][jax][tensorflow]") {
    for (const std::string contract : {"jax", "tensorflow"}) {
        const ContractFacts facts = default_facts({contract});
        const auto value = [&](const Environment& user) {
            const auto defaults = as_map(sample(facts, user).defaults);
            const auto found = defaults.find("no_grpc_proxy");
            return found == defaults.end() ? "not set" : found->second;
        };
        CHECK(value({}) == "not set");
        CHECK(value({{"no_proxy", "localhost"}}) == "not set");
        CHECK(value({{"https_proxy", "http://proxy:3128"}}) == "10.0.0.1,10.0.0.2");
        CHECK(value({{"http_proxy", "http://proxy:3128"}, {"no_proxy", "localhost"}}) ==
              "localhost,10.0.0.1,10.0.0.2");
    }
    CHECK_FALSE(all_of(sample(default_facts(), {{"http_proxy", "http://proxy:3128"}}))
                    .contains("no_grpc_proxy"));
}

TEST_CASE("ps-lite finds workers first, then servers, and a scheduler last", "[contract][mxnet]") {
    const Assign assign = second_host();
    const auto roles = [&](const Environment& user) {
        std::string list;
        for (const RankSlot& slot : assign.ranks) {
            const auto set = contract_variables(assign, slot, default_facts({"mxnet"}), user);
            const auto environment = all_of(set);
            CHECK(environment.at("DMLC_PS_ROOT_URI") == "10.0.0.2");
            CHECK(environment.at("DMLC_PS_ROOT_PORT") == "21002");  // the last rank's own
            CHECK(environment.at("DMLC_NODE_HOST") == "10.0.0.2");
            const std::string& role = environment.at("DMLC_ROLE");
            CHECK(environment.contains("DMLC_WORKER_ID") == (role == "worker"));
            list += role + environment.at("DMLC_NUM_SERVER") + environment.at("DMLC_NUM_WORKER");
            list += ' ';
        }
        return list;
    };
    CHECK(roles({}) == "worker15 server15 scheduler15 ");
    CHECK(roles({{"DMLC_NUM_SERVER", "2"}}) == "server24 server24 scheduler24 ");
    CHECK(roles({{"DMLC_NUM_SERVER", "6"}}) == "worker15 server15 scheduler15 ");  // no worker left
    CHECK(roles({{"DMLC_NUM_SERVER", "many"}}) == "worker15 server15 scheduler15 ");
}

TEST_CASE("contracts of programs that need all hosts wait until these are known", "[contract]") {
    Assign assign = second_host();
    assign.nodes.clear();
    const ContractFacts facts = default_facts({"jax,tensorflow,mxnet"});
    const auto environment = all_of(contract_variables(assign, assign.ranks[0], facts, {}));
    CHECK_FALSE(environment.contains("JAX_PROCESS_ID"));
    CHECK_FALSE(environment.contains("TF_CONFIG"));
    CHECK_FALSE(environment.contains("DMLC_ROLE"));
}

TEST_CASE("any two contracts agree on what both set", "[contract]") {
    for (const Contract& one : all_contracts()) {
        const auto first = all_of(sample(default_facts({"none", std::string(one.name)})));
        for (const Contract& other : all_contracts()) {
            INFO(one.name << " and " << other.name);
            const auto second = all_of(sample(default_facts({"none", std::string(other.name)})));
            const auto both = all_of(
                sample(default_facts({"none", std::string(one.name), std::string(other.name)})));
            for (const auto& [name, value] : first) CHECK(both.at(name) == value);
            for (const auto& [name, value] : second) CHECK(both.at(name) == value);
        }
    }
}

TEST_CASE("what a contract sets is in the table, of the same kind", "[contract]") {
    ContractFacts facts = default_facts();
    facts.error_file = "/tmp/error.json";
    facts.encrypt = true;
    facts.ranks_min = 2;
    facts.ranks_max = 9;
    facts.change_file = "/dev/shm/dtrun-x/change";
    PmixEnvironment pmix{"dtrun-1", 4'712, "s2", "/dev/shm/dtrun-x", "4.2.2", 77};
    pmix.shared_memory = true;
    facts.mpi = {pmix.variables(4), 17, "/dev/shm/dtrun-x", true, true, false};
    for (const Contract& contract : all_contracts()) {
        INFO(contract.name);
        facts.contracts = effective({"none", std::string(contract.name)});
        std::set<std::string> fixed_in_table, fallback_in_table;
        for (const std::string& name : facts.contracts)
            for (const ContractVariable& variable : find_contract(name)->variables)
                (variable.kind == ContractVariable::Kind::fixed ? fixed_in_table
                                                                : fallback_in_table)
                    .insert(std::string(variable.name));
        Assign assign = second_host();
        Environment user{{"http_proxy", "http://proxy:3128"}};
        if (std::ranges::find(facts.contracts, "slurm") != facts.contracts.end()) {
            assign.world_size = 6;
            assign.rank_map = {{0, 2, 3}};  // as many on each host
            user["SLURM_GPUS_PER_TASK"] = "1";
            for (const char* const list :
                 {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                  "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "SLURM_STEP_GPUS"})
                user[list] = "0,1";
        }
        const ContractVariables set = contract_variables(assign, assign.ranks[0], facts, user);
        std::set<std::string> fixed, fallback;
        for (const auto& [name, value] : set.fixed) fixed.insert(name);
        for (const auto& [name, value] : set.defaults) fallback.insert(name);
        CHECK(fixed == fixed_in_table);
        CHECK(fallback == fallback_in_table);
    }
}

TEST_CASE("docs/ENVIRONMENT.md names every variable of every contract", "[contract]") {
    std::ifstream file(DTRUN_ENVIRONMENT_MD);
    std::stringstream text;
    text << file.rdbuf();
    const std::string document = text.str();
    REQUIRE_FALSE(document.empty());
    for (const Contract& contract : all_contracts()) {
        INFO(contract.name);
        CHECK(document.find(fmt::format("`{}`", contract.name)) != std::string::npos);
        for (const ContractVariable& variable : contract.variables) {
            INFO(variable.name);
            CHECK(document.find(fmt::format("`{}`", variable.name)) != std::string::npos);
        }
    }
}

}  // namespace dtrun
