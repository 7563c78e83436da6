// Jobs that cannot start: one message names every host that is in the way, why, and what to do.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_errors {

constexpr int kHosts = 5;

/// Time that starting and ending may take besides waiting for hosts.
const milliseconds kSlack{Cluster::sanitized() ? 8000 : 5000};

/// A job that must not start: no rank ran, nothing is left, and it was over in time.
Finished failing(Cluster& cluster, Lines words, milliseconds limit = milliseconds(0)) {
    const fs::path trace = cluster.scratch() / "ran";
    fs::remove(trace);
    const std::string program =
        write_program(cluster, "leave-trace", fmt::format("#!/bin/sh\n: >{}\n", trace.native()));
    words.push_back(program);
    Finished done = cluster.dtrun(std::move(words));
    UNSCOPED_INFO(done.err);
    done.err = without_news(done.err);
    CHECK(done.wall < limit + kSlack);
    CHECK(done.out.empty());
    CHECK_FALSE(fs::exists(trace));
    CHECK(cluster.wait_all_gone());
    return done;
}

/// The same for a program of the caller's choice.
Finished failing_program(Cluster& cluster, Lines words) {
    Finished done = cluster.dtrun(std::move(words));
    UNSCOPED_INFO(done.err);
    done.err = without_news(done.err);
    CHECK(done.wall < kSlack);
    CHECK(done.out.empty());
    CHECK(cluster.wait_all_gone());
    return done;
}

void empty_cache(Cluster& cluster, const std::string& host) {
    cluster.run(host, {"rm", "-rf", "/root/.cache"});
}

/// Nobody may log in on `host` any more.
void take_key_away(Cluster& cluster, const std::string& host) {
    const fs::path empty = cluster.scratch() / "nobody";
    std::ofstream(empty) << "";
    cluster.bind(host, empty, "/root/.ssh/authorized_keys");
}

/// Gives head a known_hosts in which the two hosts have changed places.
void swap_host_keys(Cluster& cluster, const std::string& a, const std::string& b) {
    const fs::path known = private_ssh_directory(cluster, "ssh-swapped") / "known_hosts";
    std::string swapped;
    for (const std::string& line : lines_of(file_text(known))) {
        std::string name = line.substr(0, line.find(','));
        const std::string rest = line.substr(line.find(','));
        if (name == a)
            name = b;
        else if (name == b)
            name = a;
        swapped += name + rest.substr(rest.find(' ')) + "\n";
    }
    std::ofstream(known) << swapped;
}

/// While it lives, only ssh gets from a host to head: a firewall that refuses, or just drops.
class Firewall {
public:
    enum class Kind { refuses, drops };

    Firewall(Cluster& cluster, Kind kind, const std::string& host) : cluster_(cluster) {
        const std::string number = host.substr(1);
        if (kind == Kind::refuses) {
            host_ = host;
            rules_ = {"ipproto tcp sport 22 lookup main pref 10",
                      "to 10.99.0.254 unreachable pref 11"};
        } else {  // what head answers to connections of the host gets lost
            host_ = "head";
            rules_ = {fmt::format("to 10.99.0.{} ipproto tcp dport 22 lookup main pref 10", number),
                      fmt::format("to 10.99.0.{} blackhole pref 11", number)};
        }
        for (const std::string& rule : rules_) REQUIRE(change("add", rule).exit_code == 0);
    }
    ~Firewall() {
        for (const std::string& rule : rules_) change("del", rule);
    }
    Firewall(const Firewall&) = delete;
    Firewall& operator=(const Firewall&) = delete;

private:
    Finished change(const std::string& verb, const std::string& rule) {
        return cluster_.run(host_, {"sh", "-c", "exec ip rule " + verb + " " + rule});
    }

    Cluster& cluster_;
    std::string host_;
    Lines rules_;
};

TEST_CASE("unknown host names are told in one line", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = failing(cluster, {"-H", "nosuch1,s1,nosuch2"});
    CHECK(done.exit_code == 201);
    CHECK(done.err ==
          "dtrun: cannot start: 2 of 3 hosts failed\n"
          "  nosuch1 and nosuch2: unknown host name; `ssh NAME` has to know it\n");
}

