// Real Horovod on four hosts, with Gloo and with MPI: what its programs do with each other, and how it
// ends when one rank goes wrong. The programs are in frameworks/.
#include "tests/cluster/support/horovod.h"
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_horovod {

constexpr int kHosts = 4;
const std::map<std::string, std::string> kWithMpi{{"HOROVOD_CONTROLLER", "mpi"},
                                                  {"HOROVOD_CPU_OPERATIONS", "mpi"}};

Finished run_horovod(Cluster& cluster, Lines words, const std::string& program,
                     const Lines& arguments = {},
                     std::map<std::string, std::string> environment = {}) {
    add_horovod(words, program, arguments);
    return cluster.dtrun(std::move(words), horovod_options(std::move(environment)));
}

/// Within which a job ends that has no more to wait for, also on a busy machine. Where Horovod decides it takes 30 s.
constexpr double kEndSeconds = 25;

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
          "[cluster][frameworks][horovod][mpi][only-long]") {
    const Ended ended = goes_wrong("dies", kWithMpi);
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < kEndSeconds);
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

TEST_CASE("a rank that comes to hvd.init() late aborts nobody",
          "[cluster][frameworks][horovod][only-long]") {
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
    CHECK(ended.seconds < kEndSeconds);
    CHECK(ended.done.exit_code == 3);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("exited with code 3"));
    CHECK_THAT(ended.done.err, Contains("hvd.init()"));
}

TEST_CASE("an import that fails on one host is reported with its traceback",
          "[cluster][frameworks][horovod][only-long]") {
    const Ended ended = goes_wrong("import");
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < kEndSeconds);
    CHECK(ended.done.exit_code == 1);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("ModuleNotFoundError"));
}

TEST_CASE("a rank that ends well without ever calling hvd.init() is named",
          "[cluster][frameworks][horovod][only-long]") {
    const Ended ended = goes_wrong("leaves");
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < kEndSeconds);
    CHECK(ended.done.exit_code != 0);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("hvd.init()"));
}

TEST_CASE("a rank that was told another world size ends the job, and the reason is said",
          "[cluster][frameworks][horovod][only-long]") {
    const Ended ended = goes_wrong("size");
    INFO(ended.done.out << ended.done.err);
    CHECK(ended.seconds < kEndSeconds);
    CHECK(ended.done.exit_code == 128 + 6);
    CHECK_THAT(ended.done.err, Contains("rank 2 counts 4 ranks, but the job has 3"));
}

/// What horovod_elastic.py says of one process in one world.
struct InWorld {
    int size = 0;
    int rank = 0;
    std::string process;  ///< "s1:27"
    long step = 0;
};

std::vector<InWorld> worlds_in(const std::string& out) {
    std::vector<InWorld> all;
    for (const std::string& line : lines_of(out)) {
        InWorld one;
        char process[64] = {};
        if (std::sscanf(line.c_str(), "world%d rank%d@%63s step %ld", &one.size, &one.rank, process,
                        &one.step) != 4)
            continue;
        one.process = process;
        all.push_back(one);
    }
    return all;
}

/// The process that has a rank in the latest world of such a size.
std::string process_of(const std::string& out, int size, int rank) {
    std::string process;
    for (const InWorld& one : worlds_in(out))
        if (one.size == size && one.rank == rank) process = one.process;
    return process;
}

TEST_CASE("processes under hvd.elastic.run live on when a rank is killed and rank 0's host crashes",
          "[cluster][horovod][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string file = cluster.scratch() / "horovod-elastic-end";
    std::filesystem::remove(file);
    Lines words{"-np",
                "4",
                "--min-np",
                "2",
                "--tag",
                "none",
                "-H",
                "s1:1,s2:1,s3:1,s4:1",
                "--blacklist-cooldown-range",
                "2",
                "20"};
    add_horovod(words, "horovod_elastic.py", {file});
    Running job = cluster.start_dtrun(words, horovod_options());
    REQUIRE(wait_for_count(job, "world4 ", 4, milliseconds(60'000)));
    const std::string first = process_of(job.out_so_far(), 4, 0);
    const std::string last = process_of(job.out_so_far(), 4, 3);

    for (const Process& process : cluster.processes("s3"))
        if (process.cmdline.find("horovod_elastic.py") != std::string::npos)
            cluster.kill(process.pid_outside, SIGKILL);
    REQUIRE(wait_for_count(job, "world3 ", 3));
    REQUIRE(wait_for_count(job, "world4 ", 8, milliseconds(60'000)));  // with a new process on s3
    CHECK(process_of(job.out_so_far(), 4, 0) == first);
    CHECK(process_of(job.out_so_far(), 4, 2) == last);
    CHECK(process_of(job.out_so_far(), 4, 3).starts_with("s3:"));

    const std::string second = process_of(job.out_so_far(), 4, 1);
    cluster.crash("s1");
    REQUIRE(wait_for_count(job, "world3 ", 6));
    CHECK(process_of(job.out_so_far(), 3, 0) == second);
    cluster.boot("s1");
    REQUIRE(wait_for_count(job, "world4 ", 12, milliseconds(90'000)));
    CHECK(process_of(job.out_so_far(), 4, 0) == second);
    CHECK(process_of(job.out_so_far(), 4, 3).starts_with("s1:"));

    std::ofstream(file) << "end";
    const Finished done = job.wait(milliseconds(30'000));
    INFO(done.out);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "ended after step ") == 4);
    long step = 0;  // every world goes on where the last one was, the newcomers too
    const auto worlds = worlds_in(done.out);
    for (const InWorld& one : worlds) {
        CHECK(one.step >= step);
        step = std::max(step, one.step);
    }
    CHECK(worlds.back().step > 0);
    CHECK_THAT(done.err, Contains("was ended by signal 9") && Contains("host s1 lost: last heard"));
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_horovod
