#include "launcher/head/slurm_step.h"
#include "tests/support/catch.h"

#include <algorithm>

namespace dtrun {

using namespace std::chrono_literals;
using namespace plan;

using namespace head;
namespace {

using Words = std::vector<std::string>;

Result<JobSpec> spec_in(const Words& environment, Options options = {}) {
    options.program = {"prog"};
    return make_job_spec(std::move(options), environment, "/work");
}

const Words kUneven{"SLURM_JOB_ID=5", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_NTASKS=4",
                    "SLURM_TASKS_PER_NODE=2,1(x2)", "SLURM_JOB_CPUS_PER_NODE=2,1(x2)"};

bool has(const Words& words, const std::string& word) {
    return std::ranges::find(words, word) != words.end();
}

}  // namespace

TEST_CASE("one srun starts one agent on each node of the allocation", "[slurm]") {
    const auto spec = spec_in(kUneven);
    REQUIRE(spec.has_value());
    const auto groups = step_groups(*spec);
    REQUIRE(groups.size() == 1);
    const Words command = srun_command(*spec, groups.front(), "script");
    CHECK(command.front() == "srun");
    for (const char* option :
         {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--nodelist=n[1-3]", "--overlap",
          "--kill-on-bad-exit=0", "--mpi=none"})
        CHECK(has(command, option));
    CHECK(Words(command.end() - 3, command.end()) == Words{"/bin/sh", "-c", "script"});
}

TEST_CASE("Slurm is told not to end the step of a job that goes on without a node", "[slurm]") {
    Options options;
    const auto fixed = spec_in(kUneven, options);
    REQUIRE(fixed.has_value());
    CHECK_FALSE(has(srun_command(*fixed, step_groups(*fixed)[0], ""), "--no-kill"));
    options.elastic.emplace().ranks_min = 2;
    const auto elastic = spec_in(kUneven, options);
    REQUIRE(elastic.has_value());
    CHECK(has(srun_command(*elastic, step_groups(*elastic)[0], ""), "--no-kill"));
}

TEST_CASE("nodes with different numbers of GPUs have an srun each", "[slurm]") {
    Words environment = kUneven;
    environment.push_back("SLURM_GPUS_PER_TASK=1");
    const auto spec = spec_in(environment);
    REQUIRE(spec.has_value());
    const auto groups = step_groups(*spec);
    REQUIRE(groups.size() == 3);
    CHECK(has(srun_command(*spec, groups[0], ""), "--gpus=2"));
    CHECK(has(srun_command(*spec, groups[1], ""), "--nodelist=n2"));
    CHECK(has(srun_command(*spec, groups[1], ""), "--gpus=1"));
    environment.back() = "SLURM_GPUS_PER_NODE=2";
    const auto alike = spec_in(environment);
    REQUIRE(alike.has_value());
    REQUIRE(step_groups(*alike).size() == 1);
    CHECK(has(srun_command(*alike, step_groups(*alike)[0], ""), "--gres=gpu:2"));
}

TEST_CASE("srun learns which job it is, and nothing of the script's wishes", "[slurm]") {
    Words environment = kUneven;
    environment.insert(environment.end(), {"HOME=/home/u", "SLURM_CONF=/c", "SECRET=1"});
    const auto spec = spec_in(environment);
    REQUIRE(spec.has_value());
    CHECK(spec->access.srun_env == Words{"SLURM_JOB_ID=5", "HOME=/home/u", "SLURM_CONF=/c"});
}

TEST_CASE("more ranks than Slurm's are placed where they fit", "[slurm]") {
    Words environment{"SLURM_JOB_ID=5", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=4,8",
                      "SLURM_JOB_CPUS_PER_NODE=4,8"};
    const auto one_each = spec_in(environment);
    REQUIRE(one_each.has_value());
    CHECK(one_each->placement.world_size() == 2);
    Options options;
    options.world_size = 10;
    const auto ten = spec_in(environment, options);
    REQUIRE(ten.has_value());
    CHECK(ten->hosts[HostId{0}].ranks.size() == 4);
    CHECK(ten->hosts[HostId{1}].ranks.size() == 6);
    options.world_size = 13;
    CHECK_FALSE(spec_in(environment, options).has_value());
}

TEST_CASE("numbers for each node have Slurm's short form", "[slurm]") {
    CHECK(tasks_per_node(std::vector<int>{}) == "");
    CHECK(tasks_per_node(std::vector<int>{4}) == "4");
    CHECK(tasks_per_node(std::vector<int>{4, 4, 3, 1, 1, 1, 4}) == "4(x2),3,1(x3),4");
}

TEST_CASE("srun's words tell who has ended its step, and why", "[slurm]") {
    const std::string aborted =
        "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n";
    const std::string cancelled =
        "slurmstepd-s1: error: *** STEP 27.0 ON s1 CANCELLED AT 2026-11-27T00:55:27";
    const std::string killed = "srun: error: s[1-2]: tasks 0-1: Killed\n";
    const auto text = [](const std::string& said) { return step_ending(said).text; };
    CHECK(text(aborted + cancelled + " ***\n") ==
          "Slurm has cancelled step 27.0, in which the agents ran");
    CHECK(text(killed + cancelled + " ***\n" + aborted) ==
          "Slurm has cancelled step 27.0, in which the agents ran");
    CHECK(text(cancelled + " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***") ==
          "Slurm has cancelled step 27.0 due to node failure, in which the agents ran");
    CHECK(text(cancelled + " DUE TO TIME LIMIT ***") ==
          "Slurm has cancelled step 27.0 due to time limit, in which the agents ran");
    CHECK(text(cancelled + " DUE to SIGNAL Killed ***") ==
          "Slurm has cancelled step 27.0 due to signal killed, in which the agents ran");
    CHECK(text(aborted + killed) == "Slurm has aborted the step in which the agents ran");
    CHECK(text(killed) == "srun says s[1-2]: tasks 0-1: Killed");
    CHECK(text("srun: error: s1: task 0: Exited with exit code 137\n") == "");
    CHECK(text("*** STEP of a program's ***\nmine: Killed\n") == "");
}

TEST_CASE("of srun's words the strongest is told, until a job has gone on for half a minute",
          "[slurm]") {
    const Deadline start = Clock::now();
    StepEndings endings;
    endings.hear("srun: error: s1: task 0: Killed\n", start);
    endings.hear("srun: error: s2: task 1: Killed\n", start + 20s);
    endings.job_runs(start + 40s);
    CHECK(endings.text() == "srun says s2: task 1: Killed");
    endings.hear("srun: Job step aborted\n", start + 41s);
    endings.hear("srun: error: s3: task 2: Killed\n", start + 42s);
    endings.job_runs(start + 71s);
    CHECK(endings.text() == "Slurm has aborted the step in which the agents ran");
    endings.job_runs(start + 72s);
    CHECK(endings.text() == "");
    endings.hear("srun: error: s3: task 2: Killed\n", start + 73s);
    CHECK(endings.text() == "srun says s3: task 2: Killed");
}

TEST_CASE("a line of a node has its name before it", "[slurm]") {
    const auto line = parse_node_line("@n1 dtrun-agent 2 abc");
    REQUIRE(line.has_value());
    CHECK(line->node == "n1");
    CHECK(line->text == "dtrun-agent 2 abc");
    for (const char* other : {"", "@", "@n1", "n1 dtrun-agent"})
        CHECK_FALSE(parse_node_line(other).has_value());
}

}  // namespace dtrun
