// How dtrun gets into a host: keys, configuration, host keys, its agent, and what others may see.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_login {

constexpr int kHosts = 3;

/// A job of one rank that tells who it is and where the log-in came from.
constexpr const char* kWho =
    "echo $(id -un) $(hostname) ${SSH_CONNECTION%% *} ${SSH_CONNECTION##* }";

Finished who(Cluster& cluster, Lines words) {
    words.insert(words.end(), {"sh", "-c", kWho});
    return cluster.dtrun(std::move(words));
}

/// Moves the key to where no program looks for it.
fs::path hide_key(const fs::path& ssh) {
    fs::rename(ssh / "id_ed25519", ssh / "hidden");
    return "/root/.ssh/hidden";
}

void append(const fs::path& file, std::string_view text) {
    std::ofstream(file, std::ios::app) << text;
}

void write_file(const fs::path& file, std::string_view text) {
    std::ofstream(file) << text;
}

/// known_hosts without the lines of a host.
void forget(const fs::path& ssh, const std::string& host) {
    std::string kept;
    for (const std::string& line : lines_of(file_text(ssh / "known_hosts")))
        if (!line.starts_with(host + ",")) kept += line + "\n";
    write_file(ssh / "known_hosts", kept);
}

/// "TYPE KEY" of a host in known_hosts.
std::string key_of(const fs::path& ssh, const std::string& host) {
    for (const std::string& line : lines_of(file_text(ssh / "known_hosts")))
        if (line.starts_with(host + ",")) return line.substr(line.find(' ') + 1);
    return {};
}

/// Inode, size and time of change of each file of the agent's cache.
/// The agent, and its package as it came and unpacked.
constexpr std::size_t kFiles = 3;

std::string cached(Cluster& cluster, const std::string& host) {
    return cluster
        .run(host,
             {"sh", "-c", "stat -c '%n %i %s %z' /root/.cache/dtrun/* /root/.cache/dtrun/.n*"})
        .out;
}

void empty_cache(Cluster& cluster, const std::string& host) {
    cluster.run(host, {"rm", "-rf", "/root/.cache"});
}

TEST_CASE("the key that -i names is used", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path key = hide_key(private_ssh_directory(cluster, "ssh-i"));
    CHECK(who(cluster, {"-H", "s1"}).exit_code == 202);
    const Finished done = who(cluster, {"-H", "s1", "-i", key});
    INFO(done.err);
    CHECK(done.out == "root s1 10.99.0.254 22\n");
}

TEST_CASE("a key that only ssh-agent has is used", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-agent");
    const fs::path key = hide_key(ssh);
    // Its file can go once the agent has it.
    const Finished done =
        cluster.run("head", {"ssh-agent", "sh", "-c", "ssh-add -q $0 && rm $0 && exec \"$@\"", key,
                             cluster.program(), "-H", "s1,s2", "sh", "-c", kWho});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(by_rank(done.out) == std::map<int, std::string>{{0, "root s1 10.99.0.254 22\n"},
                                                          {1, "root s2 10.99.0.254 22\n"}});
}

TEST_CASE("a key under a passphrase works through ssh-agent, and alone is refused, not asked for",
          "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-passphrase");
    const Finished set = cluster.run("head", {"ssh-keygen", "-q", "-p", "-P", "", "-N", "sesame",
                                              "-f", "/root/.ssh/id_ed25519"});
    REQUIRE(set.exit_code == 0);
    const Finished refused = who(cluster, {"-H", "s1"});
    CHECK(refused.exit_code == 202);
    CHECK(refused.wall < milliseconds(5000));
    RunOptions options;
    options.terminal = true;
    const Finished on_terminal = cluster.dtrun({"-H", "s1", "true"}, options);
    CHECK(on_terminal.exit_code == 202);
    CHECK_FALSE(on_terminal.timed_out);

    const std::string ask = write_program(cluster, "askpass", "#!/bin/sh\necho sesame\n");
    options = {};
    options.env = {{"SSH_ASKPASS", ask}, {"SSH_ASKPASS_REQUIRE", "force"}};
    const Finished done = cluster.run("head",
                                      {"ssh-agent", "sh", "-c", "ssh-add -q && exec \"$@\"", "sh",
                                       cluster.program(), "-H", "s1", "sh", "-c", kWho},
                                      options);
    INFO(done.err);
    CHECK(done.out == "root s1 10.99.0.254 22\n");
}

