// `dtrun serve`, and jobs whose ranks join it from several hosts.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <csignal>
#include <list>
#include <thread>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_daemon {

constexpr int kHosts = 4;
constexpr const char* kServer = "10.99.0.254:29400";

/// A daemon on head, with a secret that all hosts can read.
class Service {
public:
    explicit Service(Cluster& cluster, Lines options = {}) : cluster_(cluster) {
        secret_ = (cluster.scratch() / "secret").string();
        cluster.run("head",
                    {"sh", "-c", "umask 077; echo 0123456789abcdef0123456789abcdef > " + secret_});
        options_ = {Cluster::program(), "serve", "--secret-file", secret_};
        options_.insert(options_.end(), options.begin(), options.end());
        start();
    }

    void start() {
        daemons_.emplace_back(new Running(cluster_.start("head", options_)));
        // A daemon syncs its state before it serves, and a disk may have gigabytes of others to
        // write first.
        const bool serves = daemon().wait_for_output("serving on port", milliseconds(60'000));
        INFO("ended: " << daemon().finished() << "\n" << daemon().err_so_far());
        REQUIRE(serves);
    }
    void kill() {
        daemon().signal(SIGKILL);
        daemon().wait();
    }
    Running& daemon() { return *daemons_.back(); }
    std::string log() const {
        std::string all;
        for (const auto& daemon : daemons_) all += daemon->err_so_far();
        return all;
    }

    std::unique_ptr<Running> join(const std::string& host, Lines words) {
        Lines all{Cluster::program(), "join", kServer, "--secret-file", secret_,
                  "--grace",          "1",    "--tag", "rank"};
        all.insert(all.end(), words.begin(), words.end());
        return std::unique_ptr<Running>(new Running(cluster_.start(host, all)));
    }
    Finished command(const std::string& host, Lines words) {
        words.insert(words.begin(), Cluster::program());
        RunOptions options;
        options.env = {{"DTRUN_SERVE", kServer}, {"DTRUN_SECRET_FILE", secret_}};
        return cluster_.run(host, words, options);
    }

private:
    Cluster& cluster_;
    std::string secret_;
    Lines options_;
    std::list<std::unique_ptr<Running>> daemons_;
};

const char* kCount =
    "echo rank $DTRUN_RANK of $DTRUN_SIZE generation $DTRUN_GENERATION; "
    "while ! [ -e stop ]; do sleep 0.1; done";

TEST_CASE("ranks that join from several hosts are one job, with one store",
          "[cluster][daemon][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Service service(cluster);
    const std::string program = fmt::format(
        "echo rank $DTRUN_RANK of $DTRUN_SIZE; {0} store add n 1 >/dev/null; {0} store set "
        "k$DTRUN_RANK v; {0} store wait k0 k1 k2 k3; {0} store get n",
        Cluster::program());
    auto one =
        service.join("s1", {"--job", "j", "-np", "2", "--min-np", "4", "--", "sh", "-c", program});
    auto two =
        service.join("s2", {"--job", "j", "-np", "2", "--min-np", "4", "--", "sh", "-c", program});
    std::string out;
    for (Running* job : {one.get(), two.get()}) {
        const Finished done = job->wait();
        INFO(done.err << service.log());
        CHECK(done.exit_code == 0);
        out += done.out;
    }
    for (int rank = 0; rank < 4; ++rank)
        CHECK_THAT(out, Contains(fmt::format("[{0}] rank {0} of 4\n[{0}] 4\n", rank)) ||
                            Contains(fmt::format("[{0}] rank {0} of 4\n", rank)));
    CHECK(count_of(out, "] 4\n") >= 1);
    CHECK_THAT(service.command("s3", {"status"}).out, Contains("no jobs"));
    CHECK(cluster.wait_gone("s1", {}, milliseconds(5'000)));
}

#ifdef DTRUN_OPENMPI_HELLO
TEST_CASE("ranks of a daemon's job find each other in Open MPI, also two members on one host",
          "[cluster][daemon][mpi]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Service service(cluster);
    for (const char* const second : {"s1", "s2"}) {
        const Lines words{"--job", "m", "-np", "2", "--min-np", "4", "--", DTRUN_OPENMPI_HELLO};
        auto one = service.join("s1", words);
        auto two = service.join(second, words);
        std::string out;
        for (Running* job : {one.get(), two.get()}) {
            const Finished done = job->wait();
            INFO(done.err << service.log());
            CHECK(done.exit_code == 0);
            out += done.out;
        }
        INFO(out);
        for (int rank = 0; rank < 4; ++rank)
            CHECK(count_of(out, fmt::format("rank {} of 4 on ", rank)) == 1);
    }
}
#endif

TEST_CASE("a daemon that is killed and started again goes on, and ranks notice nothing",
          "[cluster][daemon][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto state = fresh_directory(cluster, "state");
    Service service(cluster, {"--state", state.string()});
    CHECK(service.command("s3", {"store", "set", "--job", "keep", "k", "kept"}).exit_code == 0);
    // Each rank adds one a hundred times; one waits all the time for what comes at the end.
    const std::string program = fmt::format(
        "echo ready; i=0; while [ $i -lt 60 ]; do {0} store add n 1 >/dev/null || exit 9; "
        "i=$((i+1)); done; [ $DTRUN_RANK = 3 ] && {0} store set done yes; {0} store wait done || "
        "exit 8; echo through",
        Cluster::program());
    auto one = service.join(
        "s1", {"--job", "j", "-np", "2", "--min-np", "4", "--verbose", "--", "sh", "-c", program});
    auto two = service.join(
        "s2", {"--job", "j", "-np", "2", "--min-np", "4", "--verbose", "--", "sh", "-c", program});
    REQUIRE(wait_for_count(*one, "ready", 2));
    for (int i = 0; i < 3; ++i) {
        service.kill();
        std::this_thread::sleep_for(milliseconds(200 * i));
        service.start();
        std::this_thread::sleep_for(milliseconds(1'000));
        CHECK(service.command("s3", {"store", "get", "--job", "keep", "k"}).out == "kept");
    }
    for (Running* job : {one.get(), two.get()}) {
        const Finished done = job->wait(milliseconds(120'000));
        INFO(done.err << service.log());
        CHECK(done.exit_code == 0);
        CHECK(count_of(done.out, "through") == 2);
        CHECK_THAT(done.err, Contains("is back"));
    }
    CHECK(count_of(service.log(), "is back") >= 2);
    CHECK(count_of(service.log(), "generation 2") == 0);
}

TEST_CASE("an elastic job goes on without a host, and takes in another",
          "[cluster][daemon][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Service service(cluster);
    cluster.run("head", {"rm", "-f", (cluster.scratch() / "stop").string()});
    const Lines words{"--job", "e",           "-np", "2",  "--min-np", "2",  "--max-np",
                      "6",     "--last-call", "0.5", "--", "sh",       "-c", kCount};
    auto one = service.join("s1", words);
    auto two = service.join("s2", words);
    REQUIRE(one->wait_for_output("of 4 generation 1"));
    REQUIRE(two->wait_for_output("of 4 generation 1"));
    SECTION("the host's agent and launcher are gone") {
        two->signal(SIGKILL);
    }
    SECTION("the host hangs") {
        cluster.freeze("s2");
    }
    REQUIRE(one->wait_for_output("of 2 generation 2"));
    auto three = service.join("s3", words);
    REQUIRE(three->wait_for_output("of 4 generation 3"));
    REQUIRE(one->wait_for_output("rank 0 of 4 generation 3"));
    cluster.run("head", {"touch", (cluster.scratch() / "stop").string()});
    for (Running* job : {one.get(), three.get()}) {
        const Finished done = job->wait(milliseconds(20'000));
        INFO(done.err << service.log());
        CHECK(done.exit_code == 0);
    }
    cluster.reset();
}

TEST_CASE(
    "the last rank of an elastic job can listen where torch's store was, and the next has one",
    "[cluster][daemon]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Service service(cluster);
    // With one rank it is for rank 0 to serve; with several the agent of rank 0's host does.
    const std::string program = R"(
import os, socket, time
size, generation = os.environ["WORLD_SIZE"], os.environ["DTRUN_GENERATION"]
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if size == "1":
    server = socket.create_server(("", where[1]))
    how = "listens"
else:
    peer = socket.create_connection(where, 5)
    peer.sendall(b"\x03" + (5).to_bytes(8, "little") + b"init/" + (1).to_bytes(8, "little"))
    how = "sum " + str(int.from_bytes(peer.recv(8), "little"))
print(generation, "of", size, os.environ["TORCHELASTIC_USE_AGENT_STORE"], how, flush=True)
time.sleep(60)
)";
    const Lines words{"--job",       "t",   "-np", "1",       "--min-np", "1",  "--max-np", "2",
                      "--last-call", "0.5", "--",  "python3", "-S",       "-c", program};
    auto one = service.join("s1", words);
    auto two = service.join("s2", words);
    REQUIRE(two->wait_for_output("of 2 True sum"));
    REQUIRE(one->wait_for_output("of 2 True sum"));
    two->signal(SIGKILL);
    REQUIRE(one->wait_for_output("of 1 False listens"));
    auto three = service.join("s3", words);
    REQUIRE(three->wait_for_output("of 2 True sum"));
    for (Running* job : {one.get(), three.get()}) job->signal(SIGTERM);
    for (Running* job : {one.get(), three.get()}) job->wait(milliseconds(20'000));
    INFO(cluster.leftovers());
    for (const char* host : {"s1", "s2", "s3"}) CHECK(cluster.wait_gone(host));
}

TEST_CASE("a static job ends everywhere when a rank fails, with its code where it failed",
          "[cluster][daemon][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Service service(cluster);
    const Lines words{
        "--job", "f",  "-np", "1",  "--min-np",
        "2",     "--", "sh",  "-c", "echo ready; sleep 1; [ $DTRUN_RANK = 1 ] && exit 7; sleep 60"};
    auto one = service.join("s1", words);
    // Who comes first has rank 0.
    REQUIRE(wait_until(
        [&] { return count_of(service.command("s3", {"status"}).out, "\n  s1 ") > 0; }, kHangs));
    auto two = service.join("s2", words);
    const Finished failed = two->wait();
    const Finished ended = one->wait();
    INFO(failed.err << ended.err);
    CHECK(failed.exit_code == 7);
    CHECK_THAT(failed.err, Contains("dtrun: rank 1 on s2 "));
    CHECK(ended.exit_code == 204);
    CHECK_THAT(ended.err, Contains("the job was ended: s2: rank 1 exited with code 7"));
    CHECK(cluster.wait_gone("s1", {}, milliseconds(5'000)));
}

TEST_CASE("a daemon that is stopped ends its jobs, or keeps them", "[cluster][daemon]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const bool keeps = GENERATE(false, true);
    CAPTURE(keeps);
    cluster.run("head", {"rm", "-f", (cluster.scratch() / "stop").string()});
    const auto state = fresh_directory(cluster, "stopped");
    Service service(cluster, keeps ? Lines{"--state", state.string()} : Lines{});
    auto job = service.join("s1", {"--job", "j", "--", "sh", "-c", kCount});
    REQUIRE(job->wait_for_output("of 1 generation 1"));
    service.daemon().signal(SIGTERM);
    CHECK(service.daemon().wait().exit_code == 0);
    if (keeps) {
        service.start();
        cluster.run("head", {"touch", (cluster.scratch() / "stop").string()});
    }
    const Finished done = job->wait();
    INFO(done.err << service.log());
    CHECK(done.exit_code == (keeps ? 0 : 204));
    if (!keeps) CHECK_THAT(done.err, Contains("dtrun serve was stopped"));
}

TEST_CASE("who does not know the secret, or wants other encryption, is told so",
          "[cluster][daemon][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Service service(cluster, {"--encrypt"});
    const std::string other = (cluster.scratch() / "other").string();
    cluster.run("head",
                {"sh", "-c", "umask 077; echo another-secret-of-32-bytes-length > " + other});
    const Finished wrong = service.command(
        "s1", {"store", "get", "--encrypt", "--secret-file", other, "--job", "j", "k"});
    CHECK(wrong.exit_code == 202);
    CHECK_THAT(wrong.err, Contains("does not know the job's secret"));
    const Finished clear = service.command("s1", {"store", "get", "--job", "j", "k"});
    CHECK(clear.exit_code == 202);
    CHECK_THAT(clear.err, Contains("wants an encrypted connection (--encrypt)"));
    CHECK(service.command("s1", {"store", "set", "--encrypt", "--job", "j", "k", "v"}).exit_code ==
          0);
    CHECK(service.command("s2", {"store", "get", "--encrypt", "--job", "j", "k"}).out == "v");
    cluster.run("head", {"chmod", "644", other});
    CHECK_THAT(service.command("s1", {"status", "--secret-file", other}).err,
               Contains("others can read it; chmod 600"));
}

TEST_CASE("a live daemon under garbage, floods and wrong secrets serves a job undisturbed",
          "[cluster][daemon]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Service service(cluster);
    const std::string program = fmt::format(
        "echo ready; i=0; while [ $i -lt 40 ]; do {0} store add n 1 >/dev/null || exit 9; "
        "i=$((i+1)); done",
        Cluster::program());
    auto one =
        service.join("s1", {"--job", "j", "-np", "2", "--min-np", "4", "--", "sh", "-c", program});
    auto two =
        service.join("s2", {"--job", "j", "-np", "2", "--min-np", "4", "--", "sh", "-c", program});
    REQUIRE(wait_for_count(*one, "ready", 2));
    const Finished attack =
        cluster.run("s3",
                    {"/usr/bin/python3", std::string(DTRUN_CLUSTER_DIR) + "/support/attack.py",
                     "10.99.0.254", "29400", "8000"},
                    {.timeout = milliseconds(90'000)});
    INFO(attack.err);
    CHECK(attack.exit_code == 0);
    for (Running* job : {one.get(), two.get()}) {
        const Finished done = job->wait(milliseconds(60'000));
        INFO(done.err << service.log());
        CHECK(done.exit_code == 0);
    }
    CHECK_THAT(service.log(), Contains("connections are not authenticated yet"));
    CHECK_THAT(service.log(), Contains("refused connection from 10.99.0.3: not dtrun's protocol"));
    CHECK(lines_of(service.log()).size() < 1'500);
    CHECK(service.command("s1", {"status"}).exit_code == 0);
}

}  // namespace test_daemon
