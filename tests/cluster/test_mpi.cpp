// Open MPI's and MPICH's programs on hosts without mpirun: what ranks do with each other, how a job
// ends when one goes wrong, what is said of wrong set-ups. The programs are in tests/mpi.
//
// Across hosts it is Open MPI: MPICH of Debian 12 now and then hangs there in MPI_Finalize, whoever
// has started it.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include <fmt/format.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_mpi {

constexpr int kHosts = 16;
constexpr const char* kEight = "s1:2,s2:2,s3:2,s4:2";
/// Within which a job ends in which one rank has gone wrong, also on a busy machine; MPI itself waits for ever.
constexpr double kEndSeconds = 15;
constexpr const char* kLibpmix = "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2.6.2";

fs::path programs() {
    return fs::path(Cluster::program()).parent_path() / "mpi";
}

/// Whether what a test needs is there; else it says so, and fails in CI.
bool needs(bool there, const std::string& what) {
    if (!there) skip_case("no " + what);
    return there;
}

std::string program(const std::string& mpi, const std::string& name) {
    return programs() / mpi / name;
}

bool has(const std::string& mpi) {
    return needs(fs::exists(program(mpi, "hello")),
                 "programs for " + mpi + " (no mpicc." + mpi + ")");
}

bool has_modules(Cluster& cluster, const std::string& imports) {
    return needs(
        cluster.run("head", {"/usr/bin/python3", "-c", "import " + imports}).exit_code == 0,
        imports + " in /usr/bin/python3");
}

/// For ranks. Without its UCX, Open MPI of Debian 12 has windows across hosts, whoever has started it.
/// And the hosts' processors are the same ones, so that ranks must not wait in loops.
const std::map<std::string, std::string> kEnvironment{{"OMPI_MCA_osc", "^ucx"},
                                                      {"OMPI_MCA_mpi_yield_when_idle", "1"},
                                                      {"OMP_NUM_THREADS", "1"},
                                                      {"PYTHONDONTWRITEBYTECODE", "1"}};

RunOptions options() {
    RunOptions options;
    options.env = kEnvironment;
    return options;
}

Finished run(Cluster& cluster, Lines words, const Lines& command) {
    words.insert(words.end(), command.begin(), command.end());
    return cluster.dtrun(std::move(words), options());
}

std::string script(const std::string& name) {
    return std::string(DTRUN_CLUSTER_DIR) + "/frameworks/" + name;
}

/// Files that MPI libraries, their servers and dtrun make where programs come and go.
std::string files_of(Cluster& cluster) {
    std::string files;
    for (const char* host : {"head", "s1", "s2", "s3", "s4"}) {
        // A dtrun that is killed leaves its control socket, which the next command of its user removes.
        const Finished found = cluster.run(host, {"find", "/dev/shm", "/tmp", "/run", "-mindepth",
                                                  "1", "-maxdepth", "1", "!", "-name", "dtrun-0"});
        for (const std::string& line : sorted_lines(found.out))
            files += fmt::format("{} {}\n", host, line);
    }
    return files;
}

/// At the end of its life: nothing runs on the hosts any more, and there are no new files.
class LeavesNothing {
public:
    explicit LeavesNothing(Cluster& cluster) : cluster_(cluster), before_(files_of(cluster)) {}
    void check() {
        const bool gone = cluster_.wait_all_gone();
        INFO(cluster_.leftovers());
        CHECK(gone);
        CHECK(files_of(cluster_) == before_);
    }

private:
    Cluster& cluster_;
    std::string before_;
};

void check_hello(const Finished& done, int hosts, int each) {
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK(without_news(done.err).empty());
    const auto printed = by_rank(done.out);
    REQUIRE(printed.size() == static_cast<std::size_t>(hosts * each));
    for (int rank = 0; rank < hosts * each; ++rank)
        CHECK(printed.at(rank) == fmt::format("rank {} of {} on s{}, {} of {} there\n", rank,
                                              hosts * each, rank / each + 1, rank % each, each));
}

void check_works(const Finished& done, std::size_t ranks) {
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (const char* name :
         {"collectives", "alltoall", "intercommunicator", "shared memory", "one-sided"})
        CHECK(count_of(done.out, fmt::format("ok {}\n", name)) == ranks);
}

struct Wrong {
    const char* how;
    int exit_code;
    std::string said;
};

