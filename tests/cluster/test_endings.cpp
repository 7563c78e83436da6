// How a job ends: by a rank, by the user, by a signal, or because a part of dtrun or a host dies.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Catch::Matches;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_endings {

constexpr int kHosts = 3;
constexpr std::size_t kRanks = 4;
constexpr const char* kOnTwo = "s1:2,s2:2";

constexpr milliseconds kGone{5'000};  // what is promised
const milliseconds kSlack{Cluster::sanitized() ? 3'000 : 1'500};

/// A rank with a child and with grandchildren that have left its session and its process group, the
/// second of them without environment and streams.
std::string tree_program(const Cluster& cluster) {
    return write_program(cluster, "tree",
                         "#!/bin/sh\n"
                         "sleep 1001 &\n"
                         "setsid sh -c 'sleep 1002 & exit'\n"
                         "setsid sh -c 'env -i sleep 1003 >/dev/null 2>&1 </dev/null & exit'\n"
                         "echo ready\n"
                         "wait\n");
}

/// The same, where nobody heeds a signal that can be ignored.
std::string stubborn_program(const Cluster& cluster) {
    return write_program(cluster, "stubborn",
                         "#!/bin/sh\n"
                         "trap '' TERM INT HUP QUIT USR1 USR2\n"
                         "sleep 1001 &\n"
                         "setsid sh -c 'sleep 1002 & exit'\n"
                         "setsid sh -c 'env -i sleep 1003 >/dev/null 2>&1 </dev/null & exit'\n"
                         "echo ready\n"
                         "while :; do sleep 1004; done\n");
}

std::string program_of(const Cluster& cluster, const std::string& kind) {
    return kind == "tree" ? tree_program(cluster) : stubborn_program(cluster);
}

void check_nothing_left(const Cluster& cluster, milliseconds limit = kGone) {
    const bool gone = cluster.wait_all_gone({}, limit);
    UNSCOPED_INFO("left: " << (gone ? "" : cluster.leftovers()));
    CHECK(gone);
}

/// All processes of the host that fit, killed as one.
void kill_all(Cluster& cluster, const std::string& host, const Cluster::Predicate& fits) {
    std::vector<pid_t> pids;
    for (const Process& process : cluster.processes(host))
        if (fits(process)) pids.push_back(process.pid_outside);
    REQUIRE_FALSE(pids.empty());
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
}

Lines job_words(const std::string& program, Lines options = {}) {
    options.insert(options.end(), {"-H", kOnTwo, program});
    return options;
}

TEST_CASE("the first rank that fails gives the exit code, and the report tells all about it",
          "[cluster][endings][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(cluster, "fail",
                                              "#!/bin/sh\n" + shell_meeting(cluster) +
                                                  "here\n"
                                                  "[ $DTRUN_RANK = 2 ] || exec sleep 60\n"
                                                  "echo out\n"
                                                  "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do\n"
                                                  "    echo \"line $i\" >&2\n"
                                                  "done\n"
                                                  "printf 'the cause' >&2\n"
                                                  "await 4\n"
                                                  "exit 42\n");
    const Finished done = cluster.dtrun(job_words(program));
    INFO(done.err);
    CHECK(done.exit_code == 42);
    CHECK(done.out == "[2]<stdout>:out\n");
    const std::string said = without_news(done.err);
    const Lines report = lines_of(std::string_view(said).substr(said.find("dtrun: ")));
    REQUIRE(report.size() == 13);
    CHECK_THAT(report[0], Matches("dtrun: rank 2 on s2 \\(pid [0-9]+\\) exited with code 42 after "
                                  "[0-9.]+ s"));
    CHECK(report[1] == "  last 10 lines of its standard error:");
    CHECK(report[2] == "  | line 4");
    CHECK(report[11] == "  | the cause");
    CHECK_THAT(report[12], Catch::StartsWith("  3 other ranks ended by dtrun"));
    check_nothing_left(cluster);
}

TEST_CASE("a rank that dies of a signal gives 128 + n and the signal's name",
          "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const auto& [number, name] :
         {std::pair{"KILL", "SIGKILL"}, {"SEGV", "SIGSEGV"}, {"TERM", "SIGTERM"}}) {
        const std::string script = shell_meeting(cluster) +
                                   "here; [ $RANK = 0 ] && exec sleep 60; await 2; ulimit -c 0; "
                                   "kill -$0 $$";
        const Finished done = cluster.dtrun({"-H", "s1,s2", "sh", "-c", script, number});
        INFO(done.err);
        const int expected = std::string(number) == "KILL"   ? 137
                             : std::string(number) == "SEGV" ? 139
                                                             : 143;
        CHECK(done.exit_code == expected);
        CHECK_THAT(done.err,
                   Contains(fmt::format("was ended by signal {} ({})", expected - 128, name)) &&
                       Contains("rank 1 on s2") && Contains("it wrote nothing to standard error") &&
                       Contains("1 other rank ended by dtrun") && !Contains("out of memory"));
    }
    check_nothing_left(cluster);
}

