// The ssh of a relay: what it is told, and that it is one of this host.

#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/temp_dir.h"
#include "worker/agent/onward_ssh.h"
#include "worker/ranks/supervisor.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

LoginOrder order_for_h9() {
    LoginOrder order;
    order.name = "h9";
    order.host = "fe80::9%eth0";
    order.port = 2222;
    order.user = "ann";
    order.known_as = "[h9]:2222";
    order.keys = {"ssh-ed25519 AAAA", "ssh-rsa BBBB"};
    order.options = {"Ciphers=aes256-gcm@openssh.com"};
    order.command = "exec /bin/sh -c 'run it'";
    order.limit_s = 5;
    return order;
}

TEST_CASE("a relay's ssh judges host keys by what the head has sent alone", "[onward_ssh]") {
    const auto argv = ssh_arguments(order_for_h9(), "/proc/7/fd/9");
    const auto has = [&argv](std::string_view option) {
        return std::ranges::find(argv, option) != argv.end();
    };
    for (const char* const option :
         {"StrictHostKeyChecking=yes", "UserKnownHostsFile=/proc/7/fd/9",
          "GlobalKnownHostsFile=/dev/null", "KnownHostsCommand=none", "HostKeyAlias=[h9]:2222",
          "VerifyHostKeyDNS=no", "ControlPath=none", "NoHostAuthenticationForLocalhost=no",
          "BatchMode=yes", "-a", "HostName=fe80::9%%eth0", "ConnectTimeout=5",
          "Ciphers=aes256-gcm@openssh.com"})
        CHECK(has(option));
    const std::vector<std::string> last{
        "-p", "2222", "-l", "ann", "--", "h9", "exec /bin/sh -c 'run it'"};
    REQUIRE(argv.size() > last.size());
    // An ssh before 8.5 does not know the command, and would end.
    CHECK(std::ranges::find(argv, "IgnoreUnknown=*") < std::ranges::find(argv, "BatchMode=yes"));
    CHECK(std::equal(last.begin(), last.end(), argv.end() - static_cast<long>(last.size())));
    CHECK(known_hosts_lines(order_for_h9()) ==
          "[h9]:2222 ssh-ed25519 AAAA\n[h9]:2222 ssh-rsa BBBB\n");
}

/// A program `ssh` that is first on PATH.
class FakeSsh {
public:
    explicit FakeSsh(const std::string& script) {
        const std::string file = folder_.path() + "/ssh";
        std::ofstream(file) << "#!/bin/sh\n" << script;
        ::chmod(file.c_str(), 0755);
        ::setenv("PATH", (folder_.path() + ":" + before_).c_str(), 1);
    }
    ~FakeSsh() { ::setenv("PATH", before_.c_str(), 1); }
    FakeSsh(const FakeSsh&) = delete;
    FakeSsh& operator=(const FakeSsh&) = delete;

private:
    TempDir folder_;
    std::string before_ = std::getenv("PATH");
};

struct RelayHost {
    asio::io_context io{1};
    ranks::Supervisor supervisor{io.get_executor(), [](const Exited&) {},
                                 [](const std::string&) {}};
    std::shared_ptr<ranks::Supervisor*> where = std::make_shared<ranks::Supervisor*>(&supervisor);
    std::optional<std::string> ending;
    Result<LoginProgram> started = start_ssh_with(where, "/tmp/lent")(
        order_for_h9(), [this](std::string how) { ending = std::move(how); });

    /// To its end, or as long as it is not what is expected.
    std::string read_all(const Fd& from, std::string_view expected = "\n\n") {
        std::string text;
        std::array<char, 1000> bytes;
        const Deadline limit = after(10s);
        while (Clock::now() < limit && text != expected) {
            const ssize_t n = ::read(from.get(), bytes.data(), bytes.size());
            if (n == 0) break;
            if (n > 0) text.append(bytes.data(), static_cast<std::size_t>(n));
            if (n < 0) io.run_for(10ms);
        }
        return text;
    }
    void run_until_ended() {
        const Deadline limit = after(10s);
        while (!ending && Clock::now() < limit) io.run_for(10ms);
        REQUIRE(ending);
    }
};

