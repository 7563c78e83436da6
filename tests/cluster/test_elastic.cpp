// Elastic jobs on real hosts: what only the operating system can show. Decisions are tested in
// tests/rendezvous/test_membership.cpp and tests/loopback/test_elastic_loopback.cpp.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_elastic {

constexpr int kHosts = 4;

/// Runs until a file is there, and says where each rank is.
std::string program_until(const std::string& file) {
    return fmt::format(
        "echo g$DTRUN_GENERATION:$RANK/$WORLD_SIZE@$DTRUN_HOST:$DTRUN_MIN_NP-$DTRUN_MAX_NP; "
        "until [ -e {} ]; do sleep 0.1; done",
        file);
}

Running start_elastic(Cluster& cluster, const std::string& program, Lines options = {}) {
    Lines words{"--min-np", "4",  "--blacklist-cooldown-range", "2", "20", "--tag", "none", "-np",
                "8",        "-H", cluster.host_list(2, kHosts)};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"sh", "-c", program});
    return cluster.start_dtrun(words);
}

/// Processes of this program that wait in a Unix socket: they are kept ready.
std::size_t count_ready(const Cluster& cluster, const std::string& program) {
    std::size_t count = 0;
    for (const char* host : {"s1", "s2"})
        for (const Process& process : cluster.processes(host))
            if (process.cmdline.find(program) != std::string::npos &&
                file_text(fmt::format("/proc/{}/wchan", process.pid_outside))
                    .starts_with("unix_stream"))
                ++count;
    return count;
}

struct Break {
    double seconds =
        0;  ///< from the death of rank 0 to the first step of the last rank of the next world
    std::size_t imported =
        0;  ///< ranks of that world that had imported what they need when rank 0 died
};