TEST_CASE("the ranks that are ended by the first failure get SIGTERM and time to clean up",
          "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(cluster, "clean",
                                              "#!/bin/sh\n" + shell_meeting(cluster) +
                                                  "[ $RANK = 3 ] && { await 3; exit 9; }\n"
                                                  "trap 'sleep 0.3; echo cleaned; exit 0' TERM\n"
                                                  "here\n"
                                                  "while :; do sleep 0.05; done\n");
    const Finished done = cluster.dtrun(job_words(program));
    INFO(done.err);
    CHECK(done.exit_code == 9);
    CHECK(count_of(done.out, "cleaned\n") == 3);
    CHECK_THAT(done.err, Contains("3 other ranks ended by dtrun") && !Contains("had to be killed"));
}

TEST_CASE("ranks that do not heed SIGTERM are killed after --grace", "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string stubborn = stubborn_program(cluster);
    const std::string program =
        write_program(cluster, "one-fails",
                      "#!/bin/sh\n" + shell_meeting(cluster) +
                          fmt::format("[ $RANK = 0 ] || {{ trap '' TERM; here; exec {}; }}\n"
                                      "await 3\necho fails $(date +%s.%N)\nexit 5\n",
                                      stubborn));
    const Finished done = cluster.dtrun(job_words(program, {"--grace", "1.5"}));
    const double took = seconds_after(done.out, "fails ");
    INFO(done.err);
    CHECK(done.exit_code == 5);
    CHECK(took >= 1.5);
    CHECK(took < 5);  // the grace that nobody has asked for
    CHECK_THAT(done.err, Contains("rank 0 on s1") && Contains("3 other ranks ended by dtrun") &&
                             Contains("3 had to be killed"));
    check_nothing_left(cluster, milliseconds(500));
}

TEST_CASE("what ranks leave behind when they end well is ended with the job",
          "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program =
        write_program(cluster, "leaver",
                      "#!/bin/sh\n"
                      "sleep 1001 &\n"
                      "setsid sh -c 'sleep 1002 & exit'\n"
                      "setsid sh -c 'env -i sleep 1003 >/dev/null 2>&1 </dev/null & exit'\n"
                      "echo done\n");
    const Finished done = cluster.dtrun(job_words(program));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "done\n") == kRanks);
    check_nothing_left(cluster, milliseconds(500));

    // They may take their time while ranks still run.
    const std::string script =
        shell_meeting(cluster) +
        "[ $RANK = 1 ] && { await 1; exit; }; (sleep 0.5; echo 'from the child'; here) & exit 0";
    const Finished later = cluster.dtrun({"-H", "s1:2", "sh", "-c", script});
    CHECK(later.out == "[0]<stdout>:from the child\n");
}

TEST_CASE("a rank may die while others are only starting", "[cluster][endings][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (int round = 0; round < 3; ++round) {
        const Finished done = cluster.dtrun(
            {"-H", "s1:8,s2:8,s3:8", "sh", "-c", "[ $RANK = 0 ] && exit 11; exec sleep 60"});
        INFO(done.err);
        CHECK(done.exit_code == 11);
        // Those that were never started are not among those that were ended.
        CHECK_THAT(done.err, Contains("rank 0 on s1") && Contains("other ranks ended by dtrun"));
        check_nothing_left(cluster, milliseconds(500));
    }
}

TEST_CASE("Ctrl-C once ends the ranks with SIGTERM and dtrun with 130",
          "[cluster][endings][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun(job_words(tree_program(cluster)));
    REQUIRE(wait_for_count(job, "ready", kRanks));
    job.signal(SIGINT);
    const Finished done = job.wait(kGone + kSlack);
    INFO(done.err);
    CHECK(done.exit_code == 130);
    CHECK_THAT(done.err, Contains("Ctrl-C again") &&
                             Contains("dtrun: ended by signal 2 (SIGINT)") &&
                             Contains("4 ranks ended by dtrun"));
    check_nothing_left(cluster, milliseconds(500));
}