/// What the report has of rank 2 of four, for each way to go wrong.
void check_wrong(Cluster& cluster, const std::string& mpi, const std::string& hosts,
                 const std::string& host) {
    LeavesNothing nothing(cluster);
    const std::string who = "rank 2 on " + host;
    for (const Wrong& wrong :
         {Wrong{"abort", 7, ") called MPI_Abort"}, Wrong{"killed", 128 + SIGKILL, ""},
          Wrong{"dies", 128 + SIGKILL, ""}, Wrong{"code", 3, ""},
          Wrong{"exits", 206, ") ended without MPI_Finalize"},
          Wrong{"absent", 206, ") ended without MPI_Init"}}) {
        const Finished done =
            run(cluster, {"-np", "4", "-H", hosts}, {program(mpi, "goes_wrong"), wrong.how, "2"});
        const double seconds = seconds_after(done.out, "wrong ");
        INFO(mpi << " " << wrong.how << ": " << done.out << done.err);
        CHECK(done.exit_code == wrong.exit_code);
        CHECK(seconds < kEndSeconds);
        CHECK_THAT(done.err, Contains(who + " (pid ") && Contains(wrong.said));
    }
    nothing.check();
}

TEST_CASE("Open MPI's ranks find each other on four hosts, and on sixteen", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi")) return;
    LeavesNothing nothing(cluster);
    check_hello(
        run(cluster, {"-np", "16", "-H", "s1:4,s2:4,s3:4,s4:4"}, {program("openmpi", "hello")}), 4,
        4);
    check_hello(run(cluster, {"-H", cluster.host_list(4, 16)}, {program("openmpi", "hello")}), 16,
                4);
    nothing.check();
}

TEST_CASE(
    "Open MPI's collectives, intercommunicators, shared memory and windows work on four hosts",
    "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi")) return;
    check_works(run(cluster, {"-H", kEight}, {program("openmpi", "works")}), 8);
    check_works(run(cluster, {"-H", "s1:1,s2:3"}, {program("openmpi", "works")}), 4);
}

TEST_CASE("MPICH's ranks find each other on a host, and share its memory", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("mpich")) return;
    LeavesNothing nothing(cluster);
    for (const char* mode : {"auto", "pmi1"}) {
        check_hello(run(cluster, {"--mpi", mode, "-H", "s1:8"}, {program("mpich", "hello")}), 1, 8);
        check_works(run(cluster, {"--mpi", mode, "-H", "s1:4"}, {program("mpich", "works")}), 4);
    }
    nothing.check();
}

TEST_CASE("a rank of Open MPI that goes wrong ends the job at once, with its code and report",
          "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (has("openmpi")) check_wrong(cluster, "openmpi", "s1,s2,s3,s4", "s3");
}

TEST_CASE("a rank of MPICH that goes wrong ends the job at once, with its code and report",
          "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (has("mpich")) check_wrong(cluster, "mpich", "s1:4", "s1");
}

TEST_CASE("what ends from outside leaves neither ranks nor files of MPI", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi")) return;
    LeavesNothing nothing(cluster);
    const auto start = [&] {
        return cluster.start_dtrun({"-H", kEight, program("openmpi", "goes_wrong"), "stays", "0"});
    };
    {
        Running job = start();
        REQUIRE(wait_for_count(job, "met", 8));
        job.signal(SIGINT);
        CHECK(job.wait().exit_code == 128 + SIGINT);
        nothing.check();
    }
    {
        Running job = start();
        REQUIRE(wait_for_count(job, "met", 8));
        job.signal(SIGKILL);
        job.wait();
        nothing.check();
    }
    {
        Running job = start();
        REQUIRE(wait_for_count(job, "met", 8));
        cluster.kill(find_process(cluster, "s2", is_agent).pid_outside, SIGKILL);
        const Finished done = job.wait();
        INFO(done.err);
        CHECK(done.exit_code == 204);
        CHECK_THAT(done.err, Contains("s2"));
        nothing.check();
    }
}

TEST_CASE("a second attempt begins MPI anew", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const auto& [mpi, hosts] : {std::pair{"openmpi", kEight}, std::pair{"mpich", "s1:4"}}) {
        if (!has(mpi)) continue;
        const std::string twice =
            fmt::format("[ $DTRUN_GENERATION = 1 ] && exec {} killed 1; exec {}",
                        program(mpi, "goes_wrong"), program(mpi, "works"));
        const Finished done =
            run(cluster, {"--max-restarts", "1", "-H", hosts}, {"sh", "-c", twice});
        check_works(done, std::string_view(mpi) == "mpich" ? 4 : 8);
    }
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("several jobs with MPI share hosts", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi")) return;
    LeavesNothing nothing(cluster);
    const Lines words{"-H", "s1:2,s2:2", program("openmpi", "works")};
    Running first = cluster.start_dtrun(words, options());
    Running second = cluster.start_dtrun(words, options());
    check_works(first.wait(), 4);
    check_works(second.wait(), 4);
    nothing.check();
}

