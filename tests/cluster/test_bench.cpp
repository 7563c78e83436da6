// dtrun bench over ssh, with the real rank program: rows that are right, training, all reports, what
// the hosts are, and what becomes of it when it is interrupted.
#include "lab/report/results.h"
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include <fmt/ranges.h>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

using namespace dtrun;
using namespace dtrun::lab;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_bench {

constexpr int kHosts = 4;

std::filesystem::path plugins() {
    return std::filesystem::path(Cluster::program()).parent_path().parent_path() / "lib" / "dtrun" /
           "backends";
}

/// Backends whose plug-in was built; in CI, both have to be.
Lines backends() {
    Lines found;
    for (const auto& [name, file] : {std::pair{"mpi", "mpi_openmpi"}, {"gloo", "gloo"}}) {
        if (std::filesystem::exists(plugins() / fmt::format("libdtrun_backend_{}.so", file)))
            found.emplace_back(name);
        else
            skip_case(fmt::format("no plug-in for {}", name));
    }
    if (found.empty()) skip("no plug-in for mpi or gloo was built");
    return found;
}

std::string names_of(const Lines& backends) {
    return fmt::format("{}", fmt::join(backends, ","));
}

/// What sanitizers say of MPI's memory is of no interest; and the hosts' processors are the same
/// ones, so that ranks must not wait in loops.
RunOptions options(const std::filesystem::path& folder) {
    RunOptions options;
    options.cwd = folder;
    options.timeout = milliseconds(120'000);
    options.env = {{"OMPI_MCA_mpi_yield_when_idle", "1"},
                   {"DTRUN_MPI_LIBRARY", "openmpi"},
                   {"ASAN_OPTIONS", "detect_leaks=0"}};
    return options;
}

LabReport report_in(const std::filesystem::path& file) {
    const auto report = parse_report(file_text(file), "report");
    INFO(file << ": " << (report ? "" : report.error().message));
    REQUIRE(report.has_value());
    return *report;
}

/// "gloo 4x1 int8 4096"
std::set<std::string> rows_of(const LabReport& report) {
    std::set<std::string> rows;
    for (const RowRecord& row : report.rows)
        rows.insert(fmt::format("{} {}x{} {} {}", row.backend, row.hosts, row.slots_per_host,
                                row.compression, row.bytes));
    return rows;
}

TEST_CASE("a sweep over hosts is right everywhere, and every report has it", "[cluster][bench]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Lines names = backends();
    const auto folder = fresh_directory(cluster, "sweep");
    const Finished done =
        cluster.dtrun({"bench",     "-H",         "s1,s2,s3,s4", "--backends", names_of(names),
                       "--hosts",   "1,2,4",      "--slots",     "1",          "--sizes",
                       "4,4100,1M", "--compress", "none,int8",   "--iters",    "3",
                       "--warmup",  "1",          "--explain",   "--json",     "r.json",
                       "--csv",     "r.csv",      "--markdown",  "r.md",       "--html",
                       "r.html"},
                      options(folder));
    INFO(done.out << done.err);
    REQUIRE(done.exit_code == 0);
    CHECK(done.err.empty());
    const LabReport report = report_in(folder / "r.json");
    std::set<std::string> expected;
    for (const std::string& backend : names)
        for (const int hosts : {2, 4})
            for (const char* const compression : {"none", "int8"})
                for (const int bytes : {4, 4'100, 1 << 20})
                    expected.insert(
                        fmt::format("{} {}x1 {} {}", backend, hosts, compression, bytes));
    CHECK(rows_of(report) == expected);
    for (const RowRecord& row : report.rows) {
        INFO(row.backend << " " << row.hosts << " " << row.compression << " " << row.bytes);
        CHECK(row.wrong == 0);
        CHECK(row.t_min_us > 0);
        CHECK(row.t_p50_us <= row.t_p99_us);
        CHECK(row.busbw_GBps == Approx(row.algbw_GBps * 2 * (row.ranks - 1) / row.ranks));
        CHECK((row.compression == "none" ? row.rel_err < 1e-6 : row.rel_err < 0.05));
    }
    std::set<std::string> hosts;
    for (const HostRecord& host : report.hosts) hosts.insert(host.name);
    CHECK(hosts == std::set<std::string>{"s1", "s2", "s3", "s4"});
    CHECK_THAT(done.out, Contains("  s1, s2, s3 and s4\n    Hosts           4\n"));
    CHECK_THAT(done.out, Contains("GPUDirect"));
    CHECK_THAT(file_text(folder / "r.md"), Contains("|  | s1, s2, s3 and s4 |\n"));
    CHECK(count_of(file_text(folder / "r.csv"), "\nrow,") == expected.size());
    CHECK(count_of(file_text(folder / "r.html"), "</svg>") >= 5);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("training over hosts learns the same, whatever the gradients travel as",
          "[cluster][bench]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto folder = fresh_directory(cluster, "training");
    RunOptions patient = options(folder);
    patient.timeout = milliseconds(240'000);  // each rank imports torch
    const Finished done = cluster.dtrun({"bench",
                                         "-H",
                                         "s1,s2",
                                         "--backends",
                                         backends().back(),
                                         "--hosts",
                                         "2",
                                         "--slots",
                                         "1",
                                         "--no-sweep",
                                         "--train",
                                         "--python",
                                         "/usr/bin/python3",
                                         "--algorithms",
                                         "parallel,int8",
                                         "--epochs",
                                         "1",
                                         "--global-batch",
                                         "500",
                                         "--json",
                                         "r.json",
                                         "--markdown",
                                         "r.md"},
                                        patient);
    INFO(done.out << done.err);
    REQUIRE(done.exit_code == 0);
    const LabReport report = report_in(folder / "r.json");
    REQUIRE(report.train.size() == 3);
    for (const TrainRecord& run : report.train) {
        INFO(run.algorithm << ": " << run.accuracy);
        CHECK(run.ranks == (run.algorithm == "serial" ? 1 : 2));
        CHECK(run.accuracy > 0.5);
        CHECK(std::abs(run.accuracy - report.train[0].accuracy) < 0.01);
        CHECK(run.samples_per_s > 0);
        REQUIRE(run.by_epoch.size() == 1);
        CHECK(run.by_epoch[0].accuracy == run.accuracy);
        CHECK(run.by_epoch[0].seconds == run.seconds);
    }
    CHECK_THAT(file_text(folder / "r.md"), Contains("| 8 bits (int8) | 2 devices (2 x 1) | "));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("every pair of hosts is measured, and operations in place are right",
          "[cluster][bench]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Lines names = backends();
    const auto folder = fresh_directory(cluster, "pairs");
    const Finished done = cluster.dtrun({"bench",
                                         "-H",
                                         "s1,s2,s3",
                                         "--backends",
                                         names_of(names),
                                         "--hosts",
                                         "3",
                                         "--slots",
                                         "1",
                                         "--ops",
                                         "allreduce,allgather,reduce_scatter,reduce,gather,scatter",
                                         "--sizes",
                                         "4100",
                                         "--iters",
                                         "3",
                                         "--in-place",
                                         "--pairs",
                                         "hosts",
                                         "--json",
                                         "r.json",
                                         "--html",
                                         "r.html"},
                                        options(folder));
    INFO(done.out << done.err);
    REQUIRE(done.exit_code == 0);
    const LabReport report = report_in(folder / "r.json");
    CHECK(report.rows.size() == 12 * names.size());
    for (const RowRecord& row : report.rows) {
        INFO(row.backend << " " << row.op << (row.in_place ? " in place" : ""));
        CHECK(row.wrong == 0);
    }
    REQUIRE(report.pairs.size() == 6 * names.size());
    for (const PairRecord& pair : report.pairs) {
        INFO(pair.backend << " " << pair.from_host << " to " << pair.to_host);
        CHECK(pair.from != pair.to);
        CHECK(pair.from_host == fmt::format("s{}", pair.from + 1));
        CHECK(pair.to_host == fmt::format("s{}", pair.to + 1));
        CHECK(pair.latency_us > 0);
        CHECK(pair.bandwidth_GBps > 0);
    }
    // The hosts' interfaces are veth, whose speed means nothing.
    for (const CommRecord& comm : report.comms) CHECK(std::isnan(comm.line_rate_mbit));
    CHECK_THAT(done.out, Contains("Pairs of hosts, " + names.front() + ": latency"));
    CHECK(count_of(file_text(folder / "r.html"), "class=\"heat\"") == 12 * names.size());
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a bench that is interrupted leaves no rank behind and keeps its rows",
          "[cluster][bench]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto folder = fresh_directory(cluster, "interrupted");
    Running job = cluster.start_dtrun(
        {"bench", "-H", "s1,s2", "--backends", backends().back(), "--hosts", "2", "--slots", "1",
         "--sizes", "1K,64M", "--seconds", "0.05", "--iters", "1000000", "--json", "r.json"},
        options(folder));
    INFO(job.out_so_far() << job.err_so_far());
    REQUIRE(job.wait_for_output("\n      1024 ", milliseconds(60'000)));
    job.signal(SIGINT);
    const Finished done = job.wait();
    CHECK(done.exit_code == 130);
    CHECK(cluster.wait_all_gone());
    const LabReport report = report_in(folder / "r.json");
    CHECK(report.interrupted);
    CHECK_FALSE(report.rows.empty());
}

TEST_CASE("a backend that one host lacks is left out, with the host's name", "[cluster][bench]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (backends().back() != "gloo") return;
    const auto folder = fresh_directory(cluster, "lacking");
    const auto others = fresh_directory(cluster, "other_plugins");
    for (const auto& file : std::filesystem::directory_iterator(plugins()))
        if (file.path().filename() != "libdtrun_backend_gloo.so")
            std::filesystem::copy(file, others, std::filesystem::copy_options::recursive);
    cluster.bind("s2", others, plugins());
    const Finished done = cluster.dtrun({"bench", "-H", "s1,s2", "--hosts", "2", "--slots", "1",
                                         "--sizes", "4", "--iters", "1", "--explain"},
                                        options(folder));
    cluster.unbind("s2", plugins());
    INFO(done.out << done.err);
    CHECK_THAT(done.out, Contains("Not measured") && Contains("\"gloo\" is not there: rank 1 on"));
    CHECK_THAT(done.out, !Contains("# gloo"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("hosts before one that cannot be reached are measured", "[cluster][bench]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto folder = fresh_directory(cluster, "errors");
    cluster.sshd_stop("s3");
    const Finished unreachable =
        cluster.dtrun({"bench", "-H", "s1,s2,s3,s4", "--backends", backends().back(), "--slots",
                       "1", "--sizes", "4", "--iters", "1", "--connect-timeout", "30"},
                      options(folder));
    INFO(unreachable.out << unreachable.err);
    CHECK(unreachable.exit_code == 1);
    CHECK(count_of(unreachable.err, "s3: ") == 1);
    CHECK_THAT(unreachable.err, Contains("left out: 1 run on 4 hosts or more"));
    CHECK_THAT(unreachable.out, Contains(": 2 hosts x 1 rank, allreduce f32"));
    cluster.sshd_start("s3");
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_bench
