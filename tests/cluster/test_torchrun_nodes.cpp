// torchrun's elastic words on real hosts: all of them from one command, and the same command on each.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_torchrun_nodes {

constexpr int kHosts = 3;

/// A file, at which ranks end, and the program that waits for it after it has said where each rank is.
struct Ending {
    std::string file;
    explicit Ending(Cluster& cluster) : file(cluster.scratch() / "nodes-end") {
        std::filesystem::remove(file);
    }
    std::string program() const {
        return fmt::format(
            "echo "
            "g$TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS:$RANK/$WORLD_SIZE@$(hostname):"
            "$LOCAL_WORLD_SIZE; until [ -e {} ]; do sleep 0.1; done",
            file);
    }
    void come() const { std::ofstream(file) << "end"; }
};

/// Starts `dtrun torchrun` on a host, with a secret that all hosts have unless `secret` is another one.
Running start_node(Cluster& cluster, const std::string& host, Lines words,
                   const std::string& secret = "shared") {
    // Each node has a file of its own: the other one may read its own while this is written.
    const std::string file = cluster.scratch() / ("secret-" + secret + "-" + host);
    std::ofstream(file) << secret << "-0123456789abcdef0123456789abcdef\n";
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    words.insert(words.begin(), {Cluster::program(), "torchrun"});
    RunOptions options;
    options.env = {{"DTRUN_SECRET_FILE", file}};
    return cluster.start(host, words, options);
}