TEST_CASE("Ctrl-C twice kills ranks that do not heed the first, at once", "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun(job_words(stubborn_program(cluster), {"--grace", "50"}));
    REQUIRE(wait_for_count(job, "ready", kRanks));
    job.signal(SIGINT);
    REQUIRE(job.wait_for_output("Ctrl-C again"));
    usleep(300'000);
    CHECK_FALSE(job.finished());
    job.signal(SIGINT);
    const Finished done = job.wait(milliseconds(2000) + kSlack);
    INFO(done.err);
    CHECK_FALSE(done.timed_out);
    CHECK(done.exit_code == 130);
    CHECK_THAT(done.err, Contains("4 had to be killed"));
    check_nothing_left(cluster, milliseconds(500));
}

TEST_CASE("Ctrl-C typed on a terminal, once or twice, ends the job", "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.terminal = true;
    {
        Running job = cluster.start_dtrun(job_words(tree_program(cluster)), options);
        REQUIRE(wait_for_count(job, "ready", kRanks));
        job.write_stdin("\x03");
        const Finished done = job.wait(kGone + kSlack);
        INFO(done.out);
        CHECK(done.exit_code == 130);
        CHECK_THAT(done.out, Contains("dtrun: ended by signal 2 (SIGINT)"));
    }
    {
        Running job =
            cluster.start_dtrun(job_words(stubborn_program(cluster), {"--grace", "50"}), options);
        REQUIRE(wait_for_count(job, "ready", kRanks));
        job.write_stdin("\x03");
        REQUIRE(job.wait_for_output("Ctrl-C again"));
        job.write_stdin("\x03");
        const Finished done = job.wait(milliseconds(2000) + kSlack);
        INFO(done.out);
        CHECK(done.exit_code == 130);
    }
    check_nothing_left(cluster, milliseconds(500));
}

TEST_CASE("TERM, HUP and QUIT go to the ranks, and dtrun exits with 128 + n",
          "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(
        cluster, "tell",
        "#!/bin/sh\n"
        "for name in TERM HUP QUIT INT; do trap \"echo got $name; exit 0\" $name; done\n"
        "echo ready\n"
        "while :; do sleep 0.05; done\n");
    for (const auto& [number, name] :
         {std::pair{SIGTERM, "TERM"}, {SIGHUP, "HUP"}, {SIGQUIT, "QUIT"}}) {
        Running job = cluster.start_dtrun(job_words(program));
        REQUIRE(wait_for_count(job, "ready", kRanks));
        job.signal(number);
        const Finished done = job.wait(kGone + kSlack);
        INFO(done.err);
        CHECK(done.exit_code == 128 + number);
        CHECK(count_of(done.out, fmt::format("got {}\n", name)) == kRanks);
        CHECK_THAT(done.err, Contains(fmt::format("ended by signal {} (SIG{})", number, name)));
    }
    check_nothing_left(cluster, milliseconds(500));
}

TEST_CASE("a signal that the caller of dtrun ignores, as nohup does, is ignored",
          "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start("head", {"nohup", Cluster::program(), "-H", "s1", "sh", "-c",
                                         "echo ready; sleep 1; echo end"});
    REQUIRE(job.wait_for_output("ready"));
    job.signal(SIGHUP);
    const Finished done = job.wait();
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("end\n"));
}

TEST_CASE("USR1 and USR2 are passed on to the ranks and end nothing", "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(cluster, "usr",
                                              "#!/bin/sh\n"
                                              "trap 'echo got one' USR1\n"
                                              "trap 'echo got two; exit 0' USR2\n"
                                              "echo ready\n"
                                              "while :; do sleep 0.05; done\n");
    Running job = cluster.start_dtrun(job_words(program));
    REQUIRE(wait_for_count(job, "ready", kRanks));
    job.signal(SIGUSR1);
    REQUIRE(wait_for_count(job, "got one", kRanks));
    CHECK_FALSE(job.finished());
    job.signal(SIGUSR2);
    const Finished done = job.wait();
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "got two") == kRanks);
}

TEST_CASE("TSTP stops the ranks and dtrun, CONT lets them go on", "[cluster][endings][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun(
        {"-H", kOnTwo, "sh", "-c",
         "echo ready; i=0; while [ $i -lt 40 ]; do sleep 0.05; i=$((i+1)); done"});
    REQUIRE(wait_for_count(job, "ready", kRanks));
    const auto rank_states = [&](char state) {
        int count = 0;
        for (const char* host : {"s1", "s2"})
            for (const Process& process : cluster.processes(host))
                if (process.cmdline.starts_with("sh -c echo ready"))
                    count += state_of(process.pid_outside) == state;
        return count;
    };
    job.signal(SIGTSTP);
    CHECK(wait_until([&] { return rank_states('T') == static_cast<int>(kRanks); }, kGone));
    CHECK(wait_until([&] { return state_of(job.pid()) == 'T'; }, kGone));
    usleep(500'000);
    CHECK_FALSE(job.finished());
    job.signal(SIGCONT);
    CHECK(wait_until([&] { return rank_states('T') == 0; }, kGone));
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
}

