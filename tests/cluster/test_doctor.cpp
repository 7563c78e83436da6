// One host each of what is wrong with hosts: each is named, and nobody else.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <boost/json/parse.hpp>
#include <fstream>
#include <map>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
namespace json = boost::json;

namespace test_doctor {

constexpr int kHosts = 10;

/// Puts a program over another one of a host.
void replace_program(Cluster& cluster, const std::string& host, const std::string& text,
                     const std::string& over) {
    const fs::path file = cluster.scratch() / fmt::format("instead-on-{}", host);
    std::ofstream(file) << text;
    fs::permissions(file, fs::perms::owner_all | fs::perms::others_exec | fs::perms::others_read);
    cluster.bind(host, file, over);
}

void run_on(Cluster& cluster, const std::string& host, const std::string& line) {
    const Finished done = cluster.run(host, {"sh", "-c", line});
    INFO(host << ": " << line << ": " << done.err);
    REQUIRE(done.exit_code == 0);
}

/// What a doctor finds. On a machine that has much else to do many pairs of hosts are slow, and the doctor says that it cannot
/// tell then which are slow by themselves: it is asked again.
Finished examine(Cluster& cluster, const std::vector<std::string>& options,
                 const std::string& of_speed) {
    std::vector<std::string> words{"doctor", "-H", cluster.host_list()};
    words.insert(words.end(), options.begin(), options.end());
    Finished done = cluster.dtrun(words);
    for (int tries = 1; tries < 6 && !done.out.contains(of_speed); ++tries)
        done = cluster.dtrun(words);
    return done;
}

/// Of connections that others begin only ssh's are answered. By tc, since not every kernel has nftables.
constexpr const char* kBlock = R"(
set -e
tc qdisc add dev eth0 root handle 1: htb default 10 r2q 100000
tc class add dev eth0 parent 1: classid 1:10 htb rate 10gbit
tc class add dev eth0 parent 1: classid 1:30 htb rate 10gbit
tc qdisc add dev eth0 parent 1:30 handle 30: bfifo limit 1
tc filter add dev eth0 parent 1: prio 1 protocol ip u32 match ip protocol 6 0xff match ip sport 22 0xffff flowid 1:10
tc filter add dev eth0 parent 1: prio 2 protocol ip u32 match ip protocol 6 0xff match u8 0x12 0x12 at 33 flowid 1:30
)";
constexpr const char* kShape =
    "tc qdisc add dev eth0 root tbf rate 20mbit burst 64kb latency 200ms";
constexpr const char* kOpen = "tc qdisc del dev eth0 root";

TEST_CASE("a doctor finds nothing wrong with hosts that are well", "[cluster][doctor]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun({"doctor", "-H", cluster.host_list()});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("10 of 10 hosts examined") && Contains("all is well"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a doctor names each host that has something wrong, and no other", "[cluster][doctor]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path empty = cluster.scratch() / "nobody";
    std::ofstream(empty) << "";
    cluster.bind("s3", empty, "/root/.ssh/authorized_keys");
    replace_program(cluster, "s4", "#!/bin/bash\necho $((EPOCHSECONDS + 120)).5\n",
                    "/usr/bin/date");
    run_on(cluster, "s5", kBlock);
    run_on(cluster, "s6", "mount -t tmpfs -o size=4m tmpfs /dev/shm");
    replace_program(cluster, "s7",
                    "#!/bin/sh\necho 3.9.1; echo /opt/bin/python3; echo torch 1.9.0\n",
                    "/usr/bin/python3.11");
    run_on(cluster, "s8", kShape);

    const Finished done = examine(cluster, {"--json"}, "\"topic\":\"speed\"");
    const Finished shown = examine(cluster, {}, "s8: it exchanges ");
    run_on(cluster, "s5", kOpen);
    run_on(cluster, "s6", "umount /dev/shm");
    run_on(cluster, "s8", kOpen);
    cluster.reset();
    INFO(shown.out << shown.err);
    CHECK(done.exit_code == 1);
    std::map<std::string, std::string> found;  // topic by host
    const json::value all = json::parse(done.out);
    for (const json::value& finding : all.at("findings").as_array())
        for (const json::value& host : finding.at("hosts").as_array())
            found[std::string(host.as_string())] += std::string(finding.at("topic").as_string());
    CHECK(found == std::map<std::string, std::string>{{"s3", "log-in"},
                                                      {"s4", "clock"},
                                                      {"s5", "ports"},
                                                      {"s6", "shm"},
                                                      {"s7", "versions"},
                                                      {"s8", "speed"}});
    CHECK(shown.exit_code == 1);
    CHECK(lines_of(shown.out).size() == 8);  // one for each, an empty one, and the sum
    CHECK_THAT(shown.out,
               Contains("s3: ") && Contains("s4: its clock is 1") &&
                   Contains("s ahead of this machine's") &&
                   Contains("s5: no other host reaches its ports") &&
                   Contains("s6: /dev/shm has only 4.0 MiB") &&
                   Contains("s7: Python 3.9.1, elsewhere 3.11.") && Contains("s8: it exchanges ") &&
                   Contains(" MB/s with others, who have ") && Contains("9 of 10 hosts examined"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a host that dies while it is examined is named, and keeps nobody waiting",
          "[cluster][doctor]") {
    Cluster& cluster = Cluster::shared(kHosts);
    replace_program(cluster, "s2", "#!/bin/sh\nsleep 60\n", "/usr/bin/python3.11");
    Running examination = cluster.start_dtrun({"doctor", "-H", "s1,s2,s3"});
    REQUIRE(wait_until([&] { return cluster.leftovers().find("sleep 60") != std::string::npos; },
                       milliseconds(10'000)));
    cluster.crash("s2");
    const Finished done = examination.wait();
    INFO(done.out << done.err);
    CHECK(done.exit_code == 1);
    CHECK_THAT(done.out, Contains("s2: ") && !Contains("s1: ") && !Contains("s3: "));
    cluster.boot("s2");
    cluster.reset();
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_doctor
