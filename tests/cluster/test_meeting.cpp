// Where ranks meet: an address of rank 0's host that every host reaches, and starting again.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fstream>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_meeting {

constexpr int kHosts = 3;

std::string shell(Cluster& cluster, const std::string& host, const std::string& script) {
    const Finished done = cluster.run(host, {"sh", "-c", script});
    INFO(host << ": " << done.err);
    REQUIRE(done.exit_code == 0);
    return done.out.substr(0, done.out.find('\n'));
}

/// Name and address of a host's interface.
std::string interface_of(Cluster& cluster, const std::string& host) {
    return shell(cluster, host, "ip -o -4 addr show up scope global | awk '{print $2; exit}'");
}
std::string address_of(Cluster& cluster, const std::string& host) {
    return shell(
        cluster, host,
        "ip -o -4 addr show up scope global | awk '{sub(\"/.*\", \"\", $4); print $4; exit}'");
}

/// A second network for two hosts, and no way between them over the first, until the end of a test.
class OtherWay {
public:
    explicit OtherWay(Cluster& cluster, bool with_network) : cluster_(cluster) {
        const std::string first = address_of(cluster, "s1");
        shell(cluster, "s3", "ip route add unreachable " + first + "/32");
        undo_.emplace_back("s3", "ip route del unreachable " + first + "/32");
        if (!with_network) return;
        for (const std::string host : {"s1", "s2", "s3"}) {
            const std::string words =
                "10.123.0." + host.substr(1) + "/24 dev " + interface_of(cluster, host);
            shell(cluster, host, "ip addr add " + words);
            undo_.emplace_back(host, "ip addr del " + words);
        }
    }
    ~OtherWay() {
        for (const auto& [host, script] : undo_) cluster_.run(host, {"sh", "-c", script});
    }

private:
    Cluster& cluster_;
    std::vector<std::pair<std::string, std::string>> undo_;
};

TEST_CASE("ranks meet at the address by which rank 0's host came", "[cluster][meeting]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun({"-H", "s1:2,s2:1,s3:1", "--tag", "none", "sh", "-c",
                                         "echo $MASTER_ADDR $TORCHELASTIC_USE_AGENT_STORE"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    const Lines lines = sorted_lines(done.out);
    CHECK(lines == Lines(4, address_of(cluster, "s1") + " True"));
}

TEST_CASE("ranks beside dtrun itself use the network that the other hosts see",
          "[cluster][meeting]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string here = address_of(cluster, "head");
    const std::string interface = interface_of(cluster, "head");
    const std::string script =
        "echo $(hostname) $MASTER_ADDR $HOROVOD_GLOO_IFACE $GLOO_SOCKET_IFNAME";
    for (const std::string hosts : {"head:1,s1:1", "s1:1,head:1"}) {
        const Finished done = cluster.dtrun({"-H", hosts, "--tag", "none", "sh", "-c", script});
        INFO(hosts << ": " << done.err);
        CHECK(done.exit_code == 0);
        const std::string master = hosts.starts_with("head") ? here : address_of(cluster, "s1");
        CHECK_THAT(done.out, Contains("head " + master + " " + interface + " " + interface + "\n"));
        CHECK_THAT(done.out, Contains("s1 " + master + " " + interface_of(cluster, "s1") + " "));
    }
    const Finished alone = cluster.dtrun({"-np", "2", "--tag", "none", "sh", "-c", script});
    CHECK_THAT(alone.out, Contains("head 127.0.0.1 lo lo\n"));
}

TEST_CASE("where a host does not reach that address, another one is found that all reach",
          "[cluster][meeting]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const OtherWay other(cluster, true);
    const Finished done =
        cluster.dtrun({"-H", "s1:1,s2:1,s3:1", "--tag", "none", "sh", "-c", "echo $MASTER_ADDR"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(without_news(done.err).empty());
    CHECK(sorted_lines(done.out) == Lines(3, "10.123.0.1"));
}

TEST_CASE("a host that reaches no address of rank 0's host is named, and the job starts",
          "[cluster][meeting]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const OtherWay other(cluster, false);
    const Finished done =
        cluster.dtrun({"-H", "s1:1,s2:1,s3:1", "--tag", "none", "sh", "-c", "echo here"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(sorted_lines(done.out) == Lines(3, "here"));
    CHECK_THAT(done.err, Contains("s3 does not reach s1, where rank 0 is: "));
    CHECK_THAT(done.err, Contains("ranks may not find each other"));
    CHECK_THAT(done.err, !Contains("s2 does not reach"));
}

TEST_CASE("--max-restarts starts all ranks again on all hosts, and tells why",
          "[cluster][meeting]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string script =
        "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS at $DTRUN_GENERATION; "
        "if [ $RANK = 2 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then "
        "echo bad luck >&2; exit 9; fi; "
        "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || exec sleep 60";
    const Finished done = cluster.dtrun(
        {"-H", "s1:2,s2:1,s3:1", "--max-restarts", "3", "--tag", "none", "sh", "-c", script});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    const Lines lines = sorted_lines(done.out);
    CHECK(std::count(lines.begin(), lines.end(), "2 of 3 at 3") == 4);
    CHECK_THAT(done.err, Contains("rank 2 on s2"));
    CHECK_THAT(done.err, Contains("exited with code 9"));
    CHECK_THAT(done.err, Contains("| bad luck"));
    CHECK_THAT(done.err, Contains("to start them again (2 of 3)"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("ranks that start again read on where the others have stopped", "[cluster][meeting]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.stdin_text = "one\ntwo\n";
    const Lines job{"-H", "s1:1,s2:1", "--max-restarts", "1", "--tag", "none", "sh", "-c"};
    Lines reads_one = job;
    reads_one.push_back(
        "[ $RANK = 1 ] && exit 0; cat; exit $((3 - TORCHELASTIC_RESTART_COUNT * 3))");
    const Finished all = cluster.dtrun(reads_one, options);
    INFO(all.err);
    CHECK(all.exit_code == 0);
    CHECK(all.out == "one\ntwo\n");

    Lines waits = job;
    waits.push_back(
        "[ $RANK = 1 ] && exit 0; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; "
        "echo ready; read line; echo got $line");
    Running later = cluster.start_dtrun(waits);
    REQUIRE(later.wait_for_output("ready"));
    later.write_stdin("late\n");
    const Finished done = later.wait();
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("got late"));
}

}  // namespace test_meeting
