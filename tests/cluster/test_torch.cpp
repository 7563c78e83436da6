// Real torch and DeepSpeed on several hosts: what they do with each other, and how it ends when one of them
// goes wrong. The programs are in frameworks/.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Catch::Matches;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_torch {

constexpr int kHosts = 4;
constexpr const char* kDebian = "/usr/bin/python3";
constexpr const char* kNew = DTRUN_FRAMEWORKS "/torch/bin/python";

/// Ranks of torch_works.py. A rank takes seconds of a processor to import torch, so there are as few as
/// have both neighbours on their host and others elsewhere.
struct Shape {
    const char* hosts;
    int ranks;
};
Shape shape() {
    return long_form() ? Shape{"s1:2,s2:2,s3:2,s4:2", 8} : Shape{"s1:2,s2:1,s3:1", 4};
}

/// Within which a job ends in which one rank has gone wrong, also on a busy machine; torch itself waits for half an hour.
constexpr double kEndSeconds = 25;

std::string script(const std::string& name) {
    return std::string(DTRUN_CLUSTER_DIR) + "/frameworks/" + name;
}

Finished run_torch(Cluster& cluster, Lines words, const Lines& program,
                   std::map<std::string, std::string> environment = {},
                   milliseconds timeout = milliseconds(120'000)) {
    words.insert(words.end(), program.begin(), program.end());
    RunOptions options;
    options.env = std::move(environment);
    options.timeout = timeout;
    return cluster.dtrun(std::move(words), options);
}

/// Torch's name of a check and the number of ranks that passed it.
void check_passed(const Finished& done, const Lines& names, int ranks) {
    const auto printed = by_rank(done.out);
    for (int rank = 0; rank < ranks; ++rank) {
        INFO("rank " << rank);
        REQUIRE(printed.contains(rank));
        for (const std::string& name : names)
            CHECK_THAT(printed.at(rank), Contains("ok " + name + "\n"));
    }
}

/// Runs torch_works.py with these checks, or with all of them, as ranks of that shape.
void works(const std::string& python, const std::string& store, const std::string& version,
           const Lines& expected, bool only_these = false) {
    Cluster& cluster = Cluster::shared(kHosts);
    Lines program{python, script("torch_works.py")};
    if (only_these) program.insert(program.end(), expected.begin(), expected.end());
    const auto [hosts, ranks] = shape();
    const Finished done = run_torch(cluster, {"-H", hosts, "--store", store}, program);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    check_passed(done, expected, ranks);
    CHECK(count_of(done.out, "ok with torch " + version) == static_cast<std::size_t>(ranks));
    CHECK(cluster.wait_all_gone());
}

const Lines kOfAnyTorch{"collectives",      "ddp",         "new_group", "monitored_barrier",
                        "store_of_the_job", "remote_calls"};
const Lines kOfTheStore{"collectives", "monitored_barrier", "store_of_the_job", "remote_calls"};

/// What goes wrong is no other for dtrun in another version of torch; the long form tries both.
Lines pythons() {
    return long_form() ? Lines{kDebian, kNew} : Lines{kNew};
}

/// When ranks printed after `word`, in seconds of the epoch and in their order.
std::vector<double> times_of(std::string_view out, std::string_view word) {
    std::vector<double> times;
    for (const std::string& line : lines_of(out)) {
        const std::size_t at = line.find(":" + std::string(word) + " ");
        if (at == std::string::npos) continue;
        double time = 0;
        const char* begin = line.data() + at + word.size() + 2;
        std::from_chars(begin, line.data() + line.size(), time);
        times.push_back(time);
    }
    std::ranges::sort(times);
    return times;
}

struct Ended {
    Finished done;
    double seconds = 0;     ///< from the last `event` that a rank printed to dtrun's end
    double from_first = 0;  ///< the same from the first
};

/// torch_goes_wrong.py on one rank of each of three hosts; rank 2, on s3, is the one where it does.
Ended goes_wrong(const std::string& python, const std::string& how, const std::string& event,
                 Lines words = {}) {
    Cluster& cluster = Cluster::shared(kHosts);
    words.insert(words.begin(), {"-H", "s1,s2,s3"});
    Ended ended;
    const Lines program{python, script("torch_goes_wrong.py"), how, "2"};
    ended.done = run_torch(cluster, words, program);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::vector<double> began = times_of(ended.done.out, event);
    REQUIRE_FALSE(began.empty());
    ended.seconds = std::chrono::duration<double>(now).count() - began.back();
    ended.from_first = std::chrono::duration<double>(now).count() - began.front();
    CHECK(cluster.wait_all_gone());
    return ended;
}

/// Two hosts of two slots, as `dtrun hosts` writes them for DeepSpeed.
fs::path deepspeed_hostfile(Cluster& cluster) {
    const Finished hosts = cluster.dtrun({"hosts", "--format", "deepspeed", "-H", "s1:2,s2:2"});
    INFO(hosts.err);
    REQUIRE(hosts.exit_code == 0);
    CHECK(hosts.out == "s1 slots=2\ns2 slots=2\n");
    const fs::path path = cluster.scratch() / "deepspeed_hosts";
    std::ofstream(path) << hosts.out;
    return path;
}

std::map<std::string, std::string> deepspeed_environment() {
    return {{"DS_ACCELERATOR", "cpu"},
            {"TORCH_EXTENSIONS_DIR", DTRUN_FRAMEWORKS "/torch/extensions"},
            {"PATH", DTRUN_FRAMEWORKS
             "/torch/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}};
}

TEST_CASE("a new torch does all it can do on CPUs, on the store that the agents serve",
          "[cluster][torch]") {
    Lines all = kOfAnyTorch;
    all.insert(all.end(), {"fsdp", "fully_shard", "device_mesh"});
    works(kNew, "agent", "2.13.0", all);
}

TEST_CASE("a new torch finds its ranks on the store of rank 0, and through the agents' relays",
          "[cluster][torch][long]") {
    for (const std::string& store : long_form() ? Lines{"rank0", "proxy"} : Lines{"proxy"}) {
        INFO(store);
        works(kNew, store, "2.13.0", kOfTheStore, true);
    }
}

TEST_CASE("torch 1.13 does the same on each of the three stores", "[cluster][torch][long]") {
    for (const std::string& store :
         long_form() ? Lines{"agent", "rank0", "proxy"} : Lines{"agent", "rank0"}) {
        INFO(store);
        works(kDebian, store, "1.13", kOfAnyTorch);
    }
}

TEST_CASE("an exception that @record saw is in the report, not only what followed from it",
          "[cluster][torch][only-long]") {
    for (const std::string& python : pythons()) {
        INFO(python);
        const Ended ended = goes_wrong(python, "raises", "raises");
        INFO(ended.done.err);
        CHECK(ended.done.exit_code == 1);
        CHECK_THAT(ended.done.err, Contains("dtrun: rank 2 on s3 (pid ") &&
                                       Contains("ValueError: batch 7 has no labels"));
        CHECK(ended.seconds < kEndSeconds);
    }
}

TEST_CASE("a rank that dies while the ranks meet is named at once, and what the others waited for",
          "[cluster][torch][long]") {
    for (const std::string& python : pythons()) {
        INFO(python);
        const Ended ended = goes_wrong(python, "dies", "dies");
        INFO(ended.done.err);
        CHECK(ended.done.exit_code == 128 + 9);
        CHECK_THAT(ended.done.err,
                   Contains("dtrun: rank 2 on s3 (pid ") && Contains("signal 9 (SIGKILL)"));
        CHECK_THAT(ended.done.err, Contains("who waited then, and for what:") &&
                                       Contains("torch's store: key default_pg/0/"));
        CHECK(ended.seconds < kEndSeconds);
    }
}

TEST_CASE("ranks that were told another world size do not wait for one that does not exist",
          "[cluster][torch][only-long]") {
    for (const std::string& python : pythons()) {
        INFO(python);
        const Ended ended = goes_wrong(python, "world", "starts");
        INFO(ended.done.err);
        CHECK(ended.done.exit_code != 0);
        CHECK_THAT(ended.done.err, Contains("world size") && Contains("wait for"));
        CHECK(ended.seconds < kEndSeconds);
    }
}

TEST_CASE("a module that one host does not have is reported with its rank and name",
          "[cluster][torch][only-long]") {
    const Ended ended = goes_wrong(kNew, "import", "imports");
    INFO(ended.done.err);
    CHECK(ended.done.exit_code == 1);
    CHECK_THAT(ended.done.err,
               Contains("dtrun: rank 2 on s3 (pid ") &&
                   Contains("No module named 'a_module_that_only_the_others_have'"));
    CHECK(ended.seconds < kEndSeconds);
}

TEST_CASE("a rank that ends without having met the others is named, and they do not wait for it",
          "[cluster][torch][only-long]") {
    const Ended ended = goes_wrong(kNew, "leaves", "starts");
    INFO(ended.done.err);
    CHECK(ended.done.exit_code != 0);
    CHECK_THAT(ended.done.err, Contains("rank 2 on s3") && Contains("wait for"));
    CHECK(ended.seconds < kEndSeconds);
}

TEST_CASE("with --init-timeout ranks wait so long and no longer, and the one that hangs is named",
          "[cluster][torch][only-long]") {
    for (const char* store : {"agent", "proxy"}) {
        INFO(store);
        const Ended ended =
            goes_wrong(kDebian, "sleeps", "starts", {"--init-timeout", "2", "--store", store});
        INFO(ended.done.err);
        CHECK(ended.done.exit_code != 0);
        CHECK_THAT(ended.done.err, Contains("--init-timeout") && Contains("rank 2 on s3"));
        CHECK(ended.from_first > 1.9);  // the first that waits counts
        CHECK(ended.seconds < 2 + kEndSeconds);
    }
}

TEST_CASE("DeepSpeed trains with ZeRO-1 from a hostfile that dtrun wrote", "[cluster][deepspeed]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string hosts = deepspeed_hostfile(cluster);
    const Finished plain =
        run_torch(cluster, {"--hostfile", hosts}, {"python", script("deepspeed_trains.py")},
                  deepspeed_environment());
    INFO(plain.err);
    CHECK(plain.exit_code == 0);
    CHECK_THAT(plain.out,
               Contains("[0]<stdout>:4 ranks of stage 1 over gloo, argument --local_rank None\n"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("dtrun deepspeed starts a script as DeepSpeed's own launcher would",
          "[cluster][deepspeed]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string hosts = deepspeed_hostfile(cluster);
    const Finished done =
        run_torch(cluster, {"deepspeed", "--hostfile", hosts, "--no_ssh_check"},
                  {script("deepspeed_trains.py"), "--steps", "30"}, deepspeed_environment());
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("4 ranks of stage 1 over gloo, argument --local_rank 0\n"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a torch program goes on from its checkpoint when rank 0's host falls silent",
          "[cluster][torch][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string end = cluster.scratch() / "torch-elastic-end";
    const std::string checkpoint = cluster.scratch() / "torch-elastic-step";
    for (const std::string& file : {end, checkpoint}) std::filesystem::remove(file);
    RunOptions options;
    options.env = {
        {"OMP_NUM_THREADS", "1"}, {"PYTHONDONTWRITEBYTECODE", "1"}, {"PYTHON_EXEC", kDebian}};
    const bool is_torchrun = GENERATE(false, true);
    Lines words{"--min-np", "2", "--tag", "none", "-H", "s1:1,s2:1,s3:1", kDebian};
    if (is_torchrun) words = {"torchrun", "--nnodes", "2:3", "-H", "s1,s2,s3"};
    words.insert(words.end(), {script("torch_elastic.py"), end, checkpoint});
    Running job = cluster.start_dtrun(words, options);
    REQUIRE(wait_for_count(job, "attempt0 ", 3, milliseconds(60'000)));
    REQUIRE(wait_until([&] { return file_text(checkpoint).size() > 1; }, kHangs));  // ten steps
    cluster.kill_link("s1", Cluster::Cut::silent);
    REQUIRE(wait_for_count(job, "attempt1 ", 2, milliseconds(60'000)));
    CHECK_THAT(job.out_so_far(),
               Contains("attempt1 rank0/2@s2") && Contains("attempt1 rank1/2@s3"));
    std::ofstream(end) << "end";
    const Finished done = job.wait(milliseconds(40'000));
    INFO(done.out);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "ended after step ") == 2);
    CHECK(count_of(done.out, " step 0 ") == 3);  // only of the first attempt
    cluster.heal_link("s1");
    CHECK(cluster.wait_all_gone({}, milliseconds(20'000)));
}

TEST_CASE(
    "a torch program whose command was typed on two nodes goes on alone when the other crashes",
    "[cluster][torch][torchrun][elastic]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string end = cluster.scratch() / "torch-nodes-end";
    const std::string checkpoint = cluster.scratch() / "torch-nodes-step";
    const std::string secret = cluster.scratch() / "torch-nodes-secret";
    for (const std::string& file : {end, checkpoint}) std::filesystem::remove(file);
    std::ofstream(secret) << "0123456789abcdef0123456789abcdefABCDEF\n";
    std::filesystem::permissions(secret, std::filesystem::perms(0600));
    RunOptions options;
    options.env = {{"OMP_NUM_THREADS", "1"},
                   {"PYTHONDONTWRITEBYTECODE", "1"},
                   {"PYTHON_EXEC", kDebian},
                   {"DTRUN_SECRET_FILE", secret}};
    const Lines words{Cluster::program(),
                      "torchrun",
                      "--nnodes",
                      "1:2",
                      "--rdzv-id",
                      "torch",
                      "--rdzv-backend",
                      "c10d",
                      "--rdzv-endpoint",
                      "s1:29400",
                      script("torch_elastic.py"),
                      end,
                      checkpoint};
    Running second = cluster.start("s2", words, options);
    Running first = cluster.start("s1", words, options);
    REQUIRE(wait_for_count(first, "rank0/2@s1", 1, milliseconds(60'000)));
    REQUIRE(wait_until([&] { return file_text(checkpoint).size() > 1; }, kHangs));  // ten steps
    cluster.crash("s2");
    REQUIRE(wait_for_count(first, "rank0/1@s1", 1, milliseconds(60'000)));
    std::ofstream(end) << "end";
    const Finished done = first.wait(milliseconds(40'000));
    INFO(done.out);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("ended after step "));
    cluster.boot("s2");
    CHECK(cluster.wait_all_gone({}, milliseconds(20'000)));
}

}  // namespace test_torch
