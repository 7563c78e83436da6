// Slurm on the cluster is a real one, and a test leaves nothing of it to the next.
#include "base/strings.h"
#include "tests/cluster/support/cluster.h"
#include "tests/cluster/support/ranks.h"
#include "tests/cluster/support/slurm.h"
#include "tests/support/catch.h"

#include <chrono>

using namespace dtrun;
using namespace dtrun::cluster;

namespace test_slurm_harness {

constexpr int kHosts = 4;

bool is_sleep(const Process& process) {
    return process.name == "sleep";
}

/// A job of all nodes that runs until it is told to end.
constexpr const char* kSleepEverywhere = "#!/bin/sh\nsrun sleep 600\n";

void wait_sleeping(const Cluster& cluster, const std::vector<std::string>& hosts) {
    for (const std::string& host : hosts) {
        INFO(host);
        REQUIRE(wait_until([&] { return !cluster.wait_gone(host, is_sleep, milliseconds(0)); },
                           milliseconds(10'000)));
    }
}

TEST_CASE("Slurm is up in seconds, and in a moment when it is up", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto start = std::chrono::steady_clock::now();
    Slurm first(cluster);
    const auto up = std::chrono::steady_clock::now();
    Slurm again(cluster);
    const std::chrono::duration<double> once = up - start;
    const std::chrono::duration<double> twice = std::chrono::steady_clock::now() - up;
    WARN("Slurm was up in " << once.count() << " s, then in " << twice.count() << " s");
    CHECK(once.count() < 30);
    CHECK(twice.count() < 5);
    CHECK(cluster.leftovers().empty());
    CHECK(cluster.processes("head").empty());
}

TEST_CASE("sinfo shows four nodes of unequal size", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const Finished sinfo = cluster.run("head", {"sinfo", "-hN", "-o", "%N %c %G %T"});
    INFO(sinfo.err);
    CHECK(sorted_lines(sinfo.out) == std::vector<std::string>{"s1 4 gpu:4 idle", "s2 8 gpu:4 idle",
                                                              "s3 2 (null) idle",
                                                              "s4 8 gpu:2 idle"});
}

TEST_CASE("srun starts tasks on the nodes that it is told", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const auto hostnames = [&](std::vector<std::string> options, const RunOptions& how = {}) {
        options.insert(options.begin(), "srun");
        options.push_back("hostname");
        const Finished done = cluster.run("head", options, how);
        INFO(done.err);
        CHECK(done.exit_code == 0);
        return sorted_lines(done.out);
    };
    using Names = std::vector<std::string>;
    CHECK(hostnames({"-N4"}) == Names{"s1", "s2", "s3", "s4"});
    CHECK(hostnames({"-N2", "-n4", "--nodelist=s3,s4", "-m", "block"}) ==
          Names{"s3", "s3", "s4", "s4"});
    RunOptions as_dtuser;
    as_dtuser.user = "dtuser";
    CHECK(hostnames({"--nodelist=s2"}, as_dtuser) == Names{"s2"});
    for (const char* mpi : {"pmi2", "pmix"}) {
        const Finished done =
            cluster.run("head", {"srun", "-N2", "-n3", std::string("--mpi=") + mpi, "sh", "-c",
                                 "test -n \"$PMI_RANK$PMIX_RANK\""});
        INFO(mpi << done.err);
        CHECK(done.exit_code == 0);
    }
}

TEST_CASE("a batch job runs on its first node, and how it ended is known", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const int job = slurm.sbatch(
        "#!/bin/sh\necho $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE; hostname >&2; exit 3\n",
        {"-N4", "-n10"});
    const Slurm::JobEnd end = slurm.wait_end(job);
    CHECK(end.state == "FAILED");
    CHECK(end.exit_code == 3);
    CHECK(end.out == "s[1-4] 4(x2),1(x2)\n");
    CHECK(end.err == "s1\n");

    RunOptions as_dtuser;
    as_dtuser.user = "dtuser";
    const int other = slurm.sbatch("#!/bin/sh\nid -un\n", {"--nodelist=s4"}, as_dtuser);
    const Slurm::JobEnd good = slurm.wait_end(other);
    CHECK(good.state == "COMPLETED");
    CHECK(good.out == "dtuser\n");
}

TEST_CASE("salloc runs its command on head, or a shell on the job's first node",
          "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const std::string shell = "hostname; echo $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE";
    const Finished command =
        cluster.run("head", {"salloc", "-N2", "--nodelist=s2,s3", "sh", "-c", shell});
    INFO(command.err);
    CHECK(command.exit_code == 0);
    CHECK(command.out == "head\ns[2-3] 1(x2)\n");

    RunOptions options;
    options.terminal = true;
    Running interactive = cluster.start("head", {"salloc", "-N2", "--nodelist=s2,s3"}, options);
    interactive.write_stdin("echo on `hostname` of $SLURM_JOB_NODELIST\nexit 5\n");
    CHECK(interactive.wait_for_output("on s2 of s[2-3]"));
    CHECK(interactive.wait(milliseconds(20'000)).exit_code == 5);
}

TEST_CASE("scancel ends a job and its tasks", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const int job = slurm.sbatch(kSleepEverywhere, {"-N4"});
    wait_sleeping(cluster, cluster.names);
    CHECK(slurm.state(job) == "RUNNING");
    CHECK(cluster.leftovers().find("slurmstepd") != std::string::npos);
    CHECK(cluster.run("head", {"scancel", std::to_string(job)}).exit_code == 0);
    CHECK(slurm.wait_end(job).state == "CANCELLED");
    INFO(cluster.leftovers());
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a job whose time is up ends with TIMEOUT", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const int job = slurm.sbatch(kSleepEverywhere, {"--nodelist=s1,s2", "--time=5"});
    wait_sleeping(cluster, {"s1", "s2"});
    slurm.expire(job);
    const Slurm::JobEnd end = slurm.wait_end(job);
    CHECK(end.state == "TIMEOUT");
    CHECK(end.err.find("DUE TO TIME LIMIT") != std::string::npos);
}

TEST_CASE("a job outlives that its node is drained, and the next job waits", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const int job = slurm.sbatch(kSleepEverywhere, {"--nodelist=s3"});
    slurm.wait_running(job);
    slurm.drain("s3");
    CHECK(slurm.node_state("s3") == "draining");
    CHECK(slurm.state(job) == "RUNNING");
    const int next = slurm.sbatch("#!/bin/sh\ntrue\n", {"--nodelist=s3"});
    cluster.run("head", {"scancel", std::to_string(job)});
    CHECK(slurm.wait_node_state("s3", "drained"));
    CHECK(slurm.state(next) == "PENDING");
    slurm.resume("s3");
    CHECK(slurm.wait_end(next).state == "COMPLETED");
}

TEST_CASE("a job on a node with GPUs sees its own", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const Finished gpus =
        cluster.run("head", {"srun", "--nodelist=s1,s4", "--gres=gpu:2", "sh", "-c",
                             "echo $(hostname) $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE"});
    INFO(gpus.err);
    CHECK(sorted_lines(gpus.out) == std::vector<std::string>{"s1 0,1 2", "s4 0,1 2"});
}

TEST_CASE("without slurmctld jobs go on, and it finds them again", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const std::filesystem::path directory = fresh_directory(cluster, "controller");
    const int job =
        slurm.sbatch("#!/bin/sh\necho running; while [ ! -e " + (directory / "end").string() +
                     " ]; do sleep 0.1; done; echo ended\n");
    REQUIRE(wait_until([&] { return !slurm.out(job).empty(); }, milliseconds(10'000)));
    slurm.stop_daemon("head");
    cluster.run("head", {"touch", (directory / "end").string()});
    REQUIRE(wait_until([&] { return slurm.out(job) == "running\nended\n"; }, milliseconds(10'000)));
    slurm.start_daemon("head");
    CHECK(slurm.wait_end(job).state == "COMPLETED");
}

TEST_CASE("a node that was cut off is down, its job has failed, and both are mended",
          "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const int job = slurm.sbatch(kSleepEverywhere, {"--nodelist=s1,s2"});
    wait_sleeping(cluster, {"s1", "s2"});
    cluster.kill_link("s2", Cluster::Cut::silent);
    CHECK(slurm.wait_node_state("s2", "down*"));
    CHECK(slurm.wait_end(job).state == "NODE_FAIL");
    cluster.reset();
    Slurm mended(cluster);
    CHECK(mended.node_state("s2") == "idle");
}

TEST_CASE("whatever a test leaves behind, the next has an idle Slurm", "[cluster][slurm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm(cluster);
    const int job = slurm.sbatch("#!/bin/sh\ntrap '' TERM\nsrun sleep 600\n", {"-N3"});
    slurm.wait_running(job);
    slurm.sbatch(kSleepEverywhere, {"-N4"});  // waits
    slurm.drain("s4");
    cluster.crash("s1");
    slurm.stop_daemon("s2");
    slurm.stop_daemon("head");

    Cluster::shared(kHosts);
    Slurm next(cluster);
    CHECK(cluster.run("head", {"squeue", "-h"}).out.empty());
    CHECK(cluster.leftovers().empty());
    CHECK(cluster.run("head", {"srun", "-N4", "true"}).exit_code == 0);
}

}  // namespace test_slurm_harness