TEST_CASE("~/.ssh/config gives host name, user, port and key of an alias", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-config");
    const fs::path key = hide_key(ssh);
    append(ssh / "known_hosts", fmt::format("[s1]:2222 {}\n", key_of(ssh, "s1")));
    write_file(ssh / "config", fmt::format("# mine\n"
                                           "Host box other\n"
                                           "    HostName s1\n"
                                           "    User dtuser\n"
                                           "    Port 2222\n"
                                           "    IdentityFile ~/.ssh/hidden\n"
                                           "Host s2\n"
                                           "    IdentityFile {}\n",
                                           key.native()));
    Running sshd =
        cluster.start("s1", {"/usr/sbin/sshd", "-D", "-e", "-p", "2222", "-o", "PidFile=none"});
    REQUIRE(sshd.wait_for_output("listening on 0.0.0.0 port 2222"));
    const Finished done = who(cluster, {"-H", "box,s2"});
    INFO(done.err);
    CHECK(by_rank(done.out) == std::map<int, std::string>{{0, "dtuser s1 10.99.0.254 2222\n"},
                                                          {1, "root s2 10.99.0.254 22\n"}});
    // What the command line says of a host wins.
    append(ssh / "known_hosts", fmt::format("s1 {}\n", key_of(ssh, "s1")));
    const Finished said = who(cluster, {"-H", "root@box", "-p", "22"});
    INFO(said.err);
    CHECK(said.out == "root s1 10.99.0.254 22\n");
    const Finished through_openssh = who(cluster, {"-H", "box", "--ssh-command", "ssh"});
    INFO(through_openssh.err);
    CHECK(through_openssh.out == "dtuser s1 10.99.0.254 2222\n");
}

TEST_CASE("a ProxyJump of ~/.ssh/config is followed", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-jump");
    write_file(ssh / "config", "Host s1\n    ProxyJump s2\n");
    const Finished done = who(cluster, {"-H", "s1,s2"});
    INFO(done.err);
    CHECK(by_rank(done.out) == std::map<int, std::string>{{0, "root s1 10.99.0.2 22\n"},
                                                          {1, "root s2 10.99.0.254 22\n"}});
}

struct Configuration {
    std::string text;
    const char* by = "ssh";  ///< how --plan says that the host is reached
};

/// One that only the last of 300 names in a long line gets something from.
std::string long_line() {
    std::string line = "Host";
    for (int i = 1; i <= 300; ++i) line += fmt::format(" n{:04}", i);
    return line + " s1\n User dtuser\n";
}

