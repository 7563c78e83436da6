// Hosts behind relays, and what ranks ask of the store through their agents.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <csignal>
#include <thread>
#include <utility>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_tree {

constexpr int kHosts = 6;
constexpr const char* kOnSix = "s1:2,s2:2,s3:2,s4:2,s5:2,s6:2";

/// Copies the agent where it is not yet, by jobs so small that no host hands it on: a process that does so is there for a
/// minute, and is not the one to be killed.
void copy_agent(Cluster& cluster) {
    for (const char* const hosts : {"s1,s2,s3", "s4,s5,s6"}) {
        const Finished done = cluster.dtrun({"--connect-timeout", "60", "-H", hosts, "true"});
        INFO(done.err);
        REQUIRE(done.exit_code == 0);
    }
}

Lines in_tree(Lines words) {
    words.insert(words.begin(), {"--tree-threshold", "2", "-H", kOnSix});
    return words;
}

TEST_CASE("ranks of hosts behind relays start, print and end like others",
          "[cluster][tree][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun(in_tree(
        {"--verbose", "sh", "-c", "echo rank $DTRUN_RANK of $DTRUN_SIZE on $DTRUN_HOST; cat"}));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    const auto ranks = by_rank(done.out);
    REQUIRE(ranks.size() == 12);
    for (const auto& [rank, text] : ranks)
        CHECK(text == fmt::format("rank {} of 12 on s{}\n", rank, rank / 2 + 1));
    CHECK(count_of(done.err, "joined a relay from") == 3);  // sqrt(6) of them are relays
    CHECK(cluster.wait_all_gone({}, milliseconds(5'000)));
}

TEST_CASE("much output comes through relays unharmed", "[cluster][tree][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        cluster.dtrun(in_tree({"--tag", "none", "sh", "-c", "seq -f '%.0f of a line' 1 20000"}));
    INFO(done.err);
    CHECK(done.exit_code == 0);
    const Lines lines = sorted_lines(done.out);
    REQUIRE(lines.size() == 12 * 20'000);
    CHECK(std::ranges::count(lines, "20000 of a line") == 12);
}

TEST_CASE("a rank behind a relay that fails ends the job with its code", "[cluster][tree]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun(
        in_tree({"--grace", "1", "sh", "-c", "[ $DTRUN_RANK = 11 ] && exit 33; sleep 60"}));
    INFO(done.err);
    CHECK(done.exit_code == 33);
    CHECK_THAT(done.err, Contains("rank 11 on s6"));
    CHECK(cluster.wait_all_gone({}, milliseconds(5'000)));
}

TEST_CASE("a host behind a relay, and a relay with those behind it, are lost by name",
          "[cluster][tree]") {
    Cluster& cluster = Cluster::shared(kHosts);
    copy_agent(cluster);
    for (const char* host : {"s6", "s1"}) {
        for (const bool silent : {false, true}) {
            INFO(host << (silent ? " silent" : ""));
            Running job = cluster.start_dtrun(in_tree(
                {"--connect-timeout", "60", "--grace", "1", "sh", "-c", "echo ready; sleep 60"}));
            REQUIRE(wait_for_count(job, "ready", 12));
            if (silent)
                cluster.freeze(host);
            else
                ::kill(find_process(cluster, host, is_agent).pid_outside, SIGKILL);
            const Finished done = job.wait();
            INFO(done.err);
            CHECK(done.exit_code == 204);
            CHECK_THAT(done.err, Contains(fmt::format("dtrun: host {} lost: ", host)));
            if (silent) cluster.thaw(host);
            CHECK(cluster.wait_all_gone({}, milliseconds(8'000)));
        }
    }
}

TEST_CASE("Ctrl-C ends ranks behind relays", "[cluster][tree]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job =
        cluster.start_dtrun(in_tree({"--grace", "1", "sh", "-c", "echo ready; sleep 60"}));
    REQUIRE(wait_for_count(job, "ready", 12));
    job.signal(SIGINT);
    const Finished done = job.wait(milliseconds(10'000));
    CHECK(done.exit_code == 130);
    CHECK(cluster.wait_all_gone({}, milliseconds(5'000)));
}

TEST_CASE("a relay that cannot be started is reported, and not those behind it",
          "[cluster][tree][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.sshd_stop("s1");
    const Finished done = cluster.dtrun(in_tree({"--connect-timeout", "60", "true"}));
    INFO(done.err);
    CHECK(done.exit_code == 201);
    CHECK_THAT(done.err, Contains("1 of 6 hosts failed") && Contains("s1: "));
    cluster.sshd_start("s1");
}

TEST_CASE("ranks share a store, through agents and relays, encrypted or not",
          "[cluster][tree][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program =
        write_program(cluster, "store",
                      "#!/bin/sh\n"
                      "set -e\n"
                      "dtrun=" +
                          Cluster::program() +
                          "\n"
                          "$dtrun store set from/$DTRUN_RANK \"rank $DTRUN_RANK\"\n"
                          "$dtrun store wait from/0 from/3 from/7 from/11\n"
                          "echo sees $($dtrun store get from/11)\n"
                          "$dtrun store add sum 1 >/dev/null\n"
                          "while [ $($dtrun store get sum) != 12 ]; do sleep 0.1; done\n"
                          "$dtrun store ls from/ | wc -l\n");
    for (const Lines& options : {Lines{}, Lines{"--encrypt"}}) {
        Lines words = in_tree({});
        words.insert(words.end(), options.begin(), options.end());
        words.push_back(program);
        const Finished done = cluster.dtrun(words);
        INFO(done.err);
        CHECK(done.exit_code == 0);
        const auto ranks = by_rank(done.out);
        REQUIRE(ranks.size() == 12);
        for (const auto& [rank, text] : ranks) CHECK(text == "sees rank 11\n12\n");
    }
}

/// Of hosts behind relays: to how many of them others than the head log in while this runs.
class LoginsByRelays {
public:
    explicit LoginsByRelays(const Cluster& cluster) : cluster_(cluster), before_(count()) {}
    long so_far() const { return count() - before_; }

private:
    long count() const {
        long found = 0;
        for (const char* const host : {"s4", "s5", "s6"})
            for (const char* const relay : {"10.99.0.1 ", "10.99.0.2 ", "10.99.0.3 "})
                found += static_cast<long>(
                    count_of(cluster_.sshd_log(host),
                             fmt::format("Accepted publickey for root from {}", relay)));
        return found;
    }

    const Cluster& cluster_;
    const long before_;
};

/// The relays have the user's key while it lives.
class KeysOnRelays {
public:
    explicit KeysOnRelays(Cluster& cluster) : cluster_(cluster) {
        on_each("umask 77; cat >.ssh/id_ed25519");
    }
    ~KeysOnRelays() { on_each("rm .ssh/id_ed25519"); }
    KeysOnRelays(const KeysOnRelays&) = delete;
    KeysOnRelays& operator=(const KeysOnRelays&) = delete;

private:
    void on_each(const char* command) {
        cluster_.run("head", {"sh", "-c",
                              "for host in s1 s2 s3; do ssh $host \"$0\" <~/.ssh/id_ed25519; done",
                              command});
    }
    Cluster& cluster_;
};

/// One log-in at a time, so that relays have something to do, and time for it on a busy machine.
Lines by_relays(Lines words) {
    words.insert(words.begin(), {"--fanout", "1", "--verbose", "--connect-timeout", "60"});
    return in_tree(std::move(words));
}

/// Six log-ins, one after the other, take a busy machine more than the usual minute.
RunOptions patient() {
    RunOptions options;
    options.timeout = milliseconds(180'000);
    return options;
}

TEST_CASE("relays that have a key log in to the hosts behind them", "[cluster][tree][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const KeysOnRelays keys(cluster);
    for (const Lines& options : {Lines{}, Lines{"--encrypt"}}) {
        const LoginsByRelays logins(cluster);
        Lines words = options;
        words.insert(words.end(), {"sh", "-c", "echo rank $DTRUN_RANK on $DTRUN_HOST"});
        const Finished done = cluster.dtrun(by_relays(words), patient());
        INFO(done.err);
        CHECK(done.exit_code == 0);
        CHECK(by_rank(done.out).size() == 12);
        CHECK(logins.so_far() >= 1);
        CHECK_THAT(done.err, !Contains("not by way of"));
        CHECK(cluster.wait_all_gone({}, milliseconds(5'000)));
    }
}

TEST_CASE("a relay that has logged in to others is lost by name, and they end", "[cluster][tree]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const KeysOnRelays keys(cluster);
    copy_agent(cluster);
    for (const bool silent : {false, true}) {
        const LoginsByRelays logins(cluster);
        Running job =
            cluster.start_dtrun(by_relays({"--grace", "1", "sh", "-c", "echo ready; sleep 60"}));
        REQUIRE(wait_for_count(job, "ready", 12));
        CHECK(logins.so_far() >= 1);
        if (silent)
            cluster.freeze("s1");
        else
            ::kill(find_process(cluster, "s1", is_agent).pid_outside, SIGKILL);
        const Finished done = job.wait();
        INFO(done.err);
        CHECK(done.exit_code == 204);
        CHECK_THAT(done.err, Contains("dtrun: host s1 lost: "));
        if (silent) cluster.thaw("s1");
        CHECK(cluster.wait_all_gone({}, milliseconds(8'000)));
    }
}

TEST_CASE("Ctrl-C ends hosts to which relays have logged in", "[cluster][tree]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const KeysOnRelays keys(cluster);
    for (const int after_ms : {150, 300, 500, 800, 1'500}) {
        INFO(after_ms);
        Running job =
            cluster.start_dtrun(by_relays({"--grace", "1", "sh", "-c", "echo ready; sleep 60"}));
        std::this_thread::sleep_for(milliseconds(after_ms));
        job.signal(SIGINT);
        const Finished done = job.wait(milliseconds(10'000));
        CHECK(done.exit_code == 130);
        CHECK(cluster.wait_all_gone({}, milliseconds(5'000)));
    }
}

TEST_CASE("where relays have no key the head logs in to all hosts", "[cluster][tree]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const LoginsByRelays logins(cluster);
    const Finished done = cluster.dtrun(by_relays({"true"}), patient());
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(logins.so_far() == 0);
    CHECK_THAT(done.err, Contains("not by way of s"));
    CHECK(cluster.wait_all_gone({}, milliseconds(5'000)));
}

TEST_CASE("relays get the keys of ssh-agent when that is asked for, and not else",
          "[cluster][tree]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto run = [&cluster](Lines options) {
        for (const char* const word :
             {"sh", "-c",
              "sleep 1; ssh-add -l >/dev/null 2>&1; echo finds an agent: $? at $SSH_AUTH_SOCK."})
            options.push_back(word);
        Lines words{"ssh-agent", "sh", "-c", "ssh-add -q && exec \"$@\"", "sh", Cluster::program()};
        const Lines rest = by_relays(options);
        words.insert(words.end(), rest.begin(), rest.end());
        return cluster.run("head", words, patient());
    };
    {
        const LoginsByRelays logins(cluster);
        const Finished done = run({"--tree-login", "forward-agent"});
        INFO(done.err);
        CHECK(done.exit_code == 0);
        CHECK(logins.so_far() >= 1);
        // It is the relays' for as long as they log in, and ranks see what they would without it.
        for (const auto& [rank, text] : by_rank(done.out))
            CHECK(text == "finds an agent: 2 at .\n");
    }
    cluster.run("head", {"sh", "-c", "echo ForwardAgent yes >~/.ssh/config"});
    const LoginsByRelays logins(cluster);
    const Finished done = run({});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(logins.so_far() == 0);
    cluster.run("head", {"sh", "-c", "rm ~/.ssh/config"});
    CHECK(cluster.wait_all_gone(is_agent,
                                milliseconds(5'000)));  // an ssh-agent looks only now and then
}

}  // namespace test_tree
