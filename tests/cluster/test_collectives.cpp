// Communicators over the network, between hosts: every operation of each backend against a reference,
// what ranks are told when one of them goes wrong. The programs are in tests/collectives/core.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include <fmt/format.h>
#include <cstdlib>
#include <filesystem>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_collectives {

constexpr int kHosts = 4;
constexpr const char* kEight = "s1:2,s2:2,s3:2,s4:2";

/// What sanitizers say of MPI's memory is of no interest; and the hosts' processors are the same
/// ones, so that ranks must not wait in loops.
Finished run(Cluster& cluster, Lines words, const Lines& command) {
    RunOptions options;
    options.env = {{"OMPI_MCA_mpi_yield_when_idle", "1"},
                   {"DTRUN_MPI_LIBRARY", "openmpi"},
                   {"ASAN_OPTIONS", "detect_leaks=0"}};
    words.insert(words.end(), command.begin(), command.end());
    return cluster.dtrun(std::move(words), options);
}

std::string program(const std::string& name) {
    return std::filesystem::path(Cluster::program()).parent_path() / name;
}

std::filesystem::path plugins() {
    return std::filesystem::path(Cluster::program()).parent_path().parent_path() / "lib" / "dtrun" /
           "backends";
}

/// Our own, and those whose plug-in was built; in CI, all have to be.
Lines backends() {
    Lines found{"dtrun"};
    for (const auto& [name, file] : {std::pair{"gloo", "gloo"}, {"mpi", "mpi_openmpi"}}) {
        if (std::filesystem::exists(plugins() / fmt::format("libdtrun_backend_{}.so", file)))
            found.emplace_back(name);
        else
            skip_case(fmt::format("no plug-in for {}", name));
    }
    return found;
}

std::size_t oks(const Finished& done) {
    std::size_t count = 0;
    for (const auto& [rank, text] : by_rank(done.out)) count += text.ends_with("ok\n");
    return count;
}

TEST_CASE("every operation of a backend is right between eight ranks on four hosts",
          "[cluster][collectives]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const std::string& backend : backends()) {
        const Finished done =
            run(cluster, {"-H", kEight, "DTRUN_BACKEND_DIR=" + plugins().string()},
                {program("group_ranks"), backend});
        INFO(backend << ": " << done.out << done.err);
        CHECK(done.exit_code == 0);
        CHECK(oks(done) == 8);
    }
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a communicator works between hosts, with compression, fusion, futures and splits",
          "[cluster][collectives]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const std::string& backend : backends()) {
        const Finished done =
            run(cluster, {"-H", "s1:2,s2:1,s3:1,s4:1"}, {program("comm_ranks"), "works", backend});
        INFO(backend << ": " << done.out << done.err);
        CHECK(done.exit_code == 0);
        CHECK(oks(done) == 5);
        CHECK_THAT(done.out, Contains("over " + backend));
    }
}

TEST_CASE("with --encrypt a communicator between hosts encrypts, by itself",
          "[cluster][collectives]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        run(cluster, {"--encrypt", "-H", "s1:2,s2:1"}, {program("comm_ranks"), "works", "auto"});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK(oks(done) == 3);
    CHECK_THAT(done.out, Contains("encryption: AES-256-GCM"));
}

TEST_CASE("ranks on other hosts are told which rank is gone, on which host",
          "[cluster][collectives]") {
    Cluster& cluster = Cluster::shared(kHosts);
    // Gloo does not know whom it has lost, and ranks of MPI wait for ever: dtrun ends them.
    const Finished done = run(cluster, {"--keep-going", "-H", "s1:2,s2:2,s3:2"},
                              {program("comm_ranks"), "killed", "dtrun"});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 137);
    CHECK(oks(done) == 5);
    CHECK(count_of(done.out, "peer lost: rank 5 on s3 is gone") == 5);
    const Finished ended =
        run(cluster, {"-H", "s1:2,s2:2"}, {program("comm_ranks"), "killed", "auto"});
    INFO(ended.out << ended.err);
    CHECK(ended.exit_code == 137);
    CHECK_THAT(ended.err, Contains("rank 3 on s2"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("every byte leaves a host once, however many ranks it has and however they are dealt out",
          "[cluster][collectives]") {
    Cluster& cluster = Cluster::shared(kHosts);
    constexpr double kBytes = 32 << 20;
    constexpr int kTimes = 4;
    const auto sent = [&](int hosts) {
        std::vector<double> bytes;
        for (int host = 1; host <= hosts; ++host)
            bytes.push_back(std::stod(cluster
                                          .run(fmt::format("s{}", host),
                                               {"cat", "/sys/class/net/eth0/statistics/tx_bytes"})
                                          .out));
        return bytes;
    };
    struct Shape {
        int hosts;
        Lines words;
    };
    const std::string compress = "DTRUN_COMPRESS=hosts";  // whatever a trial says
    const Shape shapes[] = {{2, {"-H", "s1:4,s2:4", compress}},
                            {4, {"-H", "s1:4,s2:4,s3:4,s4:4", compress}},
                            {4, {"-H", "s1:4,s2:4,s3:4,s4:4", "--map-by", "node", compress}}};
    for (const auto& [hosts, words] : shapes)
        for (const auto& [format, factor] :
             {std::pair{"none", 1.0}, {"fp16", 0.5}, {"int8", 260.0 / 1024}}) {
            // What starts the ranks sends something, too.
            const std::vector<double> before = sent(hosts);
            const Finished once =
                run(cluster, words, {program("comm_ranks"), "adds", "dtrun", format, "1"});
            const std::vector<double> between = sent(hosts);
            const Finished more =
                run(cluster, words,
                    {program("comm_ranks"), "adds", "dtrun", format, std::to_string(1 + kTimes)});
            const std::vector<double> after = sent(hosts);
            INFO(hosts << " hosts, " << format << ": " << once.err << more.err);
            REQUIRE(once.exit_code == 0);
            REQUIRE(more.exit_code == 0);
            const double expected = 2.0 * (hosts - 1) / hosts * factor * kBytes;
            for (std::size_t host = 0; host < after.size(); ++host) {
                const double each =
                    ((after[host] - between[host]) - (between[host] - before[host])) / kTimes;
                CHECK(each == Approx(expected).epsilon(0.05));
            }
        }
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_collectives