TEST_CASE("a relay's ssh can read the keys that the head has sent", "[onward_ssh]") {
    const FakeSsh ssh(
        "for word; do case $word in UserKnownHostsFile=*) cat \"${word#*=}\";; esac; done\n"
        "cat; echo last words >&2; exit 255\n");
    RelayHost host;
    REQUIRE(host.started.has_value());
    REQUIRE(::write(host.started->in.get(), "said\n", 5) == 5);
    host.started->in.reset();
    CHECK(host.read_all(host.started->out) ==
          "[h9]:2222 ssh-ed25519 AAAA\n[h9]:2222 ssh-rsa BBBB\nsaid\n");
    CHECK(host.read_all(host.started->err) == "last words\n");
    host.run_until_ended();
    CHECK(host.ending == "exit status 255");
}

TEST_CASE("a relay's ssh outlives the ranks, and ends with what it has started", "[onward_ssh]") {
    const FakeSsh ssh("sleep 1000 & echo runs; wait\n");
    RelayHost host;
    REQUIRE(host.started.has_value());
    CHECK(host.read_all(host.started->out, "runs\n") == "runs\n");
    bool gone = false;
    host.supervisor.retire();
    host.supervisor.stop_all(SIGTERM, 100ms, [&gone](int orphans) {
        gone = true;
        CHECK(orphans == 0);
    });
    const Deadline limit = after(10s);
    while (!gone && Clock::now() < limit) host.io.run_for(10ms);
    CHECK(gone);
    CHECK_FALSE(host.ending);
    host.started->kill();
    host.run_until_ended();
    CHECK(host.ending == "signal 9");
    const Deadline soon = after(5s);
    CHECK(host.read_all(host.started->out).empty());  // its end: nobody else has it open
    CHECK(Clock::now() < soon);
}

TEST_CASE("a relay's ssh alone finds the ssh-agent that was lent", "[onward_ssh]") {
    const FakeSsh ssh("echo $SSH_AUTH_SOCK\n");
    RelayHost host;
    REQUIRE(host.started.has_value());
    CHECK(host.read_all(host.started->out) == "/tmp/lent\n");
    host.run_until_ended();
}

/// Listens as an ssh-agent does.
Fd listen_as_agent(const std::string& path) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(socket.get(), 5) == 0);
    return socket;
}

TEST_CASE("an ssh-agent that came with the log-in is taken from the ranks, and no other",
          "[onward_ssh]") {
    const TempDir folder;
    const std::string path = folder.path() + "/agent";
    const Fd agent = listen_as_agent(path);
    ::setenv("SSH_AUTH_SOCK", path.c_str(), 1);
    // This process is no ancestor of itself: to it the agent is one that runs on this host.
    CHECK(take_lent_agent().empty());
    CHECK(std::getenv("SSH_AUTH_SOCK") == path);
    // To a child of its child it is what sshd is to an agent behind its guard.
    const pid_t child = ::fork();
    if (child == 0) {
        const pid_t grandchild = ::fork();
        if (grandchild == 0)
            ::_exit(take_lent_agent() == path && std::getenv("SSH_AUTH_SOCK") == nullptr ? 0 : 1);
        int status = 0;
        ::waitpid(grandchild, &status, 0);
        ::_exit(WEXITSTATUS(status));
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    ::setenv("SSH_AUTH_SOCK", "/nowhere/agent", 1);
    CHECK(take_lent_agent().empty());
    CHECK(std::getenv("SSH_AUTH_SOCK") == std::string("/nowhere/agent"));
    ::unsetenv("SSH_AUTH_SOCK");
    CHECK(take_lent_agent().empty());
}

TEST_CASE("a relay without ssh says so", "[onward_ssh]") {
    const std::string before = std::getenv("PATH");
    ::setenv("PATH", "/nowhere", 1);
    const RelayHost host;
    ::setenv("PATH", before.c_str(), 1);
    REQUIRE_FALSE(host.started.has_value());
    CHECK_THAT(host.started.error().message, Catch::StartsWith("ssh: not found on PATH"));
}

}  // namespace
}  // namespace dtrun::agent
