// Hosts that are lost, and hosts that only look like it.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <csignal>
#include <thread>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Catch::Matches;
using Lines = std::vector<std::string>;

namespace test_heartbeat {

constexpr int kHosts = 3;

Running start_sleepers(Cluster& cluster, Lines options = {}) {
    options.insert(options.end(),
                   {"--grace", "1", "-H", "s1:2,s2:2", "sh", "-c", "echo ready; sleep $0", "9"});
    return cluster.start_dtrun(options);
}

std::string lossy_script() {
    return std::string(DTRUN_CLUSTER_DIR) + "/support/lossy.py";
}

void check_fine(Running& job) {
    const Finished done = job.wait(milliseconds(25'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "ready") == 4);
}

TEST_CASE("a host that hangs is lost after the heartbeat timeout, whose length is told",
          "[cluster][heartbeat]") {
    Cluster& cluster = Cluster::shared(kHosts);
    // dtrun looks for four seconds whether anything is left on the host before it ends, and sshd with it.
    // A host that has said that its machine is busy, as this one may be, has four timeouts; that others
    // have one is shown over loopback.
    for (const auto& [flag, from, to] : {std::tuple{"3", 2'500, 18'500}, {"1.5", 1'000, 12'500}}) {
        Running job = cluster.start_dtrun({"--heartbeat-timeout", flag, "--grace", "0.5", "-H",
                                           "s1:2,s2:2", "sh", "-c", "echo ready; sleep 60"});
        REQUIRE(wait_for_count(job, "ready", 4));
        const auto start = std::chrono::steady_clock::now();
        cluster.freeze("s2");
        REQUIRE(wait_until([&] { return cluster.wait_gone("s1", {}, milliseconds(1)); },
                           milliseconds(25'000)));
        const auto took =
            std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
        CHECK(took.count() > from);
        CHECK(took.count() < to);
        const Finished done = job.wait(milliseconds(25'000));
        INFO(done.err);
        CHECK(done.exit_code == 204);
        CHECK_THAT(done.err, Contains("dtrun: host s2 lost: last heard "));
        cluster.thaw("s2");
        CHECK(cluster.wait_all_gone({}, milliseconds(8'000)));
    }
}

TEST_CASE("a host that is cut off in silence ends its ranks by itself", "[cluster][heartbeat]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun(
        {"--grace", "1", "-H", "s1:2,s2:2", "sh", "-c", "echo ready; sleep 60"});
    REQUIRE(wait_for_count(job, "ready", 4));
    cluster.kill_link("s2", Cluster::Cut::silent);
    const auto not_session = [](const Process& process) { return !is_session(process); };
    // Three seconds of silence and one of grace; who is late in looking, on a busy machine, blames nobody yet. What it takes
    // elsewhere is shown over loopback.
    CHECK(cluster.wait_gone("s2", not_session, milliseconds(12'000)));
    const Finished done = job.wait();
    INFO(done.err);
    CHECK(done.exit_code == 204);
    CHECK_THAT(done.err,
               Matches("(.|\n)*dtrun: host s2 lost: last heard [3-7]\\.[0-9] s ago\n(.|\n)*"));
}

TEST_CASE("an agent, or dtrun itself, that is stopped for two seconds is not lost",
          "[cluster][heartbeat]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = start_sleepers(cluster);
    REQUIRE(wait_for_count(job, "ready", 4));
    for (const pid_t pid : {find_process(cluster, "s2", is_agent).pid_outside, job.pid()}) {
        ::kill(pid, SIGSTOP);
        std::this_thread::sleep_for(milliseconds(2'000));
        ::kill(pid, SIGCONT);
        std::this_thread::sleep_for(milliseconds(300));
    }
    check_fine(job);
}

TEST_CASE("dtrun that was stopped for long does not blame its hosts, nor they it",
          "[cluster][heartbeat]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun({"--heartbeat-timeout", "2", "--grace", "1", "-H",
                                       "s1:2,s2:2", "sh", "-c", "echo ready; sleep 9"});
    REQUIRE(wait_for_count(job, "ready", 4));
    // Nor do they give it up before four timeouts: its machine answers them.
    ::kill(job.pid(), SIGSTOP);
    std::this_thread::sleep_for(milliseconds(5'000));
    ::kill(job.pid(), SIGCONT);
    check_fine(job);
}

TEST_CASE("half of all packets lost for two seconds is no lost host", "[cluster][heartbeat]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = start_sleepers(cluster);
    REQUIRE(wait_for_count(job, "ready", 4));
    for (int round = 0; round < 2; ++round) {
        Running there = cluster.start("s2", {"/usr/bin/python3", lossy_script(), "eth0", "2"});
        Running here = cluster.start("head", {"/usr/bin/python3", lossy_script(), "eth0", "2"});
        for (Running* lossy : {&there, &here}) {
            REQUIRE(lossy->wait_for_output("losing"));
            const Finished done = lossy->wait();
            INFO(done.err);
            CHECK(done.exit_code == 0);
        }
        std::this_thread::sleep_for(milliseconds(1'500));  // TCP catches up
    }
    check_fine(job);
}

TEST_CASE("hosts whose processors are all taken are not lost", "[cluster][heartbeat]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = start_sleepers(cluster);
    REQUIRE(wait_for_count(job, "ready", 4));
    // On every processor several that never sleep.
    Running hogs = cluster.start(
        "s3",
        {"sh", "-c", "for i in $(seq 24); do timeout 6 sh -c 'while :; do :; done' & done; wait"});
    check_fine(job);
    hogs.wait();
}

}  // namespace test_heartbeat