TEST_CASE("dtrun logs in as ssh does, whatever ~/.ssh/config says", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-as-ssh");
    const std::string key = key_of(ssh, "s1");
    hide_key(ssh);
    forget(ssh, "s1");
    append(ssh / "aliases", fmt::format("real-s1 {}\n", key));
    append(ssh / "others", fmt::format("s1 {}\n", key));
    const std::string common =
        "IdentityFile ~/.ssh/hidden\nUserKnownHostsFile ~/.ssh/none ~/.ssh/others "
        "~/.ssh/known_hosts\n";
    const std::vector<Configuration> configurations{
        {common},
        {"Match originalhost s1\n User dtuser\nMatch all\n" + common},
        {long_line() + "Host *\n" + common},
        {"Match canonical\n User nobody\nHost s1\n User dtuser\nMatch all\n" + common},
        {"Match exec \"true\"\n User dtuser\nMatch all\n" + common, "ssh command"},
        {"Host s1\n ProxyJump s2\nHost *\n" + common, "ssh command"},
        {"HostKeyAlias real-s1\nUserKnownHostsFile ~/.ssh/aliases\nIdentityFile "
         "%d/.ssh/hidden\nIdentitiesOnly yes\n"},
        {"IdentityFile ${HOME}/.ssh/hidden\n" + common, "ssh command"},
        {"StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n" + common},
        {"StrictHostKeyChecking accept-new\nUserKnownHostsFile ~/.ssh/new\n" + common},
        {"BindAddress 10.99.0.254\n" + common, "ssh command"},
    };
    for (const Configuration& configuration : configurations) {
        write_file(ssh / "config", configuration.text);
        INFO(configuration.text);
        const Finished planned = cluster.dtrun({"-H", "s1", "--plan=json", "true"});
        CHECK_THAT(planned.out, Contains(fmt::format("\"transport\":\"{}\"", configuration.by)));
        const Finished done = who(cluster, {"-H", "s1"});
        INFO(done.err);
        const Finished by_ssh = cluster.run("head", {"ssh", "-o", "BatchMode=yes", "s1", kWho});
        CHECK(by_ssh.exit_code == 0);
        CHECK(done.out == by_ssh.out);
    }
    CHECK_THAT(file_text(ssh / "new"), Catch::StartsWith("s1 "));
    write_file(ssh / "config", common + "StrictHostKeyChecking no\n");
    write_file(ssh / "others", fmt::format("s1 {}\n", key_of(ssh, "s2")));
    CHECK(who(cluster, {"-H", "s1"}).exit_code == 0);  // with a warning of ssh's
    CHECK(who(cluster, {"-H", "s1", "--accept-new-host-keys"}).exit_code == 202);
    CHECK(cluster.wait_all_gone());
}

/// Starts one more sshd on s1, known to head as the host `name`.
void start_sshd(Cluster& cluster, const fs::path& ssh, const std::string& name, int port,
                Lines options) {
    append(ssh / "known_hosts", fmt::format("[s1]:{} {}\n", port, key_of(ssh, "s1")));
    append(ssh / "config", fmt::format("Host {}\n  HostName s1\n  Port {}\n", name, port));
    Lines words{"/usr/sbin/sshd", "-p", fmt::to_string(port), "-o", "PidFile=none"};
    for (std::string& option : options) words.insert(words.end(), {"-o", std::move(option)});
    REQUIRE(cluster.run("s1", std::move(words)).exit_code == 0);  // it listens, in the background
}

