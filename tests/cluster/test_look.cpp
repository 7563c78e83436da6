// Looking into ranks on other hosts: wrappers, limits, stacks, terminals and debuggers.
#include "tests/cluster/support/ranks.h"

#include "tests/cluster/support/cluster.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <unistd.h>
#include <csignal>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_look {

constexpr int kHosts = 4;

/// Runs a shell's line on head, in which "$DTRUN" is dtrun.
Finished run_line(Cluster& cluster, const std::string& line) {
    return cluster.run("head", {"sh", "-c", "DTRUN=" + Cluster::program() + "; " + line});
}

TEST_CASE("ranks elsewhere have the caller's limit of core files", "[cluster][look]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const char* limit : {"8", "0"}) {
        const Finished done = run_line(
            cluster,
            fmt::format("ulimit -S -c {}; $DTRUN -H s1,s2 --tag none sh -c 'ulimit -c'", limit));
        INFO(done.err);
        CHECK(done.exit_code == 0);
        CHECK(lines_of(done.out) == Lines{limit, limit});
    }
}

TEST_CASE("a wrapper that some host lacks is named, and nothing starts", "[cluster][look]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        cluster.dtrun({"-H", "s1,s2", "--wrap", "no-such-perf record {}", "echo", "started"});
    CHECK(done.exit_code == 127);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, Contains("s1 and s2: --wrap: no-such-perf: not found on PATH"));
}

TEST_CASE("dtrun -d returns when the ranks of all hosts run, or with why one cannot",
          "[cluster][look][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished started = cluster.dtrun({"-d", "-H", "s1:2,s2:2", "sleep", "60"});
    INFO(started.err);
    CHECK(started.exit_code == 0);
    CHECK_FALSE(started.output_open);
    CHECK(cluster.processes("s1").size() == cluster.processes("s2").size());
    const Finished seen = cluster.dtrun({"jobs"});
    CHECK_THAT(seen.out, Contains("running") && Contains("4 of 4"));
    CHECK(cluster.dtrun({"end", "--now", lines_of(started.out).at(0)}).exit_code == 0);
    CHECK(cluster.wait_all_gone());

    // A file that somebody writes to cannot be executed, and nobody sees that before.
    for (const char* const host : {"s1", "s2"})
        CHECK(cluster.run(host, {"cp", "/bin/sleep", "/tmp/p"}).exit_code == 0);
    Running writer = cluster.start("s2", {"sh", "-c", "exec 3>>/tmp/p; echo open; exec sleep 60"});
    REQUIRE(writer.wait_for_output("open"));
    const Finished failed = cluster.dtrun({"-d", "-H", "s1:2,s2:1", "/tmp/p", "60"});
    writer.signal(SIGKILL);
    CHECK(failed.exit_code == 126);
    CHECK_FALSE(failed.output_open);
    CHECK_THAT(failed.err, Contains("rank 2 on s2") && !Contains("runs on without"));
    CHECK(cluster.wait_all_gone());
}

/// The port at which a rank waits for its debugger, from what dtrun says of it.
std::string debugger_port(Running& job) {
    REQUIRE(job.wait_for_output("gdb -ex 'target remote 127.0.0.1:"));
    const std::string said = job.err_so_far();
    const std::size_t at = said.find("target remote 127.0.0.1:") + 24;
    return said.substr(at, said.find('\'', at) - at);
}

TEST_CASE("a debugger here reaches a rank behind a relay, and the other ranks run",
          "[cluster][look][sanitized]") {
    if (::access("/usr/bin/gdbserver", X_OK) != 0 || ::access("/usr/bin/gdb", X_OK) != 0)
        skip("no gdb, or no gdbserver");
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun({"-H", "s1,s2,s3,s4", "--tree-threshold", "2", "--debug-rank",
                                       "3:gdb", "sh", "-c", "echo on $(hostname)"});
    const std::string port = debugger_port(job);
    REQUIRE(job.wait_for_output("[2]<stdout>:on s3"));
    const Finished debugged =
        cluster.run("head", {"gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex",
                             "set auto-load off", "-ex", "set follow-fork-mode parent", "-ex",
                             "target remote 127.0.0.1:" + port, "-ex", "continue"});
    INFO(debugged.out << debugged.err);
    CHECK_THAT(debugged.out, Contains("exited normally"));
    const Finished done = job.wait();
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("[3]<stdout>:on s4\n"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("dtrun stacks tells where the ranks of all hosts are, dtrun top what they use",
          "[cluster][look][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun({"-H", "s1:2,s2:2,s3,s4", "--tree-threshold", "2", "sh", "-c",
                                       "echo up; [ $RANK = 0 ] && echo job=$DTRUN_JOB; "
                                       "[ $RANK = 4 ] && exec tail -f /dev/null; exec sleep 60"});
    REQUIRE(wait_for_count(job, "up", 6));
    REQUIRE(job.wait_for_output("job="));
    const std::string said = job.out_so_far();
    const std::string id = said.substr(said.find("job=") + 4, 8);  // others of root's may run here
    const bool found = wait_until(
        [&] {
            const Finished stacks = cluster.run("head", {Cluster::program(), "stacks", id});
            UNSCOPED_INFO(stacks.out << stacks.err);
            return stacks.exit_code == 0 &&
                   stacks.out.find("ranks 0-3, 5 (5): sleep, by ") != std::string::npos &&
                   stacks.out.find("rank 4 on s3, pid ") != std::string::npos;
        },
        milliseconds(20'000));
    CHECK(found);
    // What they use is told by all hosts, too, and behind a relay.
    const Finished top = cluster.run("head", {Cluster::program(), "top", id, "--json"});
    INFO(top.out << top.err);
    CHECK(top.exit_code == 0);
    std::size_t measured = 0;
    for (std::size_t at = 0; (at = top.out.find("\"cpu_s\":", at)) != std::string::npos; ++at)
        ++measured;
    CHECK(measured == 6);
    const Finished ended = cluster.run("head", {Cluster::program(), "end", id});
    CHECK_THAT(ended.out, Contains(" has ended\n"));
    CHECK(job.wait().exit_code == 143);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a shell on another host has the user's terminal, and is left with its code",
          "[cluster][look][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.terminal = true;
    options.rows = 41;
    options.columns = 97;
    Running job =
        cluster.start_dtrun({"-H", "s1,s2", "--pty=1", "sh", "-c",
                             "[ $RANK = 0 ] && exec sleep 60; echo not shown $RANK; exec sh"},
                            options);
    REQUIRE(job.wait_for_output("not shown 1"));
    job.write_stdin("stty size; hostname\r");
    REQUIRE(job.wait_for_output(
        "41 97\r\ns2\r\n# "));  // what is typed before its prompt stands before it
    // Until the program has the terminal, the shell itself takes Ctrl-C, and then waits for the program.
    job.write_stdin("sh -c 'echo up; exec sleep 50'\r");
    REQUIRE(job.wait_for_output("\r\nup\r\n"));
    job.write_stdin("\x03");
    REQUIRE(job.wait_for_output("^C\r\n# "));  // a shell forgets what comes before its prompt
    job.write_stdin("exit 5\r");
    const Finished done = job.wait();
    INFO(done.out);
    CHECK(done.exit_code == 5);
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_look