TEST_CASE("ranks that were stopped by TSTP end when the job is ended", "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun(job_words(tree_program(cluster)));
    REQUIRE(wait_for_count(job, "ready", kRanks));
    job.signal(SIGTSTP);
    REQUIRE(wait_until([&] { return state_of(job.pid()) == 'T'; }, kGone));
    job.signal(SIGCONT);
    job.signal(SIGTERM);
    CHECK(job.wait(kGone + kSlack).exit_code == 143);
    check_nothing_left(cluster, milliseconds(500));
}

TEST_CASE("SIGKILL of dtrun leaves no process of the job on any host",
          "[cluster][endings][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const std::string kind : {"tree", "stubborn"}) {
        INFO(kind);
        Running job =
            cluster.start_dtrun({"-H", "s1:2,localhost:1,s2:1", program_of(cluster, kind)});
        REQUIRE(wait_for_count(job, "ready", kRanks));
        job.signal(SIGKILL);
        check_nothing_left(cluster);
    }
}

TEST_CASE("SIGKILL of an agent, its guard or its sshd leaves no process and ends the job with 204",
          "[cluster][endings][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    struct Victim {
        const char* name;
        bool (*is_it)(const Process&);
    };
    for (const auto& [name, is_it] :
         {Victim{"agent", is_agent}, {"guard", is_guard}, {"sshd", is_session}}) {
        for (const std::string kind : {"tree", "stubborn"}) {
            INFO(name << ", " << kind);
            Running job =
                cluster.start_dtrun(job_words(program_of(cluster, kind), {"--grace", "2"}));
            REQUIRE(wait_for_count(job, "ready", kRanks));
            kill_all(cluster, "s2", is_it);
            check_nothing_left(cluster);
            const Finished done = job.wait(kGone);
            INFO(done.err);
            CHECK(done.exit_code == 204);
            CHECK_THAT(done.err,
                       Contains("dtrun: host s2 lost: ") && Contains("other ranks ended"));
        }
    }
}