TEST_CASE("what a host says when it refuses is told at once", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-refused");
    write_file(ssh / "config", "");
    start_sshd(cluster, ssh, "strict", 2222, {"MaxAuthTries=2"});
    start_sshd(cluster, ssh, "twice", 2223,
               {"AuthenticationMethods=publickey,keyboard-interactive",
                "KbdInteractiveAuthentication=yes", "UsePAM=yes"});
    start_sshd(cluster, ssh, "account", 2224, {"UsePAM=yes"});
    start_sshd(cluster, ssh, "modern", 2225, {"KexAlgorithms=sntrup761x25519-sha512@openssh.com"});

    // Of ssh-agent's keys, which are asked first once the default one is gone, none is right.
    const fs::path key = hide_key(ssh);
    const Finished many = cluster.run(
        "head", {"ssh-agent", "sh", "-c",
                 "for i in 1 2 3 4; do ssh-keygen -q -t ed25519 -N '' -f /tmp/k$i && ssh-add -q "
                 "/tmp/k$i; done; exec \"$@\"",
                 "sh", cluster.program(), "-H", "strict", "true"});
    CHECK(many.exit_code == 202);
    CHECK_THAT(many.err, Contains("strict: it hangs up") &&
                             Contains("Too many authentication failures") &&
                             !Contains("no answer"));
    fs::rename(ssh / "hidden", ssh / "id_ed25519");

    const Finished asks = who(cluster, {"-H", "twice"});
    CHECK(asks.exit_code == 202);
    CHECK_THAT(asks.err, Contains("your key is accepted") && Contains("keyboard-interactive"));
    for (const Lines& words :
         {Lines{"-H", "dtuser@account"}, Lines{"-H", "dtuser@account", "--ssh-command", "ssh"}}) {
        cluster.run("s1", {"sh", "-c", "echo 'no log-ins today, mind' >/run/nologin"});
        const Finished closed = who(cluster, words);
        CHECK(closed.exit_code == 202);
        CHECK_THAT(closed.err, Contains("no log-ins today, mind"));
        // What systemd says, until the machine has booted.
        cluster.run("s1", {"sh", "-c",
                           "echo 'System is booting up. Unprivileged users are not permitted to "
                           "log in yet.' >/run/nologin; (sleep 1; rm /run/nologin) >&- 2>&- &"});
        Lines patient = words;
        patient.insert(patient.end(), {"--wait-for-hosts", "20"});
        CHECK(who(cluster, patient).out == "dtuser s1 10.99.0.254 2224\n");
    }
    // libssh has no such key exchange.
    const Finished by_ssh = who(cluster, {"-H", "modern"});
    INFO(by_ssh.err);
    CHECK(by_ssh.out == "root s1 10.99.0.254 2225\n");
}

TEST_CASE("a login shell that ends is told with its status and its start-up files",
          "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path bashrc = cluster.scratch() / "bashrc-ends";
    write_file(bashrc, "set -e\nfalse\n");
    REQUIRE(cluster.run("s1", {"touch", "/root/.bashrc"}).exit_code == 0);
    cluster.bind("s1", bashrc, "/root/.bashrc");
    const Finished done = who(cluster, {"-H", "s1"});
    CHECK(done.exit_code == 203);
    CHECK_THAT(done.err,
               Contains("s1: the agent did not start: exit status 1") && Contains(".bashrc"));
}

TEST_CASE("user@host logs in as that user, into that user's home", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.cwd = "/run";
    cluster.run("head", {"mkdir", "-p", "/run/of-head"});
    options.cwd = "/run/of-head";
    const Finished done = cluster.dtrun(
        {"-H", "dtuser@s1,s2", "sh", "-c", "echo $(id -un) $HOME $USER $(pwd)"}, options);
    INFO(done.err);
    CHECK(by_rank(done.out) ==
          std::map<int, std::string>{{0, "dtuser /home/dtuser dtuser /home/dtuser\n"},
                                     {1, "root /root root /root\n"}});
}

TEST_CASE("an unknown host key is refused, unless --accept-new-host-keys, which adds it",
          "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-unknown");
    const std::string before = file_text(ssh / "known_hosts");
    forget(ssh, "s1");
    const std::string without = file_text(ssh / "known_hosts");
    const Finished refused = who(cluster, {"-H", "s1,s2"});
    CHECK(refused.exit_code == 202);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, Contains("s1: its host key is not in known_hosts") &&
                                Contains("SHA256:") && Contains("--accept-new-host-keys"));
    CHECK(file_text(ssh / "known_hosts") == without);

    const Finished accepted = who(cluster, {"-H", "s1", "--accept-new-host-keys"});
    INFO(accepted.err);
    CHECK(accepted.out == "root s1 10.99.0.254 22\n");
    CHECK_THAT(file_text(ssh / "known_hosts"), Catch::StartsWith(without));
    CHECK(who(cluster, {"-H", "s1"}).exit_code == 0);
    // OpenSSH agrees with what was written.
    CHECK(cluster.run("head", {"ssh", "-o", "BatchMode=yes", "s1", "true"}).exit_code == 0);
}

