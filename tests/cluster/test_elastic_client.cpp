// A program of dtrun's own client (examples/elastic) on real hosts: it loses two of its processes and the host of its
// rank 0, and no step. And one whose rank hangs.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include <fmt/format.h>
#include <csignal>
#include <filesystem>
#include <regex>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_elastic_client {

constexpr int kHosts = 4;
constexpr int kSteps = 600;

std::filesystem::path source() {
    return std::filesystem::path(DTRUN_CLUSTER_DIR).parent_path().parent_path();
}

std::filesystem::path built() {
    return std::filesystem::path(Cluster::program()).parent_path().parent_path();
}

/// A Python that finds the client and the collectives.
void add_python(Lines& words, const Lines& arguments) {
    const auto paths = {fmt::format("PYTHONPATH={}", (source() / "worker/python").string()),
                        fmt::format("LIBDTRUN_PATH={}", (built() / "lib/libdtrun.so.0").string()),
                        fmt::format("LIBDTRUN_COLLECTIVES_PATH={}",
                                    (built() / "lib/libdtrun_collectives.so.0").string())};
    words.insert(words.end(), {"env", "PYTHONDONTWRITEBYTECODE=1"});
    words.insert(words.end(), paths);
    words.emplace_back("/usr/bin/python3");
    words.insert(words.end(), arguments.begin(), arguments.end());
}

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
        kHangs);
    return found;
}

void kill_rank(Cluster& cluster, const std::string& host) {
    const Process rank = find_process(cluster, host, [](const Process& process) {
        return process.cmdline.find("train.py") != std::string::npos && !is_agent(process) &&
               !is_guard(process);
    });
    cluster.kill(rank.pid_outside, SIGKILL);
}

TEST_CASE("a program of our own loses two ranks and rank 0's host, and does each step once",
          "[cluster][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!std::filesystem::exists(built() / "lib/dtrun/backends/libdtrun_backend_gloo.so")) {
        skip_case("no plug-in for gloo");
        return;
    }
    Lines words{"--min-np", "2", "--blacklist-cooldown-range", "100", "200", "--tag", "none", "-np",
                "4",        "-H"};
    words.push_back(cluster.host_list(1, kHosts));
    add_python(words, {source() / "examples/elastic/train.py", std::to_string(kSteps), "0.02"});
    Running job = cluster.start_dtrun(words);
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

TEST_CASE("a rank that hangs in a section is named, and killed if that is asked for", "[cluster]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = R"(
import time, dtrun
with dtrun.Worker() as worker:
    if worker.generation == 1 and worker.rank == 1:
        with worker.section('reading', 0.2):
            time.sleep(600)
    worker.barrier('end')
)";
    Lines words{"--on-hang", "kill", "--max-restarts", "1", "-np", "2", "-H", "s1,s2"};
    add_python(words, {"-c", program});
    const Finished done = cluster.start_dtrun(words).wait(milliseconds(30'000));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("s2: rank 1 is in section \"reading\" for longer than its limit "
                                  "of 0.2 s: it is killed (--on-hang)"));
    CHECK_THAT(done.err, Contains(": a section took longer than its limit (--on-hang kill)"));
    CHECK_THAT(done.err, Contains("rank 1 on s2 failed: ending all ranks, to start them again"));
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_elastic_client