TEST_CASE("SIGKILL of an agent together with its guard leaves nothing that the job's name marks",
          "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const char* where : {kOnTwo, "s2:2,localhost:2"}) {
        INFO(where);
        Running job = cluster.start_dtrun({"--grace", "1", "-H", where, stubborn_program(cluster)});
        REQUIRE(wait_for_count(job, "ready", kRanks));
        const std::string host = std::string(where) == kOnTwo ? "s2" : "head";
        kill_all(cluster, host, [](const Process& process) {
            return is_agent(process) || is_guard(process) || process.name == "dtrun-agent";
        });
        // One process of each rank has thrown its environment away, and with it the mark.
        const auto marked = [](const Process& process) { return process.cmdline != "sleep 1003"; };
        const bool gone = cluster.wait_all_gone(marked, milliseconds(10'000));
        INFO(cluster.leftovers());
        CHECK(gone);
        CHECK(job.wait(milliseconds(10'000)).exit_code == 204);
        cluster.reset();
    }
}

TEST_CASE("SIGTERM for an agent or its guard ends the job there in order",
          "[cluster][endings][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const auto& is_it : {is_agent, is_guard}) {
        Running job = cluster.start_dtrun(job_words(tree_program(cluster)));
        REQUIRE(wait_for_count(job, "ready", kRanks));
        ::kill(find_process(cluster, "s1", is_it).pid_outside, SIGTERM);
        check_nothing_left(cluster);
        const Finished done = job.wait(kGone);
        INFO(done.err);
        CHECK(done.exit_code == 204);
        CHECK_THAT(done.err, Contains("host s1 lost"));
    }
}

TEST_CASE("a host that is cut off, loudly or silently, or crashes is lost: the job ends with 204",
          "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(4);
    // New hosts lack the agent, and three jobs that copy it at once take their time.
    REQUIRE(cluster.dtrun({"-H", cluster.host_list(), "true"}).exit_code == 0);
    const auto start = [&](const std::string& hosts, const std::string& program) {
        return cluster.start_dtrun({"--grace", "1", "-H", hosts, program});
    };
    // At the same time, since noticing takes some.
    Running cut = start("s1:2,s2:2", stubborn_program(cluster));
    Running silent = start("s1:2,s3:2", tree_program(cluster));
    Running crashed = start("s1:2,s4:2", tree_program(cluster));
    for (Running* job : {&cut, &silent, &crashed}) {
        const bool ready = wait_for_count(*job, "ready", kRanks);
        INFO(job->out_so_far() << job->err_so_far());
        REQUIRE(ready);
    }
    cluster.kill_link("s2", Cluster::Cut::carrier);
    cluster.kill_link("s3", Cluster::Cut::silent);
    cluster.crash("s4");
    for (const auto& [job, host] : {std::pair{&cut, "s2"}, {&silent, "s3"}, {&crashed, "s4"}}) {
        const Finished done = job->wait(milliseconds(20'000));
        INFO(host << ": " << done.err);
        CHECK_FALSE(done.timed_out);
        CHECK(done.exit_code == 204);
        CHECK_THAT(done.err, Contains(fmt::format("dtrun: host {} lost: ", host)));
    }
    // Hosts that are cut off end their ranks by themselves.
    const auto of_job = [](const Process& process) { return !is_session(process); };
    const bool gone = cluster.wait_all_gone(of_job, milliseconds(3000));
    INFO(cluster.leftovers());
    CHECK(gone);
}

TEST_CASE("an agent that stops answering does not keep the job from ending", "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun(job_words(tree_program(cluster), {"--grace", "0.5"}));
    REQUIRE(wait_for_count(job, "ready", kRanks));
    ::kill(find_process(cluster, "s2", is_agent).pid_outside, SIGSTOP);
    job.signal(SIGTERM);
    const Finished done = job.wait(milliseconds(25'000));
    INFO(done.err);
    CHECK_FALSE(done.timed_out);
    CHECK(done.exit_code == 143);
    CHECK_THAT(done.err, Contains("s2"));
}

/// A limit of memory for processes of hosts; none where this machine has no such control group.
class MemoryLimit {
public:
    explicit MemoryLimit(long bytes) {
        for (const auto& [base, file] :
             {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
              {"/sys/fs/cgroup", "memory.max"}}) {
            const fs::path group = fs::path(base) / fmt::format("dtrun-test-{}", getpid());
            std::error_code failed;
            if (!fs::create_directory(group, failed)) continue;
            group_ = group;
            std::ofstream limit(group / file);
            if (limit << bytes << std::flush) return;
            fs::remove(group, failed);
            group_.clear();
        }
    }
    ~MemoryLimit() {
        std::error_code ignored;
        const auto removed = [&] { return group_.empty() || fs::remove(group_, ignored); };
        wait_until(removed, milliseconds(2000));
    }
    MemoryLimit(const MemoryLimit&) = delete;
    MemoryLimit& operator=(const MemoryLimit&) = delete;

    bool works() const { return !group_.empty(); }
    void hold(pid_t pid_outside) {
        std::ofstream procs(group_ / "cgroup.procs");
        REQUIRE(procs << pid_outside << std::flush);
    }

private:
    fs::path group_;
};

TEST_CASE("a rank that the kernel ends for want of memory is reported so", "[cluster][endings]") {
    Cluster& cluster = Cluster::shared(kHosts);
    MemoryLimit limit(48 << 20);
    if (!limit.works()) {
        WARN("no memory control group can be made here: not tested");
        return;
    }
    const fs::path go = cluster.scratch() / "go";
    fs::remove(go);
    const std::string program = write_program(cluster, "eat.py",
                                              fmt::format(R"(#!/usr/bin/python3 -S
import os, time
if os.environ["RANK"] == "1":
    print("hungry", flush=True)
    while not os.path.exists("{}"):
        time.sleep(0.02)
    eaten = [bytes(b"x" * (1 << 20)) for _ in range(200)]
time.sleep(60)
)",
                                                          go.native()));
    Running job = cluster.start_dtrun({"-H", "s1,s2", program});
    REQUIRE(job.wait_for_output("hungry"));
    limit.hold(find_process(cluster, "s2", [](const Process& process) {
                   return process.cmdline.find("eat.py") != std::string::npos;
               }).pid_outside);
    std::ofstream(go) << "";
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 137);
    CHECK_THAT(done.err, Contains("rank 1 on s2") && Contains("signal 9 (SIGKILL)") &&
                             Contains("out of memory"));
    check_nothing_left(cluster);
}

}  // namespace test_endings