TEST_CASE("hosts whose port refuses are told in one line, in the order of the hosts",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const std::string& host : cluster.names)
        if (host != "s2") cluster.sshd_stop(host);
    const Finished done = failing(cluster, {"-H", "s[1-5]:2"});
    CHECK(done.exit_code == 201);
    CHECK(done.err ==
          "dtrun: cannot start: 4 of 5 hosts failed\n"
          "  s1, s3, s4 and s5: port 22 refuses connections (does sshd run there?)\n");
    const Finished other_port = failing(cluster, {"-H", "s2", "-p", "2222"});
    CHECK(other_port.exit_code == 201);
    CHECK_THAT(other_port.err, Contains("s2: port 2222 refuses connections"));
}

TEST_CASE("a filtered port is told after --connect-timeout", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.kill_link("s2", Cluster::Cut::silent);
    cluster.kill_link("s3", Cluster::Cut::silent);
    const Finished done =
        failing(cluster, {"-H", "s1,s2,s3", "--connect-timeout", "1.5"}, milliseconds(1500));
    CHECK(done.exit_code == 201);
    CHECK(done.wall >= milliseconds(1500));
    CHECK_THAT(done.err, Contains("  s2 and s3: no answer on port 22") &&
                             Contains("within 1.5 s") && Contains("--connect-timeout"));
}

TEST_CASE("a host that hangs is told after --connect-timeout, with what was awaited",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.freeze("s2");
    const fs::path trace = cluster.scratch() / "ran";
    const Finished done =
        cluster.dtrun({"-H", "s1,s2", "--connect-timeout", "1.5", "touch", trace});
    INFO(done.err);
    cluster.thaw("s2");
    CHECK(done.exit_code == 201);
    CHECK(done.wall < milliseconds(1500) + kSlack);
    CHECK_THAT(done.err, Contains("s2: ssh key exchange: no answer within 1.5 s"));
    CHECK_FALSE(fs::exists(trace));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("a host that takes no key of ours is told, with the user and what was tried",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    take_key_away(cluster, "s2");
    take_key_away(cluster, "s3");
    const Finished done = failing(cluster, {"-H", "s1,s2,s3"});
    CHECK(done.exit_code == 202);
    CHECK_THAT(done.err, Contains("  s2 and s3: permission denied for user root") &&
                             Contains("id_ed25519") && Contains("ssh-copy-id"));
    const Finished no_user = failing(cluster, {"-H", "nosuchuser@s1"});
    CHECK(no_user.exit_code == 202);
    CHECK_THAT(no_user.err, Contains("s1: permission denied for user nosuchuser"));
    const Finished no_key = failing(cluster, {"-H", "s1", "-i", "/no/such/key"});
    CHECK(no_key.exit_code == 200);  // although another key would do
    CHECK_THAT(no_key.err, Contains("/no/such/key"));
}

TEST_CASE("a host whose key has changed is told, with what to do", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    swap_host_keys(cluster, "s2", "s3");
    const Finished done = failing(cluster, {"-H", "s1,s2,s3"});
    CHECK(done.exit_code == 202);
    CHECK_THAT(done.err, Contains("s2: its host key has changed") && Contains("ssh-keygen -R s2") &&
                             Contains("ssh-keygen -R s3"));
}

TEST_CASE("all failures of all hosts are told at once", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    swap_host_keys(cluster, "s4", "nobody");
    cluster.sshd_stop("s1");
    cluster.kill_link("s2", Cluster::Cut::silent);
    take_key_away(cluster, "s3");
    const Finished done =
        failing(cluster, {"-H", "nosuch,s[1-5]", "--connect-timeout", "6"}, milliseconds(6000));
    CHECK(done.exit_code >= 201);
    CHECK(done.exit_code <= 202);
    CHECK_THAT(done.err, Contains("cannot start: 5 of 6 hosts failed") &&
                             Contains("  nosuch: unknown host name") &&
                             Contains("  s1: port 22 refuses connections") &&
                             Contains("  s2: no answer on port 22") &&
                             Contains("  s3: permission denied for user root") &&
                             Contains("  s4: its host key is not in known_hosts"));
    CHECK_THAT(done.err, !Contains("s5:"));
}

TEST_CASE("a program that is missing on some hosts is told", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const char* host : {"head", "s1"})
        REQUIRE(cluster.run(host, {"cp", "/bin/true", "/tmp/prog"}).exit_code == 0);
    const Finished some = failing_program(cluster, {"-H", "s1,s2,s3", "/tmp/prog"});
    CHECK(some.exit_code == 127);
    CHECK(some.err ==
          "dtrun: cannot start: 2 of 3 hosts failed\n"
          "  s2 and s3: /tmp/prog: no such file, though it is here: it has to lie at the same path "
          "on "
          "every host, in a shared folder or as a copy\n");
    const Finished all = failing_program(cluster, {"-H", "s1,s2", "no-such-program"});
    CHECK(all.exit_code == 127);
    CHECK_THAT(all.err, Contains("  s1 and s2: no-such-program: not found on PATH\n"));
    const Finished here = failing_program(cluster, {"-np", "2", "no-such-program"});
    CHECK(here.exit_code == 127);
    CHECK(here.err == "dtrun: no-such-program: not found on PATH (on localhost)\n");
}

