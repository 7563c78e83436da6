// dtrun inside a Slurm allocation: what it takes from there, and how srun carries its agents.
#include "base/strings.h"
#include "tests/cluster/support/ranks.h"
#include "tests/cluster/support/slurm.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;
namespace fs = std::filesystem;

namespace test_slurm {

constexpr int kHosts = 4;

struct Fixture {
    Cluster& cluster = Cluster::shared(kHosts);
    Slurm slurm{cluster};

    /// dtrun under salloc, on head.
    Lines in_allocation(Lines allocation, Lines words) const {
        Lines argv{"salloc", "-Q"};
        argv.insert(argv.end(), allocation.begin(), allocation.end());
        argv.push_back(Cluster::program());
        argv.insert(argv.end(), words.begin(), words.end());
        return argv;
    }
    Finished run(Lines allocation, Lines words, const RunOptions& how = {}) const {
        return cluster.run("head", in_allocation(std::move(allocation), std::move(words)), how);
    }
    Running start(Lines allocation, Lines words) const {
        return cluster.start("head", in_allocation(std::move(allocation), std::move(words)));
    }

    /// A batch script with one line of dtrun; what it exits with is the script's.
    int batch(Lines options, std::string_view line) {
        return slurm.sbatch(fmt::format("#!/bin/sh\nexec {} {}\n", Cluster::program(), line),
                            std::move(options));
    }

