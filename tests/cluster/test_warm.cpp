// Log-ins that stay for later jobs: dtrun hold, --keep-warm and dtrun release, on hosts with real sshd.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <csignal>
#include <filesystem>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;

namespace test_warm {

constexpr int kHosts = 2;
constexpr const char* kTaken = "in a log-in that is kept";

bool is_keeper(const Process& process) {
    return process.name == "dtrun-keeper";
}

std::string held(Cluster& cluster) {
    return cluster.dtrun({"hold", "--list"}).out;
}

/// `dtrun release` once no job is there: who holds a host hears a moment after a job's dtrun that its agent has ended.
std::string release(Cluster& cluster) {
    const std::string idle = fmt::format("{:<10} {:>5} ", "ready", 0);
    CHECK(wait_until(
        [&] {
            const std::string list = held(cluster);
            return count_of(list, idle) == count_of(list, "ready");
        },
        kHangs));
    return cluster.dtrun({"release"}).out;
}

Finished run_verbose(Cluster& cluster, std::vector<std::string> words) {
    words.insert(words.begin(), {"--verbose", "-H", "s1,s2"});
    return cluster.dtrun(std::move(words));
}

TEST_CASE(
    "jobs run in log-ins that are held, a host that was lost is replaced, and nothing is left",
    "[cluster][warm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::vector<std::string> where{"sh", "-c", "umask; ulimit -n; pwd; env | grep -c ^SSH_"};
    const Finished cold = run_verbose(cluster, where);
    INFO("cold: " << cold.err);
    REQUIRE(cold.exit_code == 0);
    CHECK(cluster.wait_all_gone());
    const Finished hold = cluster.dtrun({"hold", "-H", "s1,s2"});
    INFO(hold.err);
    REQUIRE(hold.exit_code == 0);
    CHECK_THAT(hold.err, Contains("2 hosts are held until no job has run there for 10 min"));

    // What ranks find is what a log-in would give them.
    const Finished warm = run_verbose(cluster, where);
    INFO(warm.err);
    CHECK(count_of(warm.err, kTaken) == 2);
    CHECK(by_rank(warm.out) == by_rank(cold.out));
    CHECK(count_of(run_verbose(cluster, {"true"}).err, kTaken) == 2);
    CHECK(count_of(run_verbose(cluster, {"--no-warm", "true"}).err, kTaken) == 0);
    CHECK(count_of(run_verbose(cluster, {"--ssh-command", "ssh", "true"}).err, kTaken) == 0);

    // Jobs at once: the end of one is not that of the other.
    Running other = cluster.start_dtrun({"-H", "s1,s2", "sh", "-c", "echo runs; sleep 3"});
    REQUIRE(wait_for_count(other, "runs", 2));
    CHECK(cluster.dtrun({"-H", "s1,s2", "sh", "-c", "exit 3"}).exit_code == 3);
    CHECK(other.wait().exit_code == 0);

    cluster.kill(find_process(cluster, "s1", is_keeper).pid_outside, SIGKILL);
    REQUIRE(wait_until([&] { return count_of(held(cluster), "lost") == 1; }, kHangs));
    const auto heard_of = [&](std::size_t hosts) {
        const Finished done = run_verbose(cluster, {"true"});
        return done.exit_code == 0 && count_of(done.err, kTaken) == hosts;
    };
    CHECK(heard_of(1));
    CHECK(wait_until([&] { return heard_of(2); }, kHangs));

    // The head of a job is killed: its ranks end, and the log-in stays.
    Running killed = cluster.start_dtrun({"-H", "s1,s2", "sh", "-c", "echo runs; sleep 1000"});
    REQUIRE(wait_for_count(killed, "runs", 2));
    cluster.kill(killed.pid(), SIGKILL);
    CHECK(cluster.wait_gone("s1", [](const Process& process) { return process.name == "sleep"; }));
    CHECK(cluster.wait_gone("s1", is_agent));
    CHECK(heard_of(2));

    CHECK(release(cluster) == "left s1 and s2\n");
    INFO(cluster.leftovers());
    CHECK(cluster.wait_all_gone());
    CHECK(held(cluster) == "nothing is held\n");
    CHECK(heard_of(0));
}

TEST_CASE("--keep-warm leaves log-ins for later jobs, which end by themselves", "[cluster][warm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    CHECK(run_verbose(cluster, {"--keep-warm", "6", "true"}).exit_code == 0);
    CHECK(count_of(run_verbose(cluster, {"true"}).err, kTaken) == 2);
    CHECK(count_of(held(cluster), "ready") == 2);
    INFO(cluster.leftovers());
    CHECK(cluster.wait_all_gone({}, milliseconds(20'000)));
}

TEST_CASE("log-ins that were held in a batch job end with its script", "[cluster][warm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string dtrun = Cluster::program();
    const std::string script = dtrun + " hold -H s1 && " + dtrun + " hold --list";
    const Finished job = cluster.run("head", {"env", "JOB_ID=17", "sh", "-c", script});
    INFO(job.err);
    CHECK(job.exit_code == 0);
    CHECK_THAT(job.out, Contains("ready"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a host that is cut off is not waited for, and the end of a holder leaves nothing",
          "[cluster][warm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    REQUIRE(cluster.dtrun({"hold", "-H", "s1,s2"}).exit_code == 0);
    cluster.crash("s1");
    cluster.boot("s1");
    const Finished done = run_verbose(cluster, {"hostname"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.err, kTaken) == 1);
    const auto is_holder = [](const Process& process) { return process.name == "dtrun-holder"; };
    cluster.kill(find_process(cluster, "head", is_holder).pid_outside, SIGKILL);
    INFO(cluster.leftovers());
    CHECK(cluster.wait_all_gone());
    CHECK(cluster.dtrun({"-H", "s1,s2", "true"}).exit_code == 0);
    CHECK(held(cluster) == "nothing is held\n");
}

TEST_CASE("who starts a holder gets back what it has open, and a detached job leaves one, too",
          "[cluster][warm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    // A pipe that a holder had would keep `cat` until its end.
    const Finished done = cluster.run(
        "head", {"sh", "-c", "\"$0\" hold -H s1,s2 --keep-warm 60 9>&1 | cat; echo is over",
                 Cluster::program()});
    INFO(done.err);
    CHECK(done.out == "is over\n");
    CHECK(count_of(held(cluster), "ready") == 2);
    CHECK(release(cluster) == "left s1 and s2\n");
    CHECK(cluster.wait_all_gone());

    const Finished detached = cluster.dtrun({"-d", "--keep-warm", "60", "-H", "s1,s2", "true"});
    INFO(detached.err);
    CHECK(detached.exit_code == 0);
    CHECK(wait_until([&] { return count_of(held(cluster), "ready") == 2; }, kHangs));
    CHECK(count_of(run_verbose(cluster, {"true"}).err, kTaken) == 2);
    CHECK(release(cluster) == "left s1 and s2\n");
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("Ctrl-C at dtrun hold, and a release while it logs in, leave nothing",
          "[cluster][warm]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const bool by_release : {false, true}) {
        CAPTURE(by_release);
        cluster.kill_link("s2", Cluster::Cut::silent);
        Running hold = cluster.start_dtrun({"hold", "-H", "s1,s2", "--connect-timeout", "60"});
        REQUIRE(wait_until([&] { return count_of(held(cluster), "ready") == 1; }, kHangs));
        if (by_release)
            CHECK_THAT(cluster.dtrun({"release"}).out, Contains("s1 and s2"));
        else
            cluster.kill(hold.pid(), SIGINT);
        static_cast<void>(hold.wait());
        INFO(cluster.leftovers());
        CHECK(cluster.wait_all_gone());
        cluster.heal_link("s2");
    }
    CHECK(held(cluster) == "nothing is held\n");
}

}  // namespace test_warm