TEST_CASE("names are published for the job, and new ranks are refused", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const auto& [mpi, hosts] :
         {std::pair{"openmpi", "s1:2,s2:2"}, std::pair{"mpich", "s1:4"}}) {
        if (!has(mpi)) continue;
        const Finished names = run(cluster, {"-H", hosts}, {program(mpi, "names")});
        INFO(names.out << names.err);
        CHECK(names.exit_code == 0);
        CHECK(count_of(names.out, "publish: worked\n") == 2);  // and unpublish
        CHECK(count_of(names.out, "lookup: worked\n") == 1);
        CHECK(count_of(names.out, "lookup again: worked\n") == 0);
        CHECK(count_of(names.out, "ok after names\n") == 4);

        const Finished spawn = run(cluster, {"-H", hosts}, {program(mpi, "spawn")});
        INFO(spawn.out << spawn.err);
        CHECK(spawn.exit_code == 0);
        CHECK(count_of(spawn.out, "ok after spawn\n") == 4);
        // Debian's MPICH does not even ask.
        if (std::string_view(mpi) == "openmpi")
            CHECK_THAT(spawn.err, Contains("MPI_Comm_spawn, which dtrun does not offer"));
    }
}

TEST_CASE("several programs are one world, in which each knows its number", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const std::string mpi : {"openmpi", "mpich"}) {
        if (!has(mpi)) continue;
        CAPTURE(mpi);
        LeavesNothing nothing(cluster);
        const std::string programs = program(mpi, "programs");
        const std::string s1 = mpi == "openmpi" ? "s2" : "s1";  // MPICH of Debian needs one host
        const Finished done =
            cluster.dtrun({"mpirun", "-H", "s1", "-n", "1", programs, "first", ":", "-H", s1 + ":2",
                           "-n", "2", "-env", "ROLE", "worker", programs, "second"},
                          options());
        INFO(done.out << done.err);
        CHECK(done.exit_code == 0);
        CHECK(count_of(done.out, "rank 0 of 3, program 0, first as nothing\n") == 1);
        CHECK(count_of(done.out, "rank 1 of 3, program 1, second as worker\n") == 1);
        CHECK(count_of(done.out, "rank 2 of 3, program 1, second as worker\n") == 1);
        nothing.check();
    }
    // A program is looked for only where it runs.
    const Finished missing = cluster.dtrun(
        {"-np", "1", "-H", "s1", "true", ":", "-np", "1", "-H", "s2", "/no/such/program"},
        options());
    INFO(missing.err);
    CHECK(missing.exit_code == 127);
    CHECK_THAT(missing.err, Contains("s2: /no/such/program") && !Contains("s1: "));
}

TEST_CASE("a rank of Open MPI may run one MPI program after the other", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi")) return;
    const std::string hello = program("openmpi", "hello");
    const Finished done = run(cluster, {"-H", "s1:2,s2:2"}, {"sh", "-c", hello + " && " + hello});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (int rank = 0; rank < 4; ++rank)
        CHECK(count_of(done.out, fmt::format("rank {} of 4 ", rank)) == 2);
}

TEST_CASE("programs without MPI have no server, and with --mpi none no variables of it",
          "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun({"-H", "s1:2,s2:2", "sh", "-c", "echo here; sleep 60"});
    REQUIRE(wait_for_count(job, "here", 4));
    for (const Process& process : cluster.processes("s1"))
        CHECK_THAT(process.cmdline, !Contains("pmix"));
    job.signal(SIGINT);
    job.wait();

    const auto offered = [&](const char* mode) {
        const Finished done = run(cluster, {"--mpi", mode, "--tag", "none", "-H", "s1"},
                                  {"sh", "-c", "env | cut -d= -f1 | grep ^PMI; true"});
        return done.out;
    };
    CHECK_THAT(offered("auto"), Contains("PMIX_RANK\n") && Contains("PMI_FD\n"));
    CHECK(offered("none").empty());
}