    /// Nothing of dtrun or its ranks is anywhere, and Slurm has everything back.
    void check_clean() {
        INFO(cluster.leftovers());
        CHECK(cluster.wait_all_gone());
        // Not sinfo: of jobs that end within a second of their begin it may say "mixed" for long.
        CHECK(wait_until(
            [&] {
                return cluster.run("head", {"squeue", "-h"}).out.empty();
            },
            milliseconds(15'000)));
    }
};

/// "rank host" of every rank, in the order of ranks.
constexpr const char* kPlace = "echo $DTRUN_RANK $(hostname)";

Lines places(const Finished& done) {
    INFO(done.err);
    CHECK(done.exit_code == 0);
    Lines lines = lines_of(done.out);
    std::ranges::sort(lines, {}, [](const std::string& line) { return std::stoi(line); });
    return lines;
}

constexpr const char* kTrap =
    "trap 'echo saving; sleep 0.5; echo saved; exit 0' TERM; echo ready; "
    "while :; do sleep 0.1; done";

/// For sh -c within a batch script's line.
std::string quoted(const char* script) {
    return shell_quote(script);
}

TEST_CASE("inside an allocation dtrun needs no flags", "[cluster][slurm]") {
    Fixture f;
    const int job = f.batch({"-N4", "-n10"}, "--tag none sh -c " + quoted(kPlace));
    const auto end = f.slurm.wait_end(job);
    INFO(end.err);
    CHECK(end.state == "COMPLETED");
    Finished done;
    done.exit_code = end.exit_code;
    done.out = end.out;
    CHECK(places(done) ==
          Lines{"0 s1", "1 s1", "2 s1", "3 s1", "4 s2", "5 s2", "6 s2", "7 s2", "8 s3", "9 s4"});
    CHECK(places(f.run({"--nodelist=s2,s4", "-n5"}, {"--tag", "none", "sh", "-c", kPlace})) ==
          Lines{"0 s2", "1 s2", "2 s2", "3 s2", "4 s4"});
    // As srun: without -n one on each node.
    CHECK(places(f.run({"-N3", "--exclusive"}, {"--tag", "none", "sh", "-c", kPlace})).size() == 3);
    // How it has ended is left as elsewhere.
    CHECK(f.run({"-N2", "--exclusive"}, {"--report", "/tmp/end.json", "sh", "-c", "exit 9"})
              .exit_code == 9);
    const Finished told =
        f.cluster.run("head", {"sh", "-c", "cat /tmp/end.json; rm /tmp/end.json"});
    CHECK_THAT(told.out, Contains("\"exit_code\":9") && Contains("\"cause\":\"rank_failed\"") &&
                             Contains("\"host\":\"s2\""));
    f.check_clean();
}

TEST_CASE("flags win over the allocation, and --plan says where each number came from",
          "[cluster][slurm]") {
    Fixture f;
    const Lines all{"-N4", "-n10"};
    CHECK(places(f.run(all, {"--tag", "none", "-np", "5", "sh", "-c", kPlace})) ==
          Lines{"0 s1", "1 s1", "2 s1", "3 s1", "4 s2"});
    CHECK(places(f.run(all, {"--tag", "none", "-H", "s3:1,s1:2", "sh", "-c", kPlace})) ==
          Lines{"0 s3", "1 s1", "2 s1"});
    CHECK(places(f.run(all, {"--tag", "none", "--exclude", "s2", "sh", "-c", kPlace})) ==
          Lines{"0 s1", "1 s1", "2 s1", "3 s1", "4 s3", "5 s4"});
    CHECK(places(f.run(all, {"--tag", "none", "--transport", "local", "-np", "2", "sh", "-c",
                             kPlace})) == Lines{"0 head", "1 head"});
    const Finished over_ssh = f.run(all, {"--plan", "--transport", "ssh", "true"});
    CHECK(count_of(over_ssh.out, "ssh\n") == 10);
    const Finished plan = f.run(all, {"--plan", "-np", "4", "--map-by", "node", "true"});
    CHECK(count_of(plan.out, "srun\n") == 4);
    CHECK_THAT(plan.out, Contains("hosts:      SLURM_JOB_NODELIST=s[1-4]\n"
                                  "slots:      SLURM_TASKS_PER_NODE=4(x2),1(x2)\n"
                                  "ranks:      -np\n"));
    CHECK_THAT(f.run(all, {"--plan", "true"}).out, Contains("ranks:      SLURM_NTASKS=10\n"));
    f.check_clean();
}

TEST_CASE("an ordinary user's ranks are the user's", "[cluster][slurm]") {
    Fixture f;
    RunOptions user;
    user.user = "dtuser";
    const Finished done =
        f.run({"-N2"}, {"--tag", "none", "sh", "-c", "echo $DTRUN_RANK $(id -un)"}, user);
    CHECK(places(done) == Lines{"0 dtuser", "1 dtuser"});
    f.check_clean();
}

TEST_CASE("dtrun in every task of a step starts one job, not one for each task",
          "[cluster][slurm]") {
    Fixture f;
    const Finished done =
        f.cluster.run("head", {"srun", "-N2", "-n4", "--ntasks-per-node=2", Cluster::program(),
                               "--tag", "none", "sh", "-c", kPlace});
    CHECK(places(done) == Lines{"0 s1", "1 s1", "2 s2", "3 s2"});
    f.check_clean();
}

TEST_CASE("the nodes of a heterogeneous job are one job", "[cluster][slurm]") {
    Fixture f;
    const Finished done = f.cluster.run(
        "head", {"salloc", "-Q", "-n1", "--nodelist=s3", ":", "-n3", "-N2", "--nodelist=s1,s2",
                 Cluster::program(), "--tag", "none", "sh", "-c", kPlace});
    CHECK(places(done) == Lines{"0 s3", "1 s1", "2 s1", "3 s2"});
    f.check_clean();
}

TEST_CASE("ranks look like Slurm's tasks, and see the GPUs of their node", "[cluster][slurm]") {
    Fixture f;
    const char* script =
        "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURMD_NODENAME "
        "$SLURM_STEP_NODELIST $CUDA_VISIBLE_DEVICES ${SLURM_STEP_ID-none} $OMP_NUM_THREADS";
    const Finished done = f.run({"-N2", "-n3", "--nodelist=s1,s2", "--gpus-per-node=2", "-c2"},
                                {"--tag", "none", "sh", "-c", script});
    INFO(done.err);
    CHECK(sorted_lines(done.out) == Lines{"0 0 0 3 s1 s[1-2] 0,1 none 2",
                                          "1 1 0 3 s1 s[1-2] 0,1 none 2",
                                          "2 0 1 3 s2 s[1-2] 0,1 none 2"});
    f.check_clean();
}

TEST_CASE("a program written for Slurm's variables runs on hosts without Slurm",
          "[cluster][slurm]") {
    Fixture f;
    const Finished done = f.cluster.dtrun(
        {"-H", "s2:2,s1:1", "--contract", "slurm", "--tag", "none", "sh", "-c",
         "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURM_NNODES "
         "$SLURM_TASKS_PER_NODE $SLURM_JOB_NODELIST $SLURM_GTIDS; expr $SLURM_JOB_ID + 0 "
         ">/dev/null"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(sorted_lines(done.out) ==
          Lines{"0 0 0 3 2 2,1 s[2,1] 0,1", "1 1 0 3 2 2,1 s[2,1] 0,1", "2 0 1 3 2 2,1 s[2,1] 2"});
    const Finished without = f.cluster.dtrun({"-H", "s1", "env"});
    CHECK_THAT(without.out, !Contains("SLURM"));
}

TEST_CASE("the first failure is the exit code, and nothing survives the step", "[cluster][slurm]") {
    Fixture f;
    const int job = f.batch({"-N4", "-n6"}, "sh -c " + quoted("(sleep 600 &); sleep 0.3; "
                                                              "[ $DTRUN_RANK != 4 ] || exit 7; "
                                                              "sleep 600"));
    const auto end = f.slurm.wait_end(job);
    INFO(end.err);
    CHECK(end.state == "FAILED");
    CHECK(end.exit_code == 7);
    CHECK_THAT(end.err, Contains("dtrun: rank 4 on s3 (pid ") && Contains(" exited with code 7"));
    f.check_clean();
}

TEST_CASE("scancel reaches the ranks, which get their grace", "[cluster][slurm]") {
    Fixture f;
    const int job = f.batch({"-N3", "-n4"}, "--grace 3 sh -c " + quoted(kTrap));
    REQUIRE(
        wait_until([&] { return count_of(f.slurm.out(job), "ready") == 4; }, milliseconds(20'000)));
    f.cluster.run("head", {"scancel", std::to_string(job)});
    const auto end = f.slurm.wait_end(job);
    INFO(end.out);
    INFO(end.err);
    CHECK(end.state == "CANCELLED");
    CHECK(count_of(end.out, "saving") == 4);
    CHECK(count_of(end.out, "saved") == 4);
    CHECK_THAT(end.err, Contains("dtrun: ended by signal 15 (SIGTERM)"));
    f.check_clean();
}

TEST_CASE("a time limit reaches the ranks, which get their grace", "[cluster][slurm]") {
    Fixture f;
    const int job = f.batch({"-N2", "-n2", "-t", "1"}, "sh -c " + quoted(kTrap));
    REQUIRE(
        wait_until([&] { return count_of(f.slurm.out(job), "ready") == 2; }, milliseconds(20'000)));
    f.slurm.expire(job);
    const auto end = f.slurm.wait_end(job, milliseconds(60'000));
    INFO(end.out);
    INFO(end.err);
    CHECK(end.state == "TIMEOUT");
    CHECK(count_of(end.out, "saving") >= 2);  // Slurm itself says it twice to some
    CHECK(count_of(end.out, "saved") == 2);
    f.check_clean();
}

TEST_CASE("a signal for the job is the ranks', once", "[cluster][slurm]") {
    Fixture f;
    const int job =
        f.batch({"-N2", "-n2"}, "sh -c " + quoted("trap 'echo got' USR1; echo ready; "
                                                  "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; "
                                                  "do sleep 0.2; done"));
    REQUIRE(
        wait_until([&] { return count_of(f.slurm.out(job), "ready") == 2; }, milliseconds(20'000)));
    f.cluster.run("head", {"scancel", "-s", "USR1", std::to_string(job)});
    const auto end = f.slurm.wait_end(job);
    INFO(end.out);
    INFO(end.err);
    CHECK(end.state == "COMPLETED");
    CHECK(count_of(end.out, "got") == 2);
    f.check_clean();
}

TEST_CASE("Ctrl-C, and the death of dtrun, of srun or of a guard end everything",
          "[cluster][slurm]") {
    Fixture f;
    const auto is_srun = [](const Process& process) { return process.name == "srun"; };
    for (const char* how : {"INT", "KILL", "srun", "guard"}) {
        INFO(how);
        Running job = f.start({"-N2", "-n4"},
                              {"--grace", "1", "sh", "-c", "(sleep 600 &); echo ready; sleep 600"});
        REQUIRE(wait_for_count(job, "ready", 4));
        const std::string_view kind(how);
        const auto is_dtrun = [](const Process& process) { return process.name == "dtrun"; };
        if (kind == "INT" || kind == "KILL")
            f.cluster.kill(find_process(f.cluster, "head", is_dtrun).pid_outside,
                           kind == "INT" ? SIGINT : SIGKILL);
        else if (kind == "srun")
            f.cluster.kill(find_process(f.cluster, "head", is_srun).pid_outside, SIGKILL);
        else
            f.cluster.kill(find_process(f.cluster, "s2", is_guard).pid_outside, SIGKILL);
        const Finished done = job.wait(milliseconds(20'000));
        INFO(done.err);
        // With srun its step is killed: hosts are lost, or a rank tells of its child's end first.
        if (kind == "INT") CHECK(done.exit_code == 130);
        if (kind == "srun") CHECK((done.exit_code == 204 || done.exit_code == 137));
        if (kind == "guard") CHECK(done.exit_code == 204);
        f.check_clean();
    }
}

TEST_CASE("what srun says is shown when it fails", "[cluster][slurm]") {
    Fixture f;
    RunOptions stale;
    stale.env = {{"SLURM_JOB_ID", "77777"},
                 {"SLURM_JOB_NODELIST", "s[1-2]"},
                 {"SLURM_NTASKS", "2"},
                 {"SLURM_TASKS_PER_NODE", "1(x2)"}};
    const Finished over = f.cluster.dtrun({"hostname"}, stale);
    INFO(over.err);
    CHECK(over.exit_code == 203);
    CHECK_THAT(over.err, Contains("dtrun: cannot start: 2 of 2 hosts failed\n"
                                  "  s1 and s2: srun ended: exit status 1: ") &&
                             Contains("Expired or invalid job 77777"));
    const Finished missing = f.cluster.run(
        "head", {"salloc", "-Q", "-N2", "env", "PATH=/nowhere", Cluster::program(), "hostname"});
    CHECK(missing.exit_code == 200);
    CHECK_THAT(missing.err, Contains("there is no srun on PATH"));
    const Finished foreign = f.cluster.dtrun({"--transport", "slurm", "hostname"});
    CHECK(foreign.exit_code == 200);
    CHECK_THAT(foreign.err, Contains("no Slurm allocation here; start dtrun in sbatch or salloc"));
    const Finished outside = f.run({"-N1"}, {"--transport", "slurm", "-H", "s9", "true"});
    CHECK_THAT(outside.err, Contains("--transport slurm: s9 is not in the allocation"));
    f.check_clean();
}

TEST_CASE("nodes that lack the agent get it through srun, once", "[cluster][slurm]") {
    Fixture f;
    // head's own /tmp: nodes cannot see it.
    const fs::path here = fs::path(Cluster::program()).parent_path();
    REQUIRE(f.cluster
                .run("head", {"sh", "-c",
                              fmt::format("mkdir -p /tmp/hidden && cp {0}/dtrun "
                                          "{0}/dtrun-agent /tmp/hidden",
                                          here.native())})
                .exit_code == 0);
    for (const char* host : {"s1", "s2", "s3"})
        f.cluster.run(host, {"sh", "-c", "rm -rf ~/.cache/dtrun"});
    for (const std::size_t had : {std::size_t{0}, std::size_t{1}}) {
        const Finished done =
            f.cluster.run("head", {"salloc", "-Q", "-N2", "--nodelist=s1,s2", "/tmp/hidden/dtrun",
                                   "--tag", "none", "sh", "-c", kPlace});
        CHECK(places(done) == Lines{"0 s1", "1 s2"});
        const Finished cached = f.cluster.run("s2", {"sh", "-c", "ls ~/.cache/dtrun | wc -l"});
        CHECK(trim(cached.out) == "1");
        (void)had;
    }
    // One node has it, one has not.
    CHECK(places(f.cluster.run(
              "head", {"salloc", "-Q", "-N2", "--nodelist=s2,s3", "/tmp/hidden/dtrun", "--tag",
                       "none", "sh", "-c", kPlace})) == Lines{"0 s2", "1 s3"});
    f.check_clean();
}

TEST_CASE("nodes of another CPU in the same step get their own agent", "[cluster][slurm]") {
    Fixture f;
    const fs::path here = fs::path(Cluster::program()).parent_path();
    const std::string hide = fmt::format(
        "mkdir -p /tmp/hidden && cp {0}/dtrun {0}/dtrun-agent /tmp/hidden && "
        "cp {0}/dtrun-agent /tmp/hidden/dtrun-agent-sparc64",
        here.native());
    REQUIRE(f.cluster.run("head", {"sh", "-c", hide}).exit_code == 0);
    const std::string uname = write_program(
        f.cluster, "uname", "#!/bin/sh\n[ \"$1\" = -nm ] && echo s2 sparc64 || echo s2\n");
    f.cluster.bind("s2", uname, "/usr/bin/uname");
    for (const char* host : {"s1", "s2"})
        f.cluster.run(host, {"sh", "-c", "rm -rf ~/.cache/dtrun"});
    const Lines words{
        "salloc", "-Q", "-N2", "--nodelist=s1,s2", "/tmp/hidden/dtrun", "--tag", "none",
        "sh",     "-c", kPlace};
    CHECK(places(f.cluster.run("head", words)) == Lines{"0 s1", "1 s2"});
    REQUIRE(f.cluster.run("head", {"rm", "/tmp/hidden/dtrun-agent-sparc64"}).exit_code == 0);
    f.cluster.run("s2", {"sh", "-c", "rm -rf ~/.cache/dtrun"});
    const Finished lacking = f.cluster.run("head", words);
    INFO(lacking.err);
    CHECK(lacking.exit_code == 203);
    CHECK_THAT(lacking.err, Contains("  s2: its CPU is sparc64, and this dtrun has no agent"));
    f.cluster.unbind("s2", "/usr/bin/uname");
    f.check_clean();
}

TEST_CASE("a doctor examines the nodes of an allocation, each by an srun", "[cluster][slurm]") {
    const Fixture fixture;
    const Finished done = fixture.run({"-N3"}, {"doctor"});
    INFO(done.out << done.err);
    CHECK_THAT(done.out, Contains("3 of 3 hosts examined in") && Contains("all is well"));
    CHECK(done.exit_code == 0);
}

TEST_CASE("agents of a step relay for each other above the threshold", "[cluster][slurm]") {
    Fixture f;
    const Finished done = f.run({"-N4", "-n8", "--ntasks-per-node=2"},
                                {"--tree-threshold", "2", "--tag", "none", "sh", "-c", kPlace});
    CHECK(places(done) == Lines{"0 s1", "1 s1", "2 s2", "3 s2", "4 s3", "5 s3", "6 s4", "7 s4"});
    f.check_clean();
}

TEST_CASE("a node that is cut off is lost in three seconds, a drained one is not",
          "[cluster][slurm]") {
    Fixture f;
    const Lines nodes{"--nodelist=s1,s2,s3", "-n3"};
    Running job = f.start(nodes, {"--grace", "1", "sh", "-c", "echo ready; sleep 8"});
    REQUIRE(wait_for_count(job, "ready", 3));
    f.slurm.drain("s2");
    const Finished drained = job.wait(milliseconds(20'000));
    INFO(drained.err);
    CHECK(drained.exit_code == 0);
    f.slurm.resume("s2");

    Running other = f.start(nodes, {"--grace", "1", "sh", "-c", "echo ready; sleep 60"});
    REQUIRE(wait_for_count(other, "ready", 3));
    f.cluster.kill_link("s2", Cluster::Cut::silent);
    const Finished lost = other.wait(milliseconds(20'000));
    INFO(lost.err);
    CHECK(lost.exit_code == 204);
    CHECK_THAT(lost.err, Contains("dtrun: host s2 lost: last heard "));
    f.cluster.heal_link("s2");
    f.check_clean();
}

TEST_CASE("an elastic job in an allocation outlives a node, and takes it back",
          "[cluster][slurm]") {
    Fixture f;
    const std::string file = f.cluster.scratch() / "slurm-elastic-end";
    fs::remove(file);
    Running job = f.start(
        {"--no-kill", "--nodelist=s1,s2,s3", "-n3"},
        {"--min-np", "2", "--blacklist-cooldown-range", "2", "20", "--tag", "none", "sh", "-c",
         fmt::format("echo g$DTRUN_GENERATION:$RANK@$DTRUN_HOST; until [ -e {} ]; "
                     "do sleep 0.1; done",
                     file)});
    REQUIRE(wait_for_count(job, "g1:", 3));
    f.cluster.kill_link("s2", Cluster::Cut::silent);
    REQUIRE(wait_for_count(job, "g2:", 2));
    CHECK_THAT(job.out_so_far(), Contains("g2:0@s1") && Contains("g2:1@s3"));
    f.cluster.heal_link("s2");
    REQUIRE(wait_for_count(job, "g3:", 3));
    CHECK_THAT(job.out_so_far(), Contains("g3:2@s2"));
    std::ofstream(file) << "end";
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    f.check_clean();
}

TEST_CASE("standard input and the store reach the ranks of a step", "[cluster][slurm]") {
    Fixture f;
    RunOptions input;
    input.stdin_text = "a\nb\n";
    const Finished echo = f.run({"-N2", "-n2"}, {"--tag", "none", "cat"}, input);
    CHECK(echo.out == "a\nb\n");
    const Finished store =
        f.run({"-N2", "-n2"}, {"--tag", "none", "sh", "-c",
                               fmt::format("{0} store set k/$DTRUN_RANK $(hostname); "
                                           "{0} store wait k/0 k/1; {0} store get k/0",
                                           Cluster::program())});
    INFO(store.err);
    CHECK(store.exit_code == 0);
    CHECK(count_of(store.out, "s1") == 2);
}

TEST_CASE("srun is watched for as long as the job runs", "[cluster][slurm]") {
    Fixture f;
    const Finished done =
        f.run({"-N2"}, {"--connect-timeout", "4", "sh", "-c", "sleep 6; echo ends $(date +%s.%N)"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(seconds_after(done.out, "ends ") < 5);
    f.check_clean();
}

TEST_CASE("a node on which srun does not come up is named, and those who waited for it",
          "[cluster][slurm]") {
    Fixture f;
    Running job =
        f.cluster.start("head", {"salloc", "-Q", "--nodelist=s1,s2", "sh", "-c",
                                 "echo granted; sleep 1; exec \"$0\" --connect-timeout 6 hostname",
                                 Cluster::program()});
    REQUIRE(job.wait_for_output("granted"));
    f.cluster.freeze("s2");
    const Finished done = job.wait();
    f.cluster.thaw("s2");
    INFO(done.err);
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err, Contains("  s2: srun has not started the agent within 6 s "
                                  "(--connect-timeout)"));
    CHECK_THAT(done.err, Contains("  s1: waited for s2\n"));
    f.check_clean();
}

TEST_CASE("nodes with different numbers of GPUs give ranks all of them", "[cluster][slurm]") {
    Fixture f;
    const Finished done =
        f.run({"--nodelist=s1,s4", "--gpus=6", "-n2"},
              {"--tag", "none", "sh", "-c", "echo $DTRUN_LOCAL_RANK $CUDA_VISIBLE_DEVICES"});
    INFO(done.err);
    CHECK(sorted_lines(done.out) == Lines{"0 0,1", "0 0,1,2,3"});
    f.check_clean();
}

TEST_CASE("dtrun inside a rank is about its own machine", "[cluster][slurm]") {
    Fixture f;
    const Finished done = f.run(
        {"-N2"}, {"--tag", "none", Cluster::program(), "-np", "2", "--tag", "none", "hostname"});
    INFO(done.err);
    CHECK(sorted_lines(done.out) == Lines{"s1", "s1", "s2", "s2"});
    f.check_clean();
}

TEST_CASE("what srun hostname prints becomes a hostfile", "[cluster][slurm]") {
    Fixture f;
    const int job = f.slurm.sbatch(fmt::format("#!/bin/sh\n"
                                               "srun hostname -s | {0} hosts --sort\n"
                                               "echo; {0} hosts --format json\n",
                                               Cluster::program()),
                                   {"-N4", "-n10"});
    const auto end = f.slurm.wait_end(job);
    INFO(end.err);
    CHECK_THAT(end.out, Contains("s1 slots=4\ns2 slots=4\ns3 slots=1\ns4 slots=1\n"));
    CHECK_THAT(end.out, Contains(R"({"host":"s1","slots":4})"));
}

TEST_CASE("programs with the library form a job by themselves under plain srun",
          "[cluster][slurm]") {
    Fixture f;
    const fs::path example = fs::path(Cluster::program()).parent_path() / "example_ranks";
    const Finished done = f.cluster.run("head", {"srun", "-N4", "-n6", example});
    INFO(done.out);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, " of 6 (slurm): ") == 6);
    CHECK(count_of(done.out, "the result is 42") == 6);
    f.check_clean();
}

TEST_CASE("every batch script among the examples runs, where its framework is installed",
          "[cluster][slurm]") {
    Fixture f;
    const std::vector<std::array<const char*, 3>> examples{
        {"torch_ddp.sbatch", "/usr/bin/python3 -c 'import torch'", "4 ranks: y = 3.0 x + 1.0"},
        {"mpi.sbatch", "mpicc --version", "4 ranks: sum 6"},
        {"horovod.sbatch", "/usr/bin/python3 -c 'import horovod.torch'", "4 ranks: sum 6"},
        {"deepspeed.sbatch", "/usr/bin/python3 -c 'import deepspeed'", "4 ranks: loss "},
    };
    const fs::path directory = fresh_directory(f.cluster, "examples");
    fs::copy(fs::path(DTRUN_CLUSTER_DIR) / "../../examples/slurm", directory,
             fs::copy_options::recursive);
    RunOptions how;
    how.cwd = directory;
    how.env["PATH"] =
        fs::path(Cluster::program()).parent_path().native() + ":/usr/local/bin:/usr/bin:/bin";
    for (const auto& [script, needs, expected] : examples) {
        const std::string probe = std::string(needs) + " >/dev/null 2>&1";
        if (f.cluster.run("head", {"sh", "-c", probe}).exit_code != 0) {
            WARN(script << " was not run: its framework is not installed");
            continue;
        }
        const int job = f.slurm.sbatch(file_text(directory / script), {}, how);
        const auto end = f.slurm.wait_end(job, milliseconds(120'000));
        INFO(script << "\n" << end.out << end.err);
        CHECK(end.state == "COMPLETED");
        CHECK_THAT(end.out, Contains(expected));
    }
    f.check_clean();
}

}  // namespace test_slurm