Lines by_hand(const std::string& nodes, const std::string& program, Lines more = {}) {
    Lines words{"--nnodes",       nodes,  "--nproc-per-node", "2",       "--rdzv-id", "100",
                "--rdzv-backend", "c10d", "--rdzv-endpoint",  "s1:29400"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--no-python", "sh", "-c", program});
    return words;
}

TEST_CASE("torchrun's --nnodes MIN:MAX goes on in whole hosts when one is lost, and takes it back",
          "[cluster][torchrun][elastic][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Ending end(cluster);
    Running job = cluster.start_dtrun({"torchrun", "--nnodes", "2:3", "--nproc-per-node", "2",
                                       "--blacklist-cooldown-range", "2", "20", "-H", "s1,s2,s3",
                                       "--no-python", "sh", "-c", end.program()});
    REQUIRE(wait_for_count(job, "g0/0:", 6));
    cluster.crash("s1");
    REQUIRE(wait_for_count(job, "g1/0:", 4));  // --max-restarts 0: the loss of a host is no failure
    CHECK_THAT(job.out_so_far(), Contains("g1/0:0/4@s2:2") && Contains("g1/0:3/4@s3:2"));
    cluster.boot("s1");
    REQUIRE(wait_for_count(job, "g2/0:", 6));
    end.come();
    const Finished done = job.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("host s1 lost"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE(
    "the same torchrun command on two nodes is one job, whoever comes first, and outlives one",
    "[cluster][torchrun][elastic][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Ending end(cluster);
    Running second = start_node(cluster, "s2", by_hand("1:2", end.program()));
    Running first = start_node(cluster, "s1", by_hand("1:2", end.program()));
    REQUIRE(wait_until(
        [&] {
            return first.out_so_far().find("1/4@s1") != std::string::npos &&
                   second.out_so_far().find("3/4@s2") != std::string::npos;
        },
        milliseconds(20'000)));
    cluster.crash("s2");
    REQUIRE(wait_until([&] { return count_of(first.out_so_far(), "/2@s1:2") >= 2; },
                       milliseconds(20'000)));
    end.come();
    const Finished done = first.wait(milliseconds(20'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("s2: last heard "));
    cluster.boot("s2");
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("nodes that meet at --master-addr have the ranks of their --node-rank",
          "[cluster][torchrun]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = "echo $RANK@$(hostname):$MASTER_ADDR:$MASTER_PORT";
    const auto words = [&program](const char* rank) {
        return Lines{"--nnodes",
                     "2",
                     "--node-rank",
                     rank,
                     "--nproc-per-node",
                     "2",
                     "--master-addr",
                     "s1",
                     "--master-port",
                     "29777",
                     "--no-python",
                     "sh",
                     "-c",
                     program};
    };
    Running second = start_node(cluster, "s2", words("1"));
    Running first = start_node(cluster, "s1", words("0"));
    const Finished of_first = first.wait(milliseconds(30'000));
    const Finished of_second = second.wait(milliseconds(30'000));
    INFO(of_first.err << of_second.err);
    CHECK(sorted_lines(of_first.out) == Lines{"0@s1:s1:29777", "1@s1:s1:29777"});
    CHECK(sorted_lines(of_second.out) == Lines{"2@s2:s1:29777", "3@s2:s1:29777"});
    CHECK(of_first.exit_code == 0);
    CHECK(of_second.exit_code == 0);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a rank that fails on one node restarts all as often as it may, and then ends all nodes",
          "[cluster][torchrun]") {
    Cluster& cluster = Cluster::shared(kHosts);
    // It fails when the ranks of the other node have printed their lines.
    const std::string begun = cluster.scratch() / "nodes-begun";
    std::filesystem::remove_all(begun);
    std::filesystem::create_directory(begun);
    const std::string program = fmt::format(
        "B={}/$TORCHELASTIC_RESTART_COUNT; echo g$TORCHELASTIC_RESTART_COUNT; touch $B.$RANK; "
        "[ $RANK = 3 ] || exec sleep 60; "
        "until [ -e $B.0 ] && [ -e $B.1 ]; do sleep 0.05; done; echo bad >&2; exit 7",
        begun);
    Running first = start_node(cluster, "s1", by_hand("2", program, {"--max-restarts", "1"}));
    Running second = start_node(cluster, "s2", by_hand("2", program, {"--max-restarts", "1"}));
    const Finished of_first = first.wait(milliseconds(30'000));
    const Finished of_second = second.wait(milliseconds(30'000));
    const Finished& failed = of_first.exit_code == 7 ? of_first : of_second;
    const Finished& other = of_first.exit_code == 7 ? of_second : of_first;
    INFO(of_first.err << of_second.err);
    CHECK(failed.exit_code == 7);
    CHECK_THAT(failed.err, Contains("| bad"));
    CHECK(other.exit_code == 204);
    CHECK_THAT(other.err, Contains("rank 3 exited with code 7"));
    CHECK(sorted_lines(other.out) == Lines{"g0", "g0", "g1", "g1"});
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("the loss of the node that serves the job ends it, and says so", "[cluster][torchrun]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Ending end(cluster);
    Running first = start_node(cluster, "s1", by_hand("1:2", end.program()));
    Running second = start_node(cluster, "s2", by_hand("1:2", end.program()));
    REQUIRE(wait_until([&] { return second.out_so_far().find("/4@s2") != std::string::npos; },
                       milliseconds(20'000)));
    cluster.crash("s1");
    const Finished done = second.wait(milliseconds(30'000));
    CHECK(done.exit_code == 204);
    CHECK_THAT(done.err, Contains("s1:29400, which serves the job: last heard "));
    cluster.boot("s1");
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("nodes with different secrets, or without one, are told what to do",
          "[cluster][torchrun]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Ending end(cluster);
    Running first = start_node(cluster, "s1", by_hand("1:2", end.program()));
    REQUIRE(wait_until([&] { return first.out_so_far().find("1/2@s1") != std::string::npos; },
                       milliseconds(20'000)));
    const Finished other = start_node(cluster, "s2", by_hand("1:2", "true"), "other").wait();
    CHECK(other.exit_code == 202);
    CHECK_THAT(other.err, Contains("the nodes' secrets differ; copy ~/.config/dtrun/secret from"));
    Lines words = by_hand("1:2", "true");
    words.insert(words.begin(), {Cluster::program(), "torchrun"});
    const Finished none = cluster.start("s2", words, {}).wait();
    CHECK(none.exit_code == 200);
    CHECK_THAT(none.err, Contains("no secret that all nodes share") && Contains("is missing") &&
                             Contains("start this command on s1 first"));
    end.come();
    CHECK(first.wait(milliseconds(20'000)).exit_code == 0);
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_torchrun_nodes
