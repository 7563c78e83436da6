// Accelerate, Lightning, JAX, TensorFlow and MXNet on two hosts, for the price of variables. The
// programs are in frameworks/others_*.py; none of them knows dtrun.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include <fmt/format.h>
#include <cstdlib>
#include <filesystem>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_other_frameworks {

constexpr int kHosts = 2;
constexpr const char* kFour = "s1:2,s2:2";
constexpr const char* kPython = DTRUN_FRAMEWORKS "/torch/bin/python";
constexpr const char* kOldNumpy = DTRUN_FRAMEWORKS "/mxnet/bin/python";
/// Imports of four such programs at once take most of it.
constexpr milliseconds kLimit{240'000};

std::string script(const std::string& name) {
    return std::string(DTRUN_CLUSTER_DIR) + "/frameworks/others_" + name + ".py";
}

/// Whether a test can be run; else it says so, and fails in CI.
bool has(Cluster& cluster, const std::string& python, const std::string& module) {
    const std::string look = fmt::format(
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('{}') is None)", module);
    const bool there =
        fs::exists(python) && cluster.run("head", {python, "-c", look}).exit_code == 0;
    if (!there) skip_case(fmt::format("{} has no {}", python, module));
    return there;
}

Finished run_program(Cluster& cluster, Lines words, const Lines& program) {
    words.insert(words.end(), program.begin(), program.end());
    RunOptions options;
    options.timeout = kLimit;
    return cluster.dtrun(std::move(words), options);
}

/// Runs a program as four ranks on two hosts and compares what each of them has printed.
void prints(Cluster& cluster, Lines words, const Lines& program, const Lines& expected) {
    const Lines hosts{"-np", "4", "-H", kFour};
    words.insert(words.begin(), hosts.begin(), hosts.end());
    const Finished done = run_program(cluster, std::move(words), program);
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    const auto printed = by_rank(done.out);
    for (std::size_t rank = 0; rank < expected.size(); ++rank) {
        REQUIRE(printed.contains(static_cast<int>(rank)));
        CHECK_THAT(printed.at(static_cast<int>(rank)), Contains(expected[rank] + "\n"));
    }
    CHECK(cluster.wait_all_gone());
}

Lines for_each_rank(std::string_view format) {
    Lines lines;
    for (int rank = 0; rank < 4; ++rank)
        lines.push_back(fmt::format(fmt::runtime(format), fmt::arg("rank", rank),
                                    fmt::arg("local", rank % 2), fmt::arg("host", rank / 2)));
    return lines;
}

TEST_CASE("a program for Accelerate forms one group of processors over two hosts",
          "[cluster][frameworks][accelerate]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has(cluster, kPython, "accelerate")) return;
    prints(cluster, {"--contract", "accelerate-cpu"}, {kPython, script("accelerate")},
           for_each_rank("accelerate rank {rank} of 4, local rank {local}, MULTI_CPU, sum 10"));
}

TEST_CASE("accelerate launch --cpu starts one process, and dtrun as many of it as are wanted",
          "[cluster][frameworks][accelerate]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has(cluster, kPython, "accelerate")) return;
    prints(cluster, {},
           {kPython, "-m", "accelerate.commands.launch", "--cpu", script("accelerate")},
           for_each_rank("accelerate rank {rank} of 4, local rank {local}, MULTI_CPU, sum 10"));
}

TEST_CASE("accelerate launch starts processes of its own below one rank of each host",
          "[cluster][frameworks][accelerate]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has(cluster, kPython, "accelerate")) return;
    // --multi_gpu is what makes it call torchrun; the contract keeps the program on processors.
    const std::string launch = fmt::format(
        "exec {} -m accelerate.commands.launch --multi_gpu --num_machines $GROUP_WORLD_SIZE "
        "--num_processes 4 --machine_rank $GROUP_RANK --main_process_ip $MASTER_ADDR "
        "--main_process_port $MASTER_PORT --num_cpu_threads_per_process 1 {}",
        kPython, script("accelerate"));
    const Finished done = run_program(
        cluster, {"-np", "2", "-H", "s1,s2", "--store", "rank0", "--contract", "accelerate-cpu"},
        {"sh", "-c", launch});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    const auto printed = by_rank(done.out);
    for (int rank = 0; rank < 4; ++rank) {
        REQUIRE(printed.contains(rank / 2));
        CHECK_THAT(printed.at(rank / 2),
                   Contains(fmt::format("accelerate rank {} of 4, local rank {}, MULTI_CPU, sum 10",
                                        rank, rank % 2)));
    }
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a program for Lightning takes its ranks for torchrun's",
          "[cluster][frameworks][lightning]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has(cluster, kPython, "lightning")) return;
    prints(cluster, {}, {kPython, script("lightning")},
           for_each_rank("lightning rank {rank} of 4, local rank {local}, node {host}, "
                         "TorchElasticEnvironment"));
}

TEST_CASE("jax.distributed.initialize() needs no arguments", "[cluster][frameworks][jax]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has(cluster, kPython, "jax")) return;
    prints(cluster, {"--contract", "jax"}, {kPython, script("jax")},
           for_each_rank("jax rank {rank} of 4, 4 devices, sum 10"));
}

TEST_CASE("TensorFlow's workers find each other", "[cluster][frameworks][tensorflow]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has(cluster, kPython, "tensorflow")) return;
    Lines expected = for_each_rank("tensorflow rank {rank} of 4, worker, sum 10");
    expected[0] = "tensorflow rank 0 of 4, chief, sum 10";
    prints(cluster, {"--contract", "tensorflow"}, {kPython, script("tensorflow")}, expected);
}

TEST_CASE("MXNet's ranks are two workers, a server and a scheduler",
          "[cluster][frameworks][mxnet]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has(cluster, kOldNumpy, "mxnet")) return;
    prints(cluster, {"--contract", "none,mxnet"}, {kOldNumpy, script("mxnet")},
           {"mxnet worker 0 of 2, sum 3", "mxnet worker 1 of 2, sum 3"});
}

TEST_CASE("two ranks are too few for MXNet, and none is started", "[cluster][frameworks][mxnet]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun({"-np", "2", "-H", "s1,s2", "--contract", "mxnet", "true"});
    CHECK(done.exit_code == 200);
    CHECK_THAT(done.err, Contains("contract \"mxnet\" needs at least 3 ranks, not 2"));
}

}  // namespace test_other_frameworks
