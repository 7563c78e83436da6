#include "worker/contract.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

namespace dtrun {
namespace {

/// Rank 5: second of three on the second of two hosts.
ContractVariables sample(const ContractFacts& facts = {"cafe", "s2", "@dtrun-1", "eth1"}) {
    Assign assign;
    assign.generation = 2;
    assign.world_size = 7;
    assign.node_rank = 1;
    assign.node_count = 2;
    assign.master_address = "10.0.0.1";
    assign.master_port = 20'123;
    assign.ranks = {{4, 0, 1, 2, 0}, {5, 1, 1, 2, 3}, {6, 2, 0, 1, 4}};
    return contract_variables(assign, assign.ranks[1], facts);
}

std::map<std::string, std::string> as_map(const Variables& variables) {
    std::map<std::string, std::string> map;
    for (const auto& [name, value] : variables) {
        INFO(name << " is set twice");
        CHECK(map.emplace(name, value).second);
    }
    return map;
}

}  // namespace

TEST_CASE("a rank finds its place in the words of each launcher", "[contract]") {
    const auto fixed = as_map(sample().fixed);
    const std::map<std::string, std::string> expected{{"DTRUN_JOB", "cafe"},
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
                                                      {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                                      {"TORCHELASTIC_RUN_ID", "cafe"},
                                                      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
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
                                                         {"PYTHONUNBUFFERED", "1"},
                                                         {"MASTER_ADDR", "10.0.0.1"},
                                                         {"MASTER_PORT", "20123"},
                                                         {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                                         {"OMP_NUM_THREADS", "1"}});
}

TEST_CASE("a rank finds its place in Slurm's words where they are asked for", "[contract]") {
    ContractFacts facts{"00000abcdef", "s2", "@dtrun-1", "eth1"};
    facts.slurm = true;
    facts.slurm_nodelist = "s[1-2]";
    facts.slurm_tasks_per_node = "4,3";
    facts.cpus_per_rank = 8;
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
                                            {"SLURM_STEP_NODELIST", "s[1-2]"},
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

}  // namespace dtrun