TEST_CASE("many unknown host keys are all added", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-none");
    fs::remove(ssh / "known_hosts");
    // Two of these names are one machine.
    const Lines words{"-H", "s1,s2,s3,10.99.0.1", "--oversubscribe", "true"};
    Lines accepting = words;
    accepting.insert(accepting.begin(), "--accept-new-host-keys");
    const Finished accepted = cluster.dtrun(accepting);
    INFO(accepted.err);
    CHECK(accepted.exit_code == 0);
    const Finished again = cluster.dtrun(words);
    INFO(again.err);
    CHECK(again.exit_code == 0);
}

TEST_CASE("a changed host key is refused, also with --accept-new-host-keys", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path ssh = private_ssh_directory(cluster, "ssh-changed");
    const std::string other = key_of(ssh, "s2");
    forget(ssh, "s1");
    append(ssh / "known_hosts", fmt::format("s1,10.99.0.1 {}\n", other));
    const std::string before = file_text(ssh / "known_hosts");
    for (const Lines& words : {Lines{"-H", "s1"}, Lines{"-H", "s1", "--accept-new-host-keys"}}) {
        const Finished refused = who(cluster, words);
        CHECK(refused.exit_code == 202);
        CHECK(refused.out.empty());
        CHECK_THAT(refused.err,
                   Contains("s1: its host key has changed") && Contains("ssh-keygen -R s1"));
        CHECK(file_text(ssh / "known_hosts") == before);
    }
}

TEST_CASE("--ssh-command logs in with another program, -J included", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished jumped = who(cluster, {"-H", "s1", "--ssh-command", "ssh -J s2"});
    INFO(jumped.err);
    CHECK(jumped.out == "root s1 10.99.0.2 22\n");

    const std::string mine =
        write_program(cluster, "mine",
                      "#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$(dirname \"$0\")/words\"\n"
                      "exec ssh -l dtuser \"$@\"\n");
    const Finished own = who(cluster, {"-H", "s3", "--ssh-command", mine + " -v"});
    CHECK(own.out == "dtuser s3 10.99.0.254 22\n");
    CHECK_THAT(file_text(cluster.scratch() / "words"), Catch::StartsWith("-v\ns3\n"));
    CHECK(cluster.wait_all_gone());

    const Finished failed = who(cluster, {"-H", "s1", "--ssh-command", "/no/such/ssh"});
    CHECK(failed.exit_code == 200);
    CHECK_THAT(failed.err, Contains("/no/such/ssh"));
}

TEST_CASE("with --ssh-command a host that refuses is an error that says what ssh said",
          "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.sshd_stop("s1");
    const Finished done = who(cluster, {"-H", "s1,s2", "--ssh-command", "ssh"});
    CHECK(done.exit_code == 201);
    CHECK_THAT(done.err, Contains("s1: ssh: ") && Contains("Connection refused"));
}

TEST_CASE("the agent is copied once to a host and then used again", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const char* host : {"s1", "s2"}) empty_cache(cluster, host);
    REQUIRE(who(cluster, {"-H", "s1"}).exit_code == 0);
    const std::string first = cached(cluster, "s1");
    REQUIRE(lines_of(first).size() == kFiles);
    REQUIRE(who(cluster, {"-H", "s1,s2"}).exit_code == 0);
    CHECK(cached(cluster, "s1") == first);
    CHECK(lines_of(cached(cluster, "s2")).size() == kFiles);
}

