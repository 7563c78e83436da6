// The hosts are what they claim to be, and go when they should.
#include "base/fd.h"
#include "base/strings.h"
#include "tests/cluster/support/cluster.h"
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
namespace fs = std::filesystem;

namespace test_harness {

constexpr int kHosts = 4;

std::vector<std::string> ssh(std::vector<std::string> words) {
    std::vector<std::string> argv{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2"};
    argv.insert(argv.end(), words.begin(), words.end());
    return argv;
}

bool reachable(Cluster& cluster, const std::string& host) {
    return cluster.run("head", ssh({host, "true"})).exit_code == 0;
}

bool is_sleep(const Process& process) {
    return process.name == "sleep";
}

TEST_CASE("ssh from head reaches every host, by name and by address, as root and as dtuser",
          "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    std::set<std::string> pid_namespaces;
    for (const std::string& name : cluster.names) {
        const Finished root =
            cluster.run("head", ssh({name, "hostname; readlink /proc/self/ns/pid"}));
        INFO(root.err << cluster.sshd_log(name));
        REQUIRE(root.exit_code == 0);
        REQUIRE(root.out.starts_with(name + "\n"));
        pid_namespaces.insert(root.out.substr(name.size()));
        const Finished user =
            cluster.run("head", ssh({"dtuser@10.99.0." + name.substr(1), "id -un"}));
        CHECK(user.out == "dtuser\n");
    }
    CHECK(pid_namespaces.size() == cluster.names.size());
    // A session must not ignore what the harness's own processes do; 32 and 33 are glibc's.
    const std::string ignored = cluster.run("head", ssh({"s1", "grep SigIgn /proc/$$/status"})).out;
    REQUIRE(ignored.starts_with("SigIgn:"));
    CHECK((std::stoull(ignored.substr(7), nullptr, 16) & 0x7fffffff) == 0);
    RunOptions as_dtuser;
    as_dtuser.user = "dtuser";
    CHECK(cluster.run("head", ssh({"s2", "pwd"}), as_dtuser).out == "/home/dtuser\n");
}

TEST_CASE("a file in one host's home, /tmp or /run is on no other host, one in scratch is on all",
          "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const std::string directory : {"/root", "/tmp", "/run", "/dev/shm", "/home/dtuser"}) {
        INFO(directory);
        REQUIRE(cluster.run("s1", {"touch", directory + "/only-here"}).exit_code == 0);
        CHECK(cluster.run("s2", {"test", "-e", directory + "/only-here"}).exit_code == 1);
        CHECK_FALSE(fs::exists(directory + "/only-here"));
    }
    std::ofstream(cluster.scratch() / "everywhere").put('x');
    CHECK(cluster.run("s3", {"cat", (cluster.scratch() / "everywhere").string()}).out == "x");
}

TEST_CASE("a command gets its words, environment, directory and input, and its output is whole",
          "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.env["COLOUR"] = "red  and 'blue'";
    options.cwd = "/usr";
    options.stdin_text = std::string(1 << 20, 'i');
    const Finished done = cluster.run(
        "s1", {"sh", "-c", "echo \"$COLOUR|$PWD|$1\" >&2; cat; exit 7", "sh", "a  b"}, options);
    CHECK(done.exit_code == 7);
    CHECK(done.err == "red  and 'blue'|/usr|a  b\n");
    CHECK(done.out.size() == options.stdin_text.size());
    CHECK(cluster.run("s1", {"no-such-program"}).exit_code == 127);
    CHECK(cluster.run("s1", {"sh", "-c", "kill -9 $$"}).exit_code == 137);
    CHECK(cluster.run("s1", {"ls", "/proc/self/fd"}).out == "0\n1\n2\n3\n");
}

TEST_CASE("a command that outlives its time is killed and says so", "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.timeout = milliseconds(100);
    const Finished done = cluster.run("s1", {"sleep", "60"}, options);
    CHECK(done.timed_out);
    CHECK(done.exit_code == 137);
    CHECK(done.wall < std::chrono::seconds(10));
}

TEST_CASE("a started command can be talked to and signalled", "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running echo = cluster.start("s2", {"cat"});
    echo.write_stdin("first\n");
    REQUIRE(echo.wait_for_output("first\n"));
    CHECK_FALSE(echo.finished());
    echo.close_stdin();
    CHECK(echo.wait().exit_code == 0);

    Running trap = cluster.start("s2", {"sh", "-c", "trap 'exit 5' TERM; echo ready; read line"});
    REQUIRE(trap.wait_for_output("ready"));
    trap.signal(SIGTERM);
    CHECK(trap.wait().exit_code == 5);
}

TEST_CASE("a command on a terminal sees its size, and ^C interrupts it", "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.terminal = true;
    options.columns = 123;
    CHECK(cluster.run("s1", {"sh", "-c", "stty size </dev/tty"}, options).out == "24 123\r\n");
    Running echo = cluster.start("s1", {"cat"}, options);
    echo.write_stdin("typed\n");
    REQUIRE(echo.wait_for_output("typed\r\ntyped\r\n"));
    echo.write_stdin("\x03");
    CHECK(echo.wait(milliseconds(10'000)).exit_code == 130);
}

TEST_CASE("a cut link is noticed at once, a silent cut is not, and both heal",
          "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto carrier = [&] {
        return cluster.run("s1", {"cat", "/sys/class/net/eth0/carrier"}).out;
    };
    CHECK(carrier() == "1\n");
    cluster.kill_link("s1");
    CHECK(carrier() == "0\n");
    CHECK_FALSE(reachable(cluster, "s1"));
    CHECK(reachable(cluster, "s2"));
    cluster.heal_link("s1");
    CHECK(reachable(cluster, "s1"));

    cluster.kill_link("s1", Cluster::Cut::silent);
    CHECK(carrier() == "1\n");
    CHECK_FALSE(reachable(cluster, "s1"));
    cluster.heal_link("s1");
    CHECK(reachable(cluster, "s1"));
}

TEST_CASE("a stopped sshd refuses, its sessions go on, and it starts again", "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running session = cluster.start("head", ssh({"s1", "echo in; cat"}));
    REQUIRE(session.wait_for_output("in"));
    cluster.sshd_stop("s1");
    CHECK(cluster.run("head", ssh({"s1", "true"})).err.find("refused") != std::string::npos);
    session.write_stdin("still here\n");
    CHECK(session.wait_for_output("still here"));
    cluster.sshd_start("s1");
    CHECK(reachable(cluster, "s1"));
}

TEST_CASE("a frozen host stands still and goes on when thawed", "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running count =
        cluster.start("s1", {"sh", "-c", "i=0; while sleep 0.01; do i=$((i+1)); echo $i; done"});
    REQUIRE(count.wait_for_output("1\n"));
    cluster.freeze("s1");
    const std::string before = count.out_so_far();
    CHECK_FALSE(reachable(cluster, "s1"));  // takes seconds
    CHECK(count.out_so_far().size() <= before.size() + 8);
    cluster.thaw("s1");
    const std::size_t frozen = count.out_so_far().size();
    while (!count.finished() && count.out_so_far().size() < frozen + 20) usleep(10'000);
    CHECK(reachable(cluster, "s1"));
}

TEST_CASE("a crashed host is silent and empty, and boots with its host key and a new home",
          "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running console = cluster.start("s1", {"sleep", "60"});
    Running session = cluster.start("head", ssh({"s1", "echo in; touch lost; sleep 60"}));
    REQUIRE(session.wait_for_output("in"));
    cluster.crash("s1");
    CHECK(console.wait().exit_code == 137);
    CHECK(cluster.processes("s1").empty());
    CHECK_FALSE(reachable(cluster, "s1"));
    CHECK_FALSE(session.finished());  // nobody told it
    REQUIRE_THROWS_WITH(cluster.start("s1", {"true"}), Catch::Contains("crashed"));
    cluster.boot("s1");
    CHECK(cluster.run("head", ssh({"s1", "test -e lost"})).exit_code == 1);
}

TEST_CASE("a file put over another one and a limited home hold until reset", "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path fake = cluster.scratch() / "fake-uname";
    std::ofstream(fake) << "#!/bin/sh\necho sparc\n";
    fs::permissions(fake, fs::perms::owner_all);
    cluster.bind("s1", fake, "/usr/bin/uname");
    CHECK(cluster.run("head", ssh({"s1", "uname -m"})).out == "sparc\n");
    CHECK(cluster.run("s2", {"uname", "-s"}).out == "Linux\n");

    const std::string shell = "cp /bin/true ~/t && ~/t; head -c 2000000 /dev/zero > ~/f";
    cluster.limit_home("s1", "1m", true);
    const Finished full = cluster.run("s1", {"sh", "-c", shell});
    CHECK(full.err.find("Permission denied") != std::string::npos);
    CHECK(full.err.find("No space left") != std::string::npos);
    cluster.reset();
    CHECK(cluster.run("s1", {"sh", "-c", shell}).exit_code == 0);
    CHECK(cluster.run("s1", {"uname", "-s"}).out == "Linux\n");
}

TEST_CASE("leftovers of all kinds are found, and reset ends them and heals every host",
          "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);
    CHECK(cluster.leftovers().empty());
    cluster.run("head", ssh({"s1", "setsid sleep 61 >/dev/null 2>&1 </dev/null &"}));
    cluster.run("s2", {"sh", "-c", "(trap '' TERM HUP; exec sleep 62) >/dev/null 2>&1 &"});
    // Their shells may end before either has become a `sleep`: until its exec the first one is
    // called `setsid sleep 61`, and for a moment of the exec it has no command line at all.
    const auto sleeps = [&](const std::string& host, const std::string& command) {
        const std::vector<Process> found = cluster.processes(host);
        return found.size() == 1 && found[0].cmdline == command;
    };
    const auto both_sleep = [&] { return sleeps("s1", "sleep 61") && sleeps("s2", "sleep 62"); };
    REQUIRE(wait_until(both_sleep, milliseconds(10000)));
    const std::vector<Process> left = cluster.processes("s1");
    REQUIRE(left.size() == 1);
    const Process& leftover = left[0];
    CHECK(leftover.cmdline == "sleep 61");
    CHECK_FALSE(cluster.wait_gone("s1", is_sleep, milliseconds(50)));
    cluster.kill(leftover.pid_outside, SIGTERM);
    CHECK(cluster.wait_gone("s1", is_sleep));

    cluster.freeze("s2");
    cluster.crash("s3");
    cluster.kill_link("s4");
    cluster.sshd_stop("s1");
    cluster.reset();
    CHECK(cluster.leftovers().empty());
    for (const std::string& name : cluster.names) CHECK(reachable(cluster, name));
}

/// This machine as a place to start commands in.
Place here() {
    return {getpid(), {}};
}

Command this_program(const std::string& hidden_test) {
    const fs::path self = fs::read_symlink("/proc/self/exe");
    return {{self, hidden_test}, {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/", {0, 0, "/root"}};
}

std::string line_after(const std::string& text, std::string_view key) {
    const std::size_t start = text.find(key) + key.size();
    return text.substr(start, text.find('\n', start) - start);
}

/// Where /proc shows the namespaces of the processes whose pids these are.
std::vector<std::string> namespace_paths(const std::vector<std::string>& pids) {
    std::vector<std::string> paths;
    for (const std::string& pid : pids) {
        for (const char* kind : {"pid", "net", "mnt", "uts", "ipc"}) {
            paths.push_back(fmt::format("/proc/{}/ns/{}", pid, kind));
        }
    }
    return paths;
}

std::set<std::string> namespaces_of(const std::vector<std::string>& pids) {
    std::set<std::string> found;
    std::error_code gone;
    for (const std::string& path : namespace_paths(pids)) {
        found.insert(fs::read_symlink(path, gone));
    }
    return found;
}

std::vector<std::string> all_pids() {
    std::vector<std::string> pids;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        if (to_int(name, 1, 1 << 30)) pids.push_back(name);
    }
    return pids;
}

bool any_lives_in(const std::set<std::string>& namespaces) {
    for (const std::string& space : namespaces_of(all_pids())) {
        if (!space.empty() && namespaces.contains(space)) return true;
    }
    return false;
}

/// What a cluster has on this machine, to see whether it is gone later. It holds the namespaces open, for Linux
/// gives the number of one that is gone to the next, which may be that of another test's hosts.
struct Traces {
    explicit Traces(fs::path state_directory) : state(std::move(state_directory)) {
        std::vector<std::string> inits;
        for (const auto& host : fs::directory_iterator(state / "hosts")) {
            inits.push_back(file_text(host.path() / "pid"));
        }
        for (const std::string& path : namespace_paths(inits)) {
            held.emplace_back(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        }
        namespaces = namespaces_of(inits);
        for (const std::string& own : namespaces_of({"self"})) namespaces.erase(own);
        cgroup = file_text(state / "cgroup");
    }
    bool gone() const {
        return !fs::exists(state) && (cgroup.empty() || !fs::exists(cgroup)) &&
               !any_lives_in(namespaces);
    }
    bool gone_within(milliseconds timeout) const {
        const auto end = std::chrono::steady_clock::now() + timeout;
        while (!gone() && std::chrono::steady_clock::now() < end) usleep(20'000);
        return gone();
    }

    fs::path state;
    std::vector<Fd> held;
    std::set<std::string> namespaces;
    std::string cgroup;
};

TEST_CASE("victim: brings up a cluster, leaves processes on it and waits", "[.][victim]") {
    Cluster cluster(2);
    cluster.run("head", ssh({"s1", "setsid sleep 63 >/dev/null 2>&1 </dev/null &"}));
    Running console = cluster.start("s2", {"sleep", "64"});
    std::printf("STATE=%s\n", cluster.state().c_str());
    std::fflush(stdout);
    pause();
}

TEST_CASE("a cluster goes without a trace when its test program is killed", "[cluster][harness]") {
    Cluster& cluster = Cluster::shared(kHosts);  // two at once do not meet
    const std::string mounts = file_text("/proc/self/mountinfo");
    Running victim(here(), this_program("[victim]"), {});
    REQUIRE(victim.wait_for_output("STATE=/"));
    REQUIRE(victim.wait_for_output("\n"));
    const Traces traces(line_after(victim.out_so_far(), "STATE="));
    REQUIRE(traces.namespaces.size() == 5 * 3);
    CHECK_FALSE(traces.gone());
    victim.signal(SIGKILL);
    CHECK(victim.wait().exit_code == 137);
    CHECK(traces.gone_within(milliseconds(5000)));
    CHECK(file_text("/proc/self/mountinfo") == mounts);
    CHECK(reachable(cluster, "s1"));
}

TEST_CASE("hosts end with their supervisor, and down removes what it leaves",
          "[cluster][harness]") {
    Cluster::shared(kHosts);
    std::optional<Traces> traces;
    {
        Cluster doomed(2);
        traces.emplace(doomed.state());
        const std::string init = file_text(doomed.state() / "hosts/s1/pid");
        const std::string supervisor =
            line_after(file_text(fmt::format("/proc/{}/status", init)), "PPid:\t");
        doomed.kill(std::stoi(supervisor), SIGKILL);
        CHECK_THROWS_WITH(doomed.reset(), Catch::Contains("no cluster answers"));
    }
    CHECK(traces->gone_within(milliseconds(5000)));
}

}  // namespace test_harness
