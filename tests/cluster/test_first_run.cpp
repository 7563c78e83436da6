// The first run on hosts that lack the agent.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>

using namespace dtrun;
using namespace dtrun::cluster;
namespace fs = std::filesystem;

namespace test_first_run {

constexpr int kHosts = 6;

void empty_caches(Cluster& cluster) {
    for (int i = 1; i <= kHosts; ++i)
        cluster.run("s" + std::to_string(i), {"rm", "-rf", "/root/.cache/dtrun"});
}

/// Of the agent and its package, as hosts nearby get them.
long long bytes_of_copy() {
    const fs::path bin = fs::path(Cluster::program()).parent_path();
    return static_cast<long long>(fs::file_size(bin / "dtrun-agent") +
                                  fs::file_size(bin / "dtrun-package.tar.gz"));
}

/// What head has sent through its link since it came up.
long long bytes_sent(Cluster& cluster) {
    const Finished read = cluster.run("head", {"cat", "/sys/class/net/eth0/statistics/tx_bytes"});
    return std::stoll(read.out);
}

TEST_CASE("hosts that have one home get one copy of the agent", "[cluster][first-run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path home = cluster.scratch() / "cache";
    fs::create_directories(home);
    for (int i = 1; i <= kHosts; ++i) {
        const std::string host = "s" + std::to_string(i);
        cluster.run(host, {"mkdir", "-p", "/root/.cache"});
        cluster.bind(host, home, "/root/.cache");
    }
    empty_caches(cluster);
    const long long before = bytes_sent(cluster);
    const Finished done = cluster.dtrun({"-H", cluster.host_list(1, kHosts), "hostname"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(sorted_lines(done.out).size() == kHosts);
    const long long sent = bytes_sent(cluster) - before;
    CHECK(sent > bytes_of_copy() / 4);
    CHECK(sent < bytes_of_copy() * 3 / 2);
    CHECK(cluster.wait_all_gone());
    const Finished left =
        cluster.run("s1", {"sh", "-c", "ls -A /root/.cache/dtrun | grep '^[.][nf]'"});
    CHECK(left.out == "");
}

TEST_CASE("hosts that have the agent hand it on, and nothing is left of that",
          "[cluster][first-run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    empty_caches(cluster);
    Running job = cluster.start_dtrun(
        {"-H", cluster.host_list(1, kHosts), "sh", "-c", "echo ready; sleep 60"});
    REQUIRE(wait_for_count(job, "ready", kHosts));
    const auto gives = [](const Process& process) { return process.name == "dtrun-hand-on"; };
    for (int i = 1; i <= kHosts; ++i)
        CHECK(std::ranges::any_of(cluster.processes("s" + std::to_string(i)), gives));
    job.signal(SIGINT);
    job.wait();
    CHECK(cluster.wait_all_gone());
    const Finished left =
        cluster.run("s1", {"sh", "-c", "ls -A /root/.cache/dtrun | grep '^[.][nf]'"});
    CHECK(left.out == "");
}

}  // namespace test_first_run