TEST_CASE("a program whose interpreter is missing is told", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(cluster, "interpreted", "#!/no/such/interpreter\n");
    const Finished done = failing_program(cluster, {"-H", "s1:2,s2:2", program});
    CHECK(done.exit_code == 127);
    CHECK(done.err ==
          fmt::format("dtrun: cannot start: 2 of 2 hosts failed\n"
                      "  s1 and s2: {}: its interpreter /no/such/interpreter is not there\n",
                      program));
}

TEST_CASE("a working directory that is missing on a host is told", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    REQUIRE(cluster.run("s1", {"mkdir", "-p", "/tmp/only-s1"}).exit_code == 0);
    const Finished done = failing(cluster, {"-H", "s1,s2", "--wdir", "/tmp/only-s1"});
    CHECK(done.exit_code == 126);
    CHECK_THAT(done.err, Contains("  s2: /tmp/only-s1: No such file or directory (--wdir)"));
}

TEST_CASE("what cannot be executed is told", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path script = write_program(cluster, "plain.py", "print()\n");
    fs::permissions(script, fs::perms(0644));
    const Finished done = failing_program(cluster, {"-H", "s1,s2", script});
    CHECK(done.exit_code == 126);
    CHECK_THAT(done.err,
               Contains(fmt::format("  s1 and s2: {}: not executable (chmod +x", script.native())));
    const Finished directory = failing_program(cluster, {"-H", "s1,s2", "/tmp"});
    CHECK(directory.exit_code == 126);
    CHECK_THAT(directory.err, Contains("/tmp: is a directory"));
}