TEST_CASE("an MPI library that asks for what is not offered is told so", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    LeavesNothing nothing(cluster);
    if (has("mpich")) {
        const Finished done =
            run(cluster, {"--mpi", "pmix", "-H", "s1:2,s2:2"}, {program("mpich", "hello")});
        INFO(done.out << done.err);
        CHECK(done.exit_code != 0);
        CHECK_THAT(done.err, Contains("MPICH") && Contains("--mpi"));
    }
    if (has("openmpi")) {
        for (const char* mode : {"pmi1", "pmi2"}) {
            const Finished done =
                run(cluster, {"--mpi", mode, "-H", "s1:2,s2:2"}, {program("openmpi", "hello")});
            INFO(mode << ": " << done.out << done.err);
            CHECK(done.exit_code != 0);
            CHECK_THAT(done.err, Contains("Open MPI") && Contains("--mpi"));
        }
    }
    nothing.check();
}

TEST_CASE("a host without libpmix, or with too old a one, is named before anything runs",
          "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi") || !needs(fs::exists(kLibpmix), kLibpmix)) return;
    LeavesNothing nothing(cluster);
    const auto hello = [&] {
        return run(cluster, {"-H", "s1:2,s2:2,s3:2"}, {program("openmpi", "hello")});
    };
    cluster.bind("s2", fresh_directory(cluster, "empty"), fs::path(kLibpmix).parent_path());
    const Finished missing = hello();
    INFO(missing.out << missing.err);
    CHECK(missing.exit_code == 206);
    CHECK(missing.out.empty());
    CHECK_THAT(missing.err, Contains("s2") && Contains("libpmix") && Contains("libpmix2"));
    cluster.unbind("s2", fs::path(kLibpmix).parent_path());

    cluster.bind("s3", programs() / "old_libpmix/libpmix.so.2", kLibpmix);
    const Finished old = hello();
    INFO(old.out << old.err);
    CHECK(old.exit_code == 206);
    CHECK(old.out.empty());
    CHECK_THAT(old.err, Contains("s3") && Contains("3.2.5"));
    cluster.unbind("s3", kLibpmix);

    check_hello(run(cluster, {"-H", "s1:2,s2:2"}, {program("openmpi", "hello")}), 2, 2);
    nothing.check();
}

TEST_CASE("messages between two hosts come in plausible times", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi")) return;
    for (const char* hosts : {"s1,s2", "s1:2"}) {
        const Finished done =
            run(cluster, {"--tag", "none", "-H", hosts}, {program("openmpi", "pingpong"), "0.01"});
        INFO(done.out << done.err);
        CHECK(done.exit_code == 0);
        const Lines lines = lines_of(done.out);
        REQUIRE(lines.size() == 20);
        for (const std::string& line : lines) {
            double bytes = 0, microseconds = 0, rate = 0;
            REQUIRE(std::sscanf(line.c_str(), "%lf %lf %lf", &bytes, &microseconds, &rate) == 3);
            CHECK((microseconds > 0.01 && microseconds < 1e6));
            CHECK(rate < 1e6);
        }
    }
}

TEST_CASE("mpi4py's ranks find each other", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has_modules(cluster, "mpi4py.MPI, numpy")) return;
    const Finished hello =
        run(cluster, {"-H", "s1:2,s2:2"}, {"/usr/bin/python3", "-m", "mpi4py.bench", "helloworld"});
    INFO(hello.out << hello.err);
    CHECK(hello.exit_code == 0);
    for (int rank = 0; rank < 4; ++rank)
        CHECK_THAT(hello.out,
                   Contains(fmt::format("I am process {} of 4 on s{}.", rank, rank / 2 + 1)));

    const Finished done =
        run(cluster, {"-H", "s1:2,s2:2"}, {"/usr/bin/python3", script("mpi_collectives.py")});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (const char* name : {"arrays", "objects", "communicators"})
        CHECK(count_of(done.out, fmt::format("ok {}\n", name)) == 4);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("torch's Gloo and MPI work in the same processes", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has_modules(cluster, "mpi4py.MPI, torch")) return;
    const Finished done =
        run(cluster, {"-H", "s1:2,s2:2"}, {"/usr/bin/python3", script("mpi_mixed.py")});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (int rank = 0; rank < 4; ++rank)
        CHECK_THAT(done.out, Contains(fmt::format("ok rank {} of 4, both say 42", rank)));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("--mpi mpirun leaves the start to Open MPI's own", "[cluster][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    if (!has("openmpi") || !needs(fs::exists("/usr/bin/mpirun.openmpi"), "mpirun.openmpi")) return;
    const Finished done =
        run(cluster, {"--mpi", "mpirun", "-H", "s1:2,s2:2"}, {program("openmpi", "hello")});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (int rank = 0; rank < 4; ++rank)
        CHECK_THAT(done.out, Contains(fmt::format("rank {} of 4 on s{}", rank, rank / 2 + 1)));
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_mpi
