// Open MPI 5 on hosts that have Open MPI 4: its programs run in a tree of Debian 13 that
// tests/mpi/openmpi5/setup has made, under libpmix 4 of the hosts and under the tree's libpmix 5.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <filesystem>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_openmpi5 {

constexpr const char* kInside = DTRUN_OPENMPI5 "/inside";

Cluster& cluster_with_tree() {
    Cluster& cluster = Cluster::shared(2);
    if (!fs::exists(DTRUN_OPENMPI5_TREE "/programs/hello"))
        skip("there is no Open MPI 5; tests/mpi/openmpi5/setup says why");
    return cluster;
}

/// Four ranks of a program of the tree on two hosts, with libpmix of the hosts.
Finished run(Cluster& cluster, const Lines& program) {
    Lines words{"-H", "s1:2,s2:2", kInside};
    words.insert(words.end(), program.begin(), program.end());
    return cluster.dtrun(words);
}

/// The same on s1 alone, where dtrun itself runs in the tree.
Finished run_inside(Cluster& cluster, const Lines& program) {
    Lines words{kInside, "/host" + Cluster::program(), "-np", "4"};
    words.insert(words.end(), program.begin(), program.end());
    return cluster.run("s1", words);
}

using Run = Finished (*)(Cluster&, const Lines&);

void check_programs(Run run_program) {
    Cluster& cluster = cluster_with_tree();
    const Finished hello = run_program(cluster, {"/programs/hello"});
    INFO(hello.out << hello.err);
    CHECK(hello.exit_code == 0);
    for (int rank = 0; rank < 4; ++rank)
        CHECK(count_of(hello.out, fmt::format("rank {} of 4 ", rank)) == 1);

    const Finished works = run_program(cluster, {"/programs/works"});
    INFO(works.out << works.err);
    CHECK(works.exit_code == 0);
    for (const char* name :
         {"collectives", "alltoall", "intercommunicator", "shared memory", "one-sided"})
        CHECK(count_of(works.out, fmt::format("ok {}\n", name)) == 4);

    struct Wrong {
        const char *how, *said;
        int exit_code;
    };
    for (const auto& [how, said, exit_code] :
         {Wrong{"abort", "called MPI_Abort", 7}, Wrong{"killed", "SIGKILL", 137},
          Wrong{"exits", "ended without MPI_Finalize", 206}}) {
        const Finished done = run_program(cluster, {"/programs/goes_wrong", how, "2"});
        INFO(how << ": " << done.out << done.err);
        CHECK(done.exit_code == exit_code);
        CHECK_THAT(done.err, Contains("rank 2 on ") && Contains(said));
    }
    CHECK(cluster.wait_all_gone());
    for (const char* host : {"s1", "s2"}) CHECK(cluster.run(host, {"ls", "/dev/shm"}).out.empty());
}

TEST_CASE("Open MPI 5 finds its ranks with libpmix 4 of two hosts", "[cluster][mpi]") {
    check_programs(run);
}

TEST_CASE("Open MPI 5 finds its ranks with libpmix 5", "[cluster][mpi]") {
    check_programs(run_inside);
}

}  // namespace test_openmpi5