TEST_CASE("the agent is copied again when it has gone from the cache", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    REQUIRE(who(cluster, {"-H", "s1"}).exit_code == 0);
    cluster.run("s1", {"sh", "-c",
                       "rm /root/.cache/dtrun/agent-*; echo part > /root/.cache/dtrun/.new.s1.1"});
    const Finished done = who(cluster, {"-H", "s1"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(cached(cluster, "s1"), Contains("/agent-"));
}

TEST_CASE("XDG_CACHE_HOME and a login shell that talks do not disturb", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path bashrc = cluster.scratch() / "bashrc";
    write_file(bashrc,
               "echo 'Welcome to the cluster, mind the gap'\nexport XDG_CACHE_HOME=/tmp/xdg\n"
               "printf '\\033]0;title\\007without an end'\nexport LD_PRELOAD=/none/at-all.so\n");
    REQUIRE(cluster.run("s1", {"touch", "/root/.bashrc"}).exit_code == 0);
    cluster.bind("s1", bashrc, "/root/.bashrc");
    empty_cache(cluster, "s1");
    const Finished done = who(cluster, {"-H", "s1"});
    INFO(done.err);
    CHECK(done.out == "root s1 10.99.0.254 22\n");
    CHECK(cluster.run("s1", {"sh", "-c", "ls /tmp/xdg/dtrun/agent-*"}).exit_code == 0);
    CHECK(cached(cluster, "s1").empty());
}

TEST_CASE("jobs that copy the agent to the same host at the same time all start",
          "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    empty_cache(cluster, "s1");
    Running first = cluster.start_dtrun({"-H", "s1", "true"});
    Running second = cluster.start_dtrun({"-H", "s1", "true"});
    Running third = cluster.start_dtrun({"-H", "s1", "true"});
    for (Running* job : {&first, &second, &third}) {
        const Finished done = job->wait();
        INFO(done.err);
        CHECK(done.exit_code == 0);
    }
    CHECK(lines_of(cached(cluster, "s1")).size() == kFiles);
}

TEST_CASE("an answer over ssh is seen whenever it comes", "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.run("head", {DTRUN_SSH_ECHO, "s1", "20000", "64"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(done.out == "20000 answers\n");
}

/// Command line and environment of a process.
std::string visible(pid_t pid_outside) {
    const fs::path proc = fmt::format("/proc/{}", pid_outside);
    return file_text(proc / "cmdline") + file_text(proc / "environ");
}

TEST_CASE("secret, arguments and environment of a job are not to be seen on any host",
          "[cluster][login]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.env["TOKEN"] = "sesame-in-env";
    const std::string program =
        write_program(cluster, "hold", "#!/bin/sh\necho up\nexec sleep 60\n");
    Running job = cluster.start_dtrun(
        {"-H", "s1:2,s2,localhost", "-x", "KEY=sesame-in-x", program, "sesame-in-words"}, options);
    REQUIRE(wait_for_count(job, "up", 4));
    int agents = 0, guards = 0, sessions = 0;
    for (const std::string host : {"head", "s1", "s2"}) {
        for (const Process& process : cluster.processes(host)) {
            if (process.name == "sleep" ||
                process.cmdline.find("/bin/dtrun -H") != std::string::npos)
                continue;  // ranks, and what the user typed
            INFO(host << " " << process.name << " " << process.cmdline);
            CHECK_THAT(visible(process.pid_outside), !Contains("sesame"));
            // Nor anything else: no words at all.
            if (host != "head" && (is_agent(process) || is_guard(process)))
                CHECK_THAT(process.cmdline, Catch::Matches("/root/[.]cache/dtrun/agent-[0-9a-f]+"));
            agents += is_agent(process) || process.cmdline.ends_with("/bin/dtrun-agent");
            guards += is_guard(process);
            sessions += is_session(process);
        }
    }
    CHECK(guards == 3);
    CHECK(agents >= 3);
    CHECK(sessions >= 2);
    const std::string seen = cluster.run("s1", {"ps", "axeww"}).out;
    CHECK_THAT(seen, Contains("dtrun"));
    for (const std::string& line : lines_of(seen))
        if (line.find("sleep 60") == std::string::npos) CHECK_THAT(line, !Contains("sesame"));
    job.signal(SIGTERM);
    CHECK(job.wait().exit_code == 143);
}

}  // namespace test_login