Break pause_of(Cluster& cluster, const std::string& program, Lines options, std::size_t ready) {
    Lines words{"--min-np", "1", "--tag", "none", "-H", "s1:4,s2:4"};
    words.insert(words.end(), options.begin(), options.end());
    const std::string modules = "PYTHONPATH=" + cluster.scratch().string();
    words.insert(words.end(), {modules, "/usr/bin/python3", program});
    Running job = cluster.start_dtrun(words);
    REQUIRE(wait_for_count(job, "g1 ", 8, milliseconds(60'000)));
    REQUIRE(
        wait_until([&] { return count_ready(cluster, program) == ready; }, milliseconds(90'000)));
    const std::string said = job.out_so_far();
    const std::size_t at = said.find("pid0 ");
    REQUIRE(at != std::string::npos);
    const pid_t rank0 = std::stoi(said.substr(at + 5));
    const Process victim = find_process(
        cluster, "s1", [rank0](const Process& process) { return process.pid_inside == rank0; });
    const std::chrono::duration<double> killed =
        std::chrono::system_clock::now().time_since_epoch();
    cluster.kill(victim.pid_outside, SIGKILL);
    const Finished done = job.wait(milliseconds(60'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    Break pause;
    std::size_t steps = 0;
    for (const std::string& line : lines_of(done.out)) {
        double began = 0, imported = 0;
        if (std::sscanf(line.c_str(), "g2 %lf %lf", &began, &imported) != 2) continue;
        pause.seconds = std::max(pause.seconds, began - killed.count());
        pause.imported += imported < killed.count();
        ++steps;
    }
    CHECK(steps == 8);
    CHECK(cluster.wait_all_gone());
    return pause;
}

TEST_CASE("an elastic job outlives a killed rank and a crashed host, and takes the host back",
          "[cluster][elastic][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string file = cluster.scratch() / "elastic-end";
    std::filesystem::remove(file);
    Running job = start_elastic(cluster, program_until(file));
    REQUIRE(wait_for_count(job, "g1:", 8));
    CHECK_THAT(job.out_so_far(), Contains("g1:7/8@s4:4-8"));

    for (const Process& process : cluster.processes("s3"))
        if (process.cmdline.find("until [ -e") != std::string::npos) {
            cluster.kill(process.pid_outside, SIGKILL);
            break;
        }
    REQUIRE(wait_for_count(job, "g2:", 8));

    cluster.crash("s1");  // nobody is told
    REQUIRE(wait_for_count(job, "g3:", 6));
    CHECK_THAT(job.out_so_far(), Contains("g3:0/6@s2") && Contains("g3:5/6@s4"));
    CHECK(cluster.wait_gone("s1"));

    cluster.boot("s1");
    REQUIRE(wait_for_count(job, "g4:", 8));
    CHECK_THAT(job.out_so_far(), Contains("g4:0/8@s2") && Contains("g4:7/8@s1"));

    std::ofstream(file) << "end";
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("was ended by signal 9 (SIGKILL)") &&
                             Contains("dtrun: host s1 lost: last heard ") &&
                             Contains("generation 3: 6 ranks on s2, s3 and s4"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a frozen host is lost, ends its old ranks when it goes on, and joins again as the last",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string file = cluster.scratch() / "thawed-end";
    std::filesystem::remove(file);
    Running job = start_elastic(cluster, program_until(file));
    REQUIRE(wait_for_count(job, "g1:", 8));
    std::set<pid_t> old;
    for (const Process& process : cluster.processes("s3"))
        if (process.cmdline.find("until [ -e") != std::string::npos)
            old.insert(process.pid_outside);
    REQUIRE(old.size() >= 2);

    cluster.freeze("s3");
    REQUIRE(wait_for_count(job, "g2:", 6));
    cluster.thaw("s3");
    CHECK(wait_until(
        [&] {
            return std::ranges::none_of(cluster.processes("s3"), [&](const Process& process) {
                return old.contains(process.pid_outside);
            });
        },
        milliseconds(5'000)));
    REQUIRE(wait_for_count(job, "g3:", 8));
    CHECK_THAT(job.out_so_far(), Contains("g3:7/8@s3"));

    std::ofstream(file) << "end";
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("hosts that a script lists come and go while a job runs", "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string list = cluster.scratch() / "listed", end = cluster.scratch() / "listed-end";
    const std::string script = cluster.scratch() / "discover.sh";
    std::filesystem::remove(end);
    const auto now_lists = [&list](const std::string& text) {
        std::ofstream(list + ".new") << text;
        std::filesystem::rename(list + ".new", list);
    };
    Lines words{"--min-np", "2", "--max-np", "8", "--tag", "none"};
    SECTION("a script") {
        std::ofstream(script) << "#!/bin/sh\ncat " << list << "\n";
        std::filesystem::permissions(script, std::filesystem::perms::all);
        words.insert(words.end(), {"--host-discovery-script", script, "--slots-per-host", "2"});
        now_lists("s1\ns2\n");
    }
    SECTION("or a hostfile") {
        words.insert(words.end(), {"--hostfile", list});
        now_lists("s1:2\ns2:2\n");
    }
    words.insert(words.end(), {"sh", "-c", program_until(end)});
    Running job = cluster.start_dtrun(words);
    REQUIRE(wait_for_count(job, "g1:", 4));
    now_lists("s1:2\ns2:2\ns3:2\n");
    REQUIRE(wait_for_count(job, "g2:", 6));
    CHECK_THAT(job.out_so_far(), Contains("g2:4/6@s3") && Contains("g2:0/6@s1"));
    now_lists("s2:2\ns3:2\n");
    REQUIRE(wait_for_count(job, "g3:", 4));
    CHECK_THAT(job.out_so_far(), Contains("g3:0/4@s2") && Contains("g3:3/4@s3"));
    CHECK(cluster.wait_gone("s1"));
    now_lists("no list: at all");
    REQUIRE(job.wait_for_output("the hosts stay as they are"));
    std::ofstream(end) << "end";
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("ranks that start again are warned by a signal and a file, and may save what they have",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string list = cluster.scratch() / "warned";
    std::ofstream(list) << "s1:1\ns2:1\n";
    Running job = cluster.start_dtrun(
        {"--min-np", "1", "--hostfile", list, "--warn-signal", "USR1", "--tag", "none", "sh", "-c",
         "[ $DTRUN_GENERATION = 1 ] || { echo g2:$WORLD_SIZE; exit 0; }; "
         "trap 'echo saved $(cut -d\" \" -f1,2 $DTRUN_CHANGE_FILE); exit 0' USR1; "
         "echo begun; while :; do sleep 0.1; done"});
    REQUIRE(wait_for_count(job, "begun", 2));
    std::ofstream(list) << "s1:1\n";
    const Finished done = job.wait(milliseconds(25'000));  // less than the 30 s of the warning
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "saved 2 left") == 2);
    CHECK(count_of(done.out, "g2:1") == 1);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a script that fails at the start ends the job, and one that hangs is killed",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished fails =
        cluster.start_dtrun({"--host-discovery-script", "echo no API >&2; exit 3", "true"})
            .wait(milliseconds(20'000));
    CHECK(fails.exit_code == 200);
    CHECK_THAT(fails.err, Contains("no API") && Contains("has ended with exit code 3"));
    Running hangs =
        cluster.start_dtrun({"--elastic-timeout", "1", "--host-discovery-script",
                             "test -e /tmp/begun && sleep 4711; touch /tmp/begun", "true"});
    const Finished waited = hangs.wait(milliseconds(30'000));
    INFO(waited.err);
    CHECK(waited.exit_code == 207);
    CHECK_THAT(waited.err, Contains("now 0 of the 1 that it needs"));
    CHECK(cluster.wait_all_gone());
    for (const Process& process : cluster.processes("head"))
        CHECK(process.cmdline.find("4711") == std::string::npos);
}

TEST_CASE("a program that recovers by itself is left alone when a rank and a host are lost",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string file = cluster.scratch() / "continue-end";
    std::filesystem::remove(file);
    Running job = cluster.start_dtrun(
        {"--on-rank-failure", "continue", "--min-np", "3", "--tag", "none", "-np", "6", "-H",
         "s1:2,s2:2,s3:2", "sh", "-c",
         fmt::format("echo begun; [ $RANK != 1 ] || exit 7; until [ -e {} ]; do sleep 0.1; done",
                     file)});
    REQUIRE(wait_for_count(job, "begun", 6));
    cluster.crash("s3");
    REQUIRE(job.wait_for_output("host s3 lost"));
    std::ofstream(file) << "end";
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("rank 1 on s1") && Contains("exited with code 7") &&
                             Contains("3 ranks ended well, and 3 had to (--min-np): the job has "
                                      "succeeded"));
    cluster.boot("s3");
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("ranks that wait in a connection to a silent host are let go as soon as it is lost",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    // Rank 0 waits for rank 1, which never sends; it may not be ended by SIGTERM.
    const std::string program = R"(
import os, signal, socket, sys, time
if os.environ["DTRUN_GENERATION"] != "1": sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
port = 29871
if os.environ["RANK"] == "1":
    listener = socket.create_server(("", port))
    peer, _ = listener.accept()
    print("ready", flush=True)
    time.sleep(600)
if os.environ["RANK"] == "0":
    while True:
        try:
            peer = socket.create_connection((sys.argv[1], port))
            break
        except OSError:
            time.sleep(0.1)
    print("severed" if peer.recv(1) == b"" else "bytes", flush=True)
)";
    Running job =
        cluster.start_dtrun({"--min-np", "1", "--grace", "20", "--verbose", "--tag", "none", "-H",
                             "s1:1,s2:1", "python3", "-c", program, "10.99.0.2"});
    REQUIRE(wait_for_count(job, "ready", 1));
    cluster.kill_link("s2", Cluster::Cut::silent);
    REQUIRE(wait_for_count(job, "severed", 1));  // long before SIGKILL
    const Finished done = job.wait(milliseconds(30'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("s1: ended 1 connection of ranks to a lost host"));
    cluster.heal_link("s2");
    CHECK(cluster.wait_all_gone({}, milliseconds(20'000)));
}

TEST_CASE("processes that are kept ready take the import out of a restart of all ranks",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    write_program(cluster, "slow_import.py", "import time\ntime.sleep(2)\nat = time.time()\n");
    const std::string program = write_program(cluster, "imports.py", R"(
import os, slow_import, time
generation = os.environ["DTRUN_GENERATION"]
if os.environ["RANK"] == "0": print("pid0", os.getpid(), flush=True)
print("g" + generation, time.time(), slow_import.at, flush=True)
if generation == "1": time.sleep(600)
)");
    const Break usual = pause_of(cluster, program, {}, 0);
    const Break kept = pause_of(cluster, program, {"--standby", "--preload", "slow_import"}, 8);
    WARN(fmt::format("a pause of {:.2f} s, and of {:.2f} s with processes that are kept ready",
                     usual.seconds, kept.seconds));
    CHECK(usual.seconds > 2);
    CHECK(usual.imported == 0);
    CHECK(kept.imported == 8);
    CHECK(kept.seconds < usual.seconds);
}

TEST_CASE("a host that comes back unhealthy is left alone until its health check succeeds",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string file = cluster.scratch() / "health-end";
    const std::string broken = cluster.scratch() / "broken-s1";
    std::filesystem::remove(file);
    std::filesystem::remove(broken);
    const std::string check =
        fmt::format("test ! -e {}/broken-$DTRUN_HOST || {{ echo 'no disk' >&2; exit 4; }}",
                    cluster.scratch().string());
    Running job = cluster.start_dtrun({"--min-np", "1", "--blacklist-cooldown-range", "1", "2",
                                       "--tag", "none", "--health-check", check, "-H", "s1:1,s2:1",
                                       "sh", "-c", program_until(file)});
    REQUIRE(wait_for_count(job, "g1:", 2));
    std::ofstream(broken) << "it is";
    cluster.crash("s1");
    REQUIRE(wait_for_count(job, "g2:0/1@s2", 1));
    cluster.boot("s1");
    const std::string complaint = "s1: --health-check: ended with exit code 4: no disk";
    REQUIRE(wait_until([&] { return job.err_so_far().find(complaint) != std::string::npos; },
                       milliseconds(30'000)));
    CHECK(job.out_so_far().find("g3:") == std::string::npos);
    std::filesystem::remove(broken);
    REQUIRE(wait_for_count(job, "g3:", 2));
    CHECK_THAT(job.out_so_far(), Contains("g3:1/2@s1"));
    std::ofstream(file) << "end";
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.err, complaint) == 1);  // it is told once, however often it is tried
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_elastic
