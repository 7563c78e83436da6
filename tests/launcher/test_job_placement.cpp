// How many ranks a job may have where a batch system counts fewer tasks than processors.
#include "launcher/plan/job_plan.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>

namespace dtrun {

using namespace plan;
namespace {

using Words = std::vector<std::string>;

/// `salloc -N1 -c4`, which `srun --pty -c4 bash` looks like as well.
const Words kOneTask{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "SLURM_NTASKS=1",
                     "SLURM_TASKS_PER_NODE=1", "SLURM_JOB_CPUS_PER_NODE=4"};

Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

Result<JobSpec> plan_of(int ranks, const Words& caller, Options options = {}) {
    options.program = {"x"};
    options.world_size = ranks;
    return make_job_spec(std::move(options), caller, "/");
}

/// "n1:4 n2:4", or why not.
std::string places(const Result<JobSpec>& spec) {
    if (!spec) return spec.error().message;
    Words hosts;
    for (const JobHost& host : spec->hosts)
        hosts.push_back(fmt::format("{}:{}", host.host.name, host.ranks.size()));
    return fmt::format("{}", fmt::join(hosts, " "));
}

std::string cpus_of_task(const JobSpec& spec) {
    for (const auto& [name, value] : spec.environment.remote)
        if (name == "SLURM_CPUS_PER_TASK") return value;
    return "";
}

}  // namespace

TEST_CASE("one task with four processors, or four GPUs, is room for four ranks",
          "[placement][slurm]") {
    const auto spec = plan_of(4, with(kOneTask, {"SLURM_CPUS_PER_TASK=4"}));
    REQUIRE(places(spec) == "n1:4");
    CHECK(spec->placement.ranks[3].slot == 3);
    CHECK(spec->cpus_per_rank == 1);
    CHECK(cpus_of_task(*spec) == "1");
    const auto two = plan_of(2, with(kOneTask, {"SLURM_CPUS_PER_TASK=4"}));
    CHECK(places(two) == "n1:2");
    CHECK(two->cpus_per_rank == 2);
    const auto one = plan_of(1, with(kOneTask, {"SLURM_CPUS_PER_TASK=4"}));
    CHECK(one->cpus_per_rank == 4);
    CHECK(cpus_of_task(*one) == "4");
    Words gpus = kOneTask;
    gpus.back() = "SLURM_JOB_CPUS_PER_NODE=1";
    CHECK(places(plan_of(4, with(gpus, {"SLURM_GPUS_ON_NODE=4"}))) == "n1:4");
    Options chosen;
    chosen.include = "n1:1,3";
    CHECK(places(plan_of(2, kOneTask, chosen)) == "n1:2");
    const Words four{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "SLURM_NTASKS=4",
                     "SLURM_TASKS_PER_NODE=4", "SLURM_JOB_CPUS_PER_NODE=8"};
    chosen.include.clear();
    chosen.exclude = "n1:0";
    CHECK(places(plan_of(3, four, chosen)) == "n1:3");
    CHECK_FALSE(plan_of(4, four, chosen).has_value());
}

TEST_CASE("mpirun counts a batch job's tasks itself", "[placement][slurm]") {
    Options other;
    other.mpirun = true;
    CHECK(places(plan_of(4, kOneTask, other)) ==
          "4 ranks, but Slurm gave this job 1 task and 4 processors on n1 "
          "(SLURM_TASKS_PER_NODE=1); ask for --ntasks-per-node=4, lower -np, or add "
          "--oversubscribe");
}

TEST_CASE("nodes of one task each are filled evenly, as far as they have processors",
          "[placement][slurm]") {
    const Words two{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NTASKS=2",
                    "SLURM_TASKS_PER_NODE=1(x2)", "SLURM_JOB_CPUS_PER_NODE=4,8"};
    CHECK(places(plan_of(2, two)) == "n1:1 n2:1");
    CHECK(places(plan_of(8, two)) == "n1:4 n2:4");
    CHECK(places(plan_of(12, two)) == "n1:4 n2:8");
    CHECK(places(plan_of(13, two)) ==
          "13 ranks, but Slurm gave this job 2 tasks and 12 processors on n1 and n2 "
          "(SLURM_TASKS_PER_NODE=1(x2)); ask for --ntasks-per-node=7, lower -np, or add "
          "--oversubscribe");
    Options more;
    more.oversubscribe = true;
    CHECK(places(plan_of(24, two, more)) == "n1:8 n2:16");
}

TEST_CASE("other batch systems' jobs are named by what gave them", "[placement]") {
    const TempDir directory;
    const std::string file = directory.write("nodes", "h1\n");
    const Words pbs{"PBS_JOBID=3", "PBS_NODEFILE=" + file};
    CHECK(places(plan_of(4, pbs)) ==
          fmt::format("4 ranks, but PBS gave this job 1 slot on h1 (PBS_NODEFILE={}); ask for "
                      "mpiprocs=4 in each chunk, lower -np, or add --oversubscribe",
                      file));
    CHECK(places(plan_of(4, with(pbs, {"NCPUS=4"}))) == "h1:4");
    CHECK(places(plan_of(4, {"LSB_JOBID=3", "LSB_MCPU_HOSTS=h1 1"})) ==
          "4 ranks, but LSF gave this job 1 slot on h1 (LSB_MCPU_HOSTS=h1 1); ask for -n 4, lower "
          "-np, or add --oversubscribe");
    Options named;
    named.hosts = "n1:2,n2:1";
    CHECK(places(plan_of(4, kOneTask, named)) ==
          "-H: 4 ranks but 3 slots (n1:2 + n2:1 = 3); lower -np, add hosts, or --oversubscribe");
}

TEST_CASE("hosts that a script lists have the slots that it says, and not this machine's",
          "[placement][elastic]") {
    Options options;
    options.elastic.emplace().discovery_script = "printf 'a:2\\nb:2\\n'";
    options.shape.count = HostShape::Count::automatic;
    options.shape.count_flag = "--nproc-per-node auto";
    CHECK(places(plan_of(4, {}, options)) == "a:2 b:2");
}

}  // namespace dtrun
