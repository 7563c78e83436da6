// Real Horovod on four hosts, with Gloo and with MPI: what its programs do with each other, and how it
// ends when one rank goes wrong. The programs are in frameworks/.
#include "tests/cluster/support/ranks.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <charconv>
#include <chrono>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace {

constexpr int kHosts = 4;
constexpr const char* kPython = DTRUN_FRAMEWORKS "/horovod/bin/python";
const std::map<std::string, std::string> kWithMpi{{"HOROVOD_CONTROLLER", "mpi"},
                                                  {"HOROVOD_CPU_OPERATIONS", "mpi"}};

Finished run_horovod(Cluster& cluster, Lines words, const std::string& program,
                     Lines arguments = {}, std::map<std::string, std::string> environment = {}) {
    words.push_back(kPython);
    words.push_back(std::string(DTRUN_CLUSTER_DIR) + "/frameworks/" + program);
    words.insert(words.end(), arguments.begin(), arguments.end());
    environment.emplace("OMP_NUM_THREADS", "1");
    environment.emplace("PYTHONDONTWRITEBYTECODE", "1");
    RunOptions options;
    options.env = std::move(environment);
    options.timeout = milliseconds(120'000);
    return cluster.dtrun(std::move(words), options);
}

/// When a rank printed `word`, in seconds of the epoch; 0 if it did not.
double time_of(const Finished& done, int rank, std::string_view word) {
    const auto printed = by_rank(done.out);
    if (!printed.contains(rank)) return 0;
    for (const std::string& line : lines_of(printed.at(rank))) {
        if (!line.starts_with(std::string(word) + " ")) continue;
        double time = 0;
        std::from_chars(line.data() + word.size() + 1, line.data() + line.size(), time);
        return time;
    }
    return 0;
}

double now_seconds() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

struct Ended {
    Finished done;
    double seconds = 0;  ///< from when the last of all had come to its mistake, or to hvd.init()
};

/// Three ranks on three hosts of which the last goes wrong.
Ended goes_wrong(const std::string& how, std::map<std::string, std::string> environment = {}) {
    Cluster& cluster = Cluster::shared(kHosts);
    Ended ended{run_horovod(cluster, {"-H", "s1,s2,s3"}, "horovod_goes_wrong.py", {how, "2"},
                            std::move(environment))};
    const double now = now_seconds();
    double last = time_of(ended.done, 2, "wrong");
    for (int rank = 0; rank < 3; ++rank) {
        INFO("rank " << rank << ": " << ended.done.out);
        last = std::max(last, time_of(ended.done, rank, "init"));
        CHECK(time_of(ended.done, rank, "met") == 0);
    }
    CHECK(last > 0);
    ended.seconds = now - last;
    CHECK(cluster.wait_all_gone());
    return ended;
}

}  // namespace

TEST_CASE("Horovod's operations, optimizers, process sets and restarts work on unequal hosts",
          "[cluster][frameworks][horovod][long]") {
    Cluster& cluster = Cluster::shared(kHosts);
    std::vector<std::pair<const char*, std::size_t>> shapes{{"s1:1,s2:2,s3:1", 4}};
    if (long_form()) shapes.push_back({"s1:2,s2:2,s3:2,s4:2", 8});
    for (const auto& [hosts, ranks] : shapes) {
        const Finished done = run_horovod(cluster, {"-H", hosts}, "horovod_works.py", {},
                                          {{"HOROVOD_DYNAMIC_PROCESS_SETS", "1"}});
        INFO(hosts << ": " << done.out << done.err);
        CHECK(done.exit_code == 0);
        for (const char* name :
             {"place", "collectives", "optimizer", "fp16", "process_sets", "again"})
            CHECK(count_of(done.out, fmt::format("ok {}\n", name)) == ranks);
    }
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a student's MNIST program learns on four hosts, with every kind of reduction",
          "[cluster][frameworks][horovod][long]") {
    Cluster& cluster = Cluster::shared(kHosts);
    std::vector<Lines> runs{{"--no-cuda"}};
    if (long_form()) runs.push_back({"--fp16-allreduce"});
    for (const Lines& arguments : runs) {
        const Finished done = run_horovod(cluster, {"-H", "s1,s2,s3", "--tag", "none"},
                                          "horovod_mnist.py", arguments);
        INFO(arguments[0] << ": " << done.out << done.err);
        CHECK(done.exit_code == 0);
        const Lines lines = lines_of(done.out);
        REQUIRE(lines.size() == 4);
        const auto at = lines.back().rfind(' ');
        double accuracy = 0;
        std::from_chars(lines.back().data() + at + 1, lines.back().data() + lines.back().size(),
                        accuracy);
        CHECK(accuracy > 0.9);
    }
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("Horovod built with MPI finds MPI, without mpirun, and has Adasum then",
          "[cluster][frameworks][horovod][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    auto environment = kWithMpi;
    environment["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1";
    environment["OMPI_MCA_mpi_yield_when_idle"] = "1";  // the hosts' processors are the same ones
    const Finished done =
        run_horovod(cluster, {"-H", "s1:2,s2:2"}, "horovod_works.py", {}, environment);
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (const char* name : {"place", "collectives", "optimizer", "fp16", "process_sets", "adasum"})
        CHECK(count_of(done.out, fmt::format("ok {}\n", name)) == 4);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a rank that dies before hvd.init() ends the job with MPI as well",
          "[cluster][frameworks][horovod][mpi]") {
    const Ended ended = goes_wrong("dies", kWithMpi);
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < 5);
    CHECK(ended.done.exit_code == 3);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("exited with code 3"));
}

TEST_CASE("Adasum, which Horovod has on CPUs with MPI only, fails with Horovod's reason",
          "[cluster][frameworks][horovod]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        run_horovod(cluster, {"-H", "s1,s2"}, "horovod_mnist.py", {"--use-adasum"});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 1);
    CHECK_THAT(done.err, Contains("No Adasum operation enabled"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a rank that comes to hvd.init() late aborts nobody", "[cluster][frameworks][horovod]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = run_horovod(cluster, {"-H", "s1,s2,s3"}, "horovod_goes_wrong.py",
                                      {"late", "2"}, {{"HOROVOD_GLOO_TIMEOUT_SECONDS", "5"}});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (int rank = 0; rank < 3; ++rank)
        CHECK(time_of(done, rank, "met") - time_of(done, 2, "wrong") > 8);
}

TEST_CASE("a rank that fails before hvd.init() ends the job at once, with its code and report",
          "[cluster][frameworks][horovod]") {
    const Ended ended = goes_wrong("dies");
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < 5);
    CHECK(ended.done.exit_code == 3);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("exited with code 3"));
    CHECK_THAT(ended.done.err, Contains("hvd.init()"));
}

TEST_CASE("an import that fails on one host is reported with its traceback",
          "[cluster][frameworks][horovod]") {
    const Ended ended = goes_wrong("import");
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < 5);
    CHECK(ended.done.exit_code == 1);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("ModuleNotFoundError"));
}

TEST_CASE("a rank that ends well without ever calling hvd.init() is named",
          "[cluster][frameworks][horovod]") {
    const Ended ended = goes_wrong("leaves");
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < 5);
    CHECK(ended.done.exit_code != 0);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("hvd.init()"));
}

TEST_CASE("a rank that was told another world size ends the job, and the reason is said",
          "[cluster][frameworks][horovod]") {
    const Ended ended = goes_wrong("size");
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < 5);
    CHECK(ended.done.exit_code == 128 + 6);
    CHECK_THAT(ended.done.err, Contains("rank 2 counts 4 ranks, but the job has 3"));
}
