// A program of dtrun's own client (examples/elastic) on real hosts: it loses two of its processes and the host of its
// rank 0, and no step.
#include "tests/cluster/support/ranks.h"
#include "tests/support/skip.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <regex>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace {

constexpr int kHosts = 4;
constexpr int kSteps = 600;

/// What a rank says when it has its place in a world.
struct RankLine {
    int generation = 0, rank = 0, size = 0, step = 0;
    std::string host, process;
};

std::vector<RankLine> places(const std::string& out) {
    static const std::regex kLine(
        R"(generation (\d+): rank (\d+) of (\d+) on (\S+), process (\d+), goes on at step (\d+))");
    std::vector<RankLine> found;
    for (std::sregex_iterator at(out.begin(), out.end(), kLine), end; at != end; ++at) {
        const std::smatch& words = *at;
        found.push_back({std::stoi(words[1]), std::stoi(words[2]), std::stoi(words[3]),
                         std::stoi(words[6]), words[4], words[5]});
    }
    return found;
}

/// Waits for a world later than `generation` of so many ranks, all of which have come to it.
/// \return its generation; 0: none
int wait_for_world(Running& job, int generation, int size) {
    int found = 0;
    wait_until(
        [&] {
            std::map<int, int> there;
            for (const RankLine& place : places(job.out_so_far()))
                if (place.generation > generation && place.size == size)
                    if (++there[place.generation] == size) found = place.generation;
            return found != 0;
        },
        milliseconds(25'000));
    return found;
}

void kill_rank(Cluster& cluster, const std::string& host) {
    const Process rank = find_process(cluster, host, [](const Process& process) {
        return process.cmdline.find("train.py") != std::string::npos && !is_agent(process) &&
               !is_guard(process);
    });
    cluster.kill(rank.pid_outside, SIGKILL);
}

}  // namespace

TEST_CASE("a program of our own loses two ranks and rank 0's host, and does each step once",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::filesystem::path source =
        std::filesystem::path(DTRUN_CLUSTER_DIR).parent_path().parent_path();
    const std::filesystem::path built =
        std::filesystem::path(Cluster::program()).parent_path().parent_path();
    if (!std::filesystem::exists(built / "lib/dtrun/backends/libdtrun_backend_gloo.so")) {
        skip_case("no plug-in for gloo");
        return;
    }
    Running job = cluster.start_dtrun(
        {"--min-np",
         "2",
         "--blacklist-cooldown-range",
         "100",
         "200",
         "--tag",
         "none",
         "-np",
         "4",
         "-H",
         cluster.host_list(1, kHosts),
         "env",
         fmt::format("PYTHONPATH={}", (source / "worker/python").string()),
         "PYTHONDONTWRITEBYTECODE=1",
         fmt::format("LIBDTRUN_PATH={}", (built / "worker/client/libdtrun.so.0").string()),
         fmt::format("LIBDTRUN_COLLECTIVES_PATH={}",
                     (built / "lib/libdtrun_collectives.so.0").string()),
         "/usr/bin/python3",
         source / "examples/elastic/train.py",
         std::to_string(kSteps),
         "0.02"});
    REQUIRE(wait_for_world(job, 0, 4) == 1);

    kill_rank(cluster, "s3");
    REQUIRE(wait_for_world(job, 1, 3) == 2);
    const int whole = wait_for_world(job, 2, 4);  // a new process has joined
    REQUIRE(whole == 3);
    cluster.crash("s1");  // rank 0's, and nobody is told
    REQUIRE(wait_for_world(job, whole, 3) == 4);
    kill_rank(cluster, "s4");
    REQUIRE(wait_for_world(job, 4, 2) == 5);

    const Finished done = job.wait(milliseconds(60'000));
    INFO(done.out);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, fmt::format("{} steps, each once", kSteps)) == 3);
    CHECK_THAT(done.out, !Contains("wrong"));
    std::map<int, int> step_of;  // with which each generation goes on
    std::set<std::string> on_s2;
    for (const RankLine& place : places(done.out)) {
        const auto [at, fresh] = step_of.emplace(place.generation, place.step);
        CHECK(at->second == place.step);  // all from the same
        if (place.host == "s2") on_s2.insert(place.process);
    }
    int last = 0;
    for (const auto& [generation, step] : step_of) {
        CHECK(step >= last);
        last = step;
    }
    CHECK(on_s2.size() == 1);  // it has lived through all of it
    cluster.boot("s1");
    CHECK(cluster.wait_all_gone());
}
