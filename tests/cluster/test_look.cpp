// Looking into ranks on other hosts: wrappers, limits, stacks, terminals and debuggers.
#include "tests/cluster/support/ranks.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace {

constexpr int kHosts = 2;

/// Runs a shell's line on head, in which "$DTRUN" is dtrun.
Finished run_line(Cluster& cluster, const std::string& line) {
    return cluster.run("head", {"sh", "-c", "DTRUN=" + Cluster::program() + "; " + line});
}

}  // namespace

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