TEST_CASE("a host whose CPU we have no agent for is told", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string uname = write_program(
        cluster, "uname", "#!/bin/sh\n[ \"$1\" = -nm ] && echo s1 sparc64 || echo s1\n");
    cluster.bind("s1", uname, "/usr/bin/uname");
    empty_cache(cluster, "s1");
    const Finished done = failing(cluster, {"-H", "s1,s2"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err,
               Contains("  s1: its CPU is sparc64, and this dtrun has no agent for that") &&
                   Contains("dtrun-agent-sparc64"));
}

TEST_CASE("a home that is full when the agent is copied is told, and no part of it stays",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    empty_cache(cluster, "s1");
    cluster.limit_home("s1", "1m");
    const Finished done = failing(cluster, {"-H", "s1,s2"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err,
               Contains("  s1: cannot store the agent") && Contains("No space left on device"));
    CHECK(cluster.run("s1", {"sh", "-c", "ls -A /root/.cache/dtrun"}).out.empty());
    cluster.limit_home("s1", "");
    CHECK(cluster.dtrun({"-H", "s1", "true"}).exit_code == 0);
}

TEST_CASE("a home from which nothing can be executed is told, copied agent or not",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    empty_cache(cluster, "s1");
    REQUIRE(cluster.dtrun({"-H", "s2", "true"}).exit_code == 0);
    for (const char* host : {"s1", "s2"}) cluster.limit_home(host, "", true);
    const Finished done = failing(cluster, {"-H", "s1,s2,s3"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err, Contains("s1") && Contains("s2") && Contains("cannot execute") &&
                             Contains("/root/.cache/dtrun/agent-") && Contains("noexec"));
}

TEST_CASE("a cache directory that cannot be made is told", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    empty_cache(cluster, "s1");
    REQUIRE(cluster.run("s1", {"touch", "/root/.cache"}).exit_code == 0);
    const Finished done = failing(cluster, {"-H", "s1,s2"});
    cluster.run("s1", {"rm", "-f", "/root/.cache"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err, Contains("  s1: cannot store the agent") && Contains("/root/.cache"));
}

TEST_CASE("an account without a shell is told in its own words", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path passwd = cluster.scratch() / "passwd";
    std::string text = cluster.run("s1", {"cat", "/etc/passwd"}).out;
    const std::string entry = "/home/dtuser:/bin/bash";
    text.replace(text.find(entry), entry.size(), "/home/dtuser:/usr/sbin/nologin");
    std::ofstream(passwd) << text;
    cluster.bind("s1", passwd, "/etc/passwd");
    const Finished done = failing(cluster, {"-H", "dtuser@s1,s2"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err, Contains("  s1: the agent did not start") &&
                             Contains("This account is currently not available"));
}

TEST_CASE("a machine that is listed by two names is told before any rank starts",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        failing(cluster, {"-H", "s1:1,s1.cluster.local:1,s2:1", "--accept-new-host-keys"});
    CHECK(done.exit_code == 200);
    CHECK_THAT(done.err, Contains("  s1.cluster.local: one machine with s1: give it one name") ||
                             Contains("  s1: one machine with s1.cluster.local: give it one name"));
}

TEST_CASE("this machine's long name is this machine, for which no ssh is needed",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.sshd_stop("head");
    const Finished done = cluster.dtrun({"-H", "HEAD.cluster.local:2", "echo", "here"});
    cluster.sshd_start("head");
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("here"));
}

TEST_CASE("a head that refuses a host's connection is told with the addresses that were tried",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Firewall firewall(cluster, Firewall::Kind::refuses, "s1");
    const Finished done = failing(cluster, {"-H", "s1,s2"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err, Contains("  s1: the agent cannot reach this machine: tried port ") &&
                             Contains("10.99.0.254 ("));
}

TEST_CASE("a head that a host cannot reach is told with all addresses that were tried, in time",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    REQUIRE(cluster.run("head", {"ip", "addr", "add", "10.98.0.1/24", "dev", "eth0"}).exit_code ==
            0);
    {
        const Firewall firewall(cluster, Firewall::Kind::drops, "s1");
        const Finished done =
            failing(cluster, {"-H", "s1,s2", "--connect-timeout", "5"}, milliseconds(5000));
        CHECK(done.exit_code == 203);
        CHECK_THAT(done.err, Contains("  s1: the agent cannot reach this machine: tried port ") &&
                                 Contains("10.99.0.254 (no answer)") && Contains("10.98.0.1 ("));
    }
    cluster.run("head", {"ip", "addr", "del", "10.98.0.1/24", "dev", "eth0"});
}

TEST_CASE("a network without loopback, as of `unshare -n`, is told as that", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        cluster.run("head", {"unshare", "-n", Cluster::program(), "-np", "2", "true"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err, Contains("no loopback: ip link set lo up") && !Contains("firewall"));
}

TEST_CASE("of several addresses of the head a host uses the one that it can reach",
          "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    REQUIRE(cluster.run("head", {"ip", "link", "add", "other0", "type", "veth", "peer", "other1"})
                .exit_code == 0);
    cluster.run("head", {"ip", "addr", "add", "10.97.0.1/24", "dev", "other0"});
    cluster.run("head", {"ip", "link", "set", "other0", "up"});
    const Finished done = cluster.dtrun({"--verbose", "-H", "s1,s2", "true"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("on s1 joined 10.99.0.254 from ") &&
                             Contains("on s2 joined 10.99.0.254 from "));
    const Finished asked = failing(
        cluster, {"-H", "s1,s2", "--network-interfaces", "other0", "--connect-timeout", "5"},
        milliseconds(5000));
    CHECK_THAT(asked.err, Contains("10.97.0.1") && !Contains("10.99.0.254"));
    cluster.run("head", {"ip", "link", "del", "other0"});
    const Finished none = failing(cluster, {"-H", "s1", "--network-interfaces", "nosuch0"});
    CHECK(none.exit_code == 200);
    CHECK_THAT(none.err, Contains("no network interface nosuch0"));
}

TEST_CASE("mistakes in the command line end at once with code 200", "[cluster][errors]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::vector<Lines> mistakes{
        {"-H", "s1"}, {"-H", "s1:x", "true"}, {"--no-such-flag", "true"}, {"-np", "0", "true"}};
    for (const Lines& words : mistakes) {
        const Finished done = cluster.dtrun(words);
        INFO(fmt::format("{}: {}", fmt::join(words, " "), done.err));
        CHECK(done.exit_code == 200);
        CHECK_THAT(done.err, Catch::StartsWith("dtrun: "));
    }
}

}  // namespace test_errors
