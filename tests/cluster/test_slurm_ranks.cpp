// What ranks in a Slurm allocation are told, held against what srun's own tasks are told.
#include "base/strings.h"
#include "tests/cluster/support/ranks.h"
#include "tests/cluster/support/slurm.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
using Lines = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;
namespace fs = std::filesystem;

namespace test_slurm_ranks {

constexpr int kHosts = 4;

/// "NAME=VALUE" for every variable of Slurm or of its devices, and "AT=host", into a file of this rank's: srun mixes the
/// lines of tasks.
constexpr const char* kTell =
    "(echo AT=$(hostname); env | grep -E '^(SLURM|CUDA_|ROCR_|GPU_|ZE_)') >$1.$SLURM_PROCID\n";

/// Variables by rank.
std::map<int, Variables> told(const std::string& stem) {
    std::map<int, Variables> by_rank;
    for (int rank = 0; fs::exists(fmt::format("{}.{}", stem, rank)); ++rank)
        for (const std::string& line : lines_of(file_text(fmt::format("{}.{}", stem, rank)))) {
            const std::size_t equals = line.find('=');
            by_rank[rank][line.substr(0, equals)] = line.substr(equals + 1);
        }
    return by_rank;
}

/// About srun's process and its step, which a rank has none of.
bool is_of_step(const std::string& name) {
    static const std::set<std::string> kNames{
        "SLURM_STEP_ID",           "SLURM_STEPID",     "SLURM_STEP_LAUNCHER_PORT",
        "SLURM_SRUN_COMM_HOST",    "SLURM_TASK_PID",   "SLURM_SRUN_COMM_PORT",
        "SLURM_PRIO_PROCESS",      "SLURM_UMASK",      "SLURM_JOB_UID",
        "SLURM_JOB_GID",           "SLURM_JOB_USER",   "SLURM_WORKING_CLUSTER",
        "SLURM_HOSTFILE",          "SLURMD_TRES_BIND", "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0",
        "SLURM_ARBITRARY_NODELIST"};
    return kNames.contains(name);
}

struct Fixture {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm{cluster};
    fs::path directory = fresh_directory(cluster, "slurm-ranks");

    /// Runs dtrun with each of `placements`, and after it srun with as many tasks on the same hosts, all in
    /// one allocation. What the ranks say is in N.dtrun, the tasks in N.srun.
    void run(Lines allocation, const Lines& placements, const std::string& srun) const {
        std::string script = "rm -f *.dtrun.* *.srun.*\n";
        for (std::size_t i = 0; i < placements.size(); ++i)
            script += fmt::format(
                "{0} {1} sh tell {2}.dtrun || exit 1\n"
                "sed -n s/^AT=//p {2}.dtrun.[0-9] >{2}.hosts\n"
                "SLURM_HOSTFILE=$PWD/{2}.hosts srun --mpi=none -n $(wc -l <{2}.hosts) {3} sh tell "
                "{2}.srun || exit 1\n",
                Cluster::program(), placements[i], i, srun);
        std::ofstream(directory / "tell") << kTell;
        std::ofstream(directory / "script") << script;
        allocation.insert(allocation.begin(), {"salloc", "-Q"});
        allocation.insert(allocation.end(), {"sh", "script"});
        RunOptions how;
        how.cwd = directory;
        const Finished done = cluster.run("head", allocation, how);
        INFO(done.err);
        REQUIRE(done.exit_code == 0);
    }
    std::map<int, Variables> ranks(std::size_t i) const {
        return told(directory / fmt::format("{}.dtrun", i));
    }
    std::map<int, Variables> tasks(std::size_t i) const {
        return told(directory / fmt::format("{}.srun", i));
    }
};

/// Every variable of a rank is as the task's, and the rank has all that it can have.
/// \param own  names in which the two differ on purpose
void check_same(const Variables& rank, const Variables& task, const std::set<std::string>& own) {
    for (const auto& [name, value] : rank) {
        if (own.contains(name)) continue;
        INFO(name << "=" << value);
        CHECK(task.contains(name));
        if (task.contains(name)) CHECK(task.at(name) == value);
    }
    for (const auto& [name, value] : task) {
        INFO("srun has " << name << "=" << value);
        CHECK((rank.contains(name) || is_of_step(name)));
    }
}

TEST_CASE("ranks are told of themselves what srun tells tasks that are placed like them",
          "[cluster][slurm]") {
    const Fixture f;
    const Lines placements{"-np 6 -H s1:2,s2:2,s3:2", "-np 4 -H s1:3,s2:1",
                           "-np 6 -H s1:2,s2:2,s3:2 --map-by node", "-np 2 -H s2:2",
                           "-np 3 -H s2:1,s1:2"};
    f.run({"-N3", "--nodelist=s1,s2,s3", "--exclusive"}, placements, "-m arbitrary");
    for (std::size_t i = 0; i < placements.size(); ++i) {
        INFO(placements[i]);
        const auto ranks = f.ranks(i);
        const auto tasks = f.tasks(i);
        REQUIRE(ranks.size() == tasks.size());
        // srun's list is the allocation's, where its number of nodes is the step's. Programs meet at the address,
        // so it is rank 0's host's. The number on each node is srun's if it was asked for.
        std::set<std::string> own{"SLURM_NODELIST", "SLURM_LAUNCH_NODE_IPADDR",
                                  "SLURM_NTASKS_PER_NODE"};
        // Nodes stand in order of ranks, so that the first has rank 0, which programs rely on.
        if (i == 4)
            own.insert({"SLURM_NODEID", "SLURM_STEP_NODELIST", "SLURM_TASKS_PER_NODE",
                        "SLURM_STEP_TASKS_PER_NODE"});
        for (const auto& [number, rank] : ranks) {
            INFO("rank " << number);
            check_same(rank, tasks.at(number), own);
            CHECK(rank.at("SLURM_NODELIST") == rank.at("SLURM_STEP_NODELIST"));
        }
    }
    CHECK(f.ranks(4).at(0).at("SLURM_STEP_NODELIST") == "s[2,1]");
    CHECK(f.ranks(4).at(0).at("SLURM_TASKS_PER_NODE") == "1,2");
    CHECK(f.ranks(4).at(2).at("SLURM_NODEID") == "1");
}

TEST_CASE("ranks see the GPUs that srun would give its tasks", "[cluster][slurm]") {
    const Fixture f;
    for (const Lines& asked :
         {Lines{"--gpus-per-task=1", "-n5", "-N2", "--nodelist=s1,s4"},
          Lines{"--gpus-per-task=2", "-n2", "-N1", "--nodelist=s1"},
          Lines{"--gpus-per-node=2", "-n4", "-N1", "--gpu-bind=single:2", "--nodelist=s1"}}) {
        INFO(asked[0] << " " << asked[1] << " " << asked[2]);
        f.run(asked, {""}, "");
        const auto ranks = f.ranks(0);
        const auto tasks = f.tasks(0);
        REQUIRE_FALSE(ranks.empty());
        REQUIRE(ranks.size() == tasks.size());
        for (const auto& [number, rank] : ranks) {
            INFO("rank " << number);
            for (const char* const name : {"AT", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                           "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}) {
                INFO(name);
                CHECK(rank.at(name) == tasks.at(number).at(name));
            }
        }
    }
}

TEST_CASE("without its contract ranks hear nothing of Slurm's tasks", "[cluster][slurm]") {
    const Fixture f;
    const Finished done = f.cluster.run(
        "head", {"salloc", "-Q", "-N2", "-n4", "--nodelist=s1,s2", "-mcyclic", Cluster::program(),
                 "--tag", "none", "--contract", "none,mpi", "env"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "SLURM_JOB_NODELIST=s[1-2]\n") == 4);
    for (const char* const name : {"SLURM_NTASKS", "SLURM_TASKS_PER_NODE", "SLURM_NNODES",
                                   "SLURM_NODELIST", "SLURM_DISTRIBUTION", "SLURM_PROCID"}) {
        INFO(name);
        CHECK(count_of(done.out, std::string(name) + "=") == 0);
    }
}

TEST_CASE("ranks share out what an interactive job's one task has been given", "[cluster][slurm]") {
    const Fixture f;
    const std::string script =
        "echo $RANK $SLURM_NTASKS $OMP_NUM_THREADS ${SLURM_CPUS_PER_TASK-none} "
        "${CUDA_VISIBLE_DEVICES-none}";
    const Finished four = f.cluster.run(
        "head", {"salloc", "-Q", "-N1", "-n1", "-c4", "--gres=gpu:4", "--nodelist=s1",
                 Cluster::program(), "-np", "4", "--tag", "none", "sh", "-c", script});
    INFO(four.err);
    CHECK(sorted_lines(four.out) ==
          Lines{"0 4 1 1 0,1,2,3", "1 4 1 1 0,1,2,3", "2 4 1 1 0,1,2,3", "3 4 1 1 0,1,2,3"});
    const Finished shell = f.cluster.run(
        "head",
        {"srun", "-N1", "-n1", "-c4", "--nodelist=s2", "sh", "-c",
         fmt::format("{} -np 2 --tag none sh -c {}", Cluster::program(), shell_quote(script))});
    INFO(shell.err);
    CHECK(sorted_lines(shell.out) == Lines{"0 2 2 2 none", "1 2 2 2 none"});
    const Finished many = f.cluster.run("head", {"salloc", "-Q", "-N2", "-n2", "--nodelist=s1,s3",
                                                 Cluster::program(), "-np", "5", "true"});
    CHECK(many.exit_code == 200);
    CHECK(many.err ==
          "dtrun: 5 ranks, but Slurm gave this job 2 tasks and 2 processors on s1 and s3 "
          "(SLURM_TASKS_PER_NODE=1(x2)); ask for --ntasks-per-node=3, lower -np, or add "
          "--oversubscribe\n");
}

TEST_CASE("a step that is cancelled is called so", "[cluster][slurm]") {
    const Fixture f;
    const auto run_and = [&f](const std::string& deed) {
        const Finished done = f.cluster.run(
            "head", {"salloc", "-Q", "-N2", "-n2", "--nodelist=s1,s2", "sh", "-c",
                     fmt::format("rm -f ready; {} --tag none sh -c 'touch ready; exec sleep 60' & "
                                 "until [ -e ready ]; do sleep 0.1; done; {}; wait $!",
                                 Cluster::program(), deed)});
        INFO(done.err);
        CHECK((done.exit_code == 204 || done.exit_code == 137));
        return done.err;
    };
    // Which of srun's lines come depends on who ends first, here and in versions of Slurm.
    const auto why = [](const std::string& text) {
        return count_of(text, ": Slurm has cancelled step ") +
               count_of(text, ": Slurm has aborted the step ") + count_of(text, ": srun says s");
    };
    // Slurm kills the processes of a task one after the other: the agent's guard may be the last, and have time to end.
    for (const char* const deed : {"scancel $SLURM_JOB_ID.0", "scancel -s KILL $SLURM_JOB_ID.0",
                                   "ssh s2 pkill -KILL -x dtrun-agent"}) {
        INFO(deed);
        const std::string told = run_and(deed);
        INFO(told);
        CHECK(why(told) == 1);
    }
    INFO(f.cluster.leftovers());
    CHECK(f.cluster.wait_all_gone());
}

}  // namespace test_slurm_ranks
