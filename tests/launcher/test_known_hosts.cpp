#include "launcher/transport/known_hosts.h"

#include "base/fd.h"
#include "launcher/transport/named_host.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/temp_dir.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace dtrun {

using namespace transport;
namespace {

const HostKey kOne{"ssh-ed25519", "AAAAC3Nza1"}, kTwo{"ssh-rsa", "AAAAB3Nza2"},
    kThree{"ecdsa-sha2-nistp256", "AAAAE2Vjz3"};

KnownHosts table(std::string_view text) {
    KnownHosts hosts;
    hosts.add(text);
    return hosts;
}

/// What `text` says of a host that shows kOne.
KeyVerdict verdict(std::string_view text, std::string_view name = "n1") {
    return judge(table(text).find(name), kOne);
}

}  // namespace

TEST_CASE("a host's keys are those of all lines that name it", "[known_hosts]") {
    const KnownHosts hosts = table(
        "# a comment\n"
        "\n"
        "n1,10.0.0.1 ssh-ed25519 AAAAC3Nza1 a comment of two words\n"
        "\tN1\tssh-rsa  AAAAB3Nza2\r\n"
        "[n1]:2222 ecdsa-sha2-nistp256 AAAAE2Vjz3\n"
        "n2 ssh-rsa AAAAB3Nza2");
    CHECK(hosts.find("n1").keys == std::vector{kOne, kTwo});
    CHECK(hosts.find("10.0.0.1").keys == std::vector{kOne});
    CHECK(hosts.find(known_hosts_name("N1", 2222)).keys == std::vector{kThree});
    CHECK(hosts.find(known_hosts_name("N2", 22)).keys == std::vector{kTwo});
    CHECK(hosts.find("n3").keys.empty());
    CHECK_FALSE(hosts.is_slow());
}

TEST_CASE("patterns of known_hosts match as ssh's do", "[known_hosts]") {
    const KnownHosts hosts = table("*.Cluster,gw?,!bad.cluster ssh-ed25519 AAAAC3Nza1\n");
    for (const char* name : {"a.cluster", ".cluster", "x.y.cluster", "gw1"})
        CHECK(hosts.find(name).keys == std::vector{kOne});
    for (const char* name : {"cluster", "bad.cluster", "gw", "gw12", "a.cluster.org", ""})
        CHECK(hosts.find(name).keys.empty());
    CHECK(verdict("* ssh-ed25519 AAAAC3Nza1", "[any]:1") == KeyVerdict::known);
    CHECK(verdict("!n1,* ssh-ed25519 AAAAC3Nza1") == KeyVerdict::unknown);
    CHECK(verdict("**n*1* ssh-ed25519 AAAAC3Nza1") == KeyVerdict::known);
}

TEST_CASE("hashed names are found by ssh-keygen's hash", "[known_hosts]") {
    const KnownHosts hosts = table(
        "|1|4obxe9WX/aHviki66CGfaLY64Ak=|zYuZBWHxDSW5dl3rXA7o/p2ed1k= ssh-ed25519 AAAAC3Nza1\n"
        "|1|k59y9eZY1SSbTyZzn3VuRa5lXeY=|hODWqlA9Q2QsxAtThQUrSdsmr98= ssh-rsa AAAAB3Nza2\n");
    CHECK(hosts.is_slow());
    CHECK(hosts.find("node1").keys == std::vector{kOne});
    CHECK(hosts.find("[node1]:2222").keys == std::vector{kTwo});
    CHECK(hosts.find("node2").keys.empty());
    for (const char* damaged :
         {"|1|a|b", "|1|", "|", "|2|4obxe9WX/aHviki66CGfaLY64Ak=|zYuZBWHxDSW5dl3rXA7o/p2ed1k=",
          "|1|4obxe9WX/aHviki66CGfaLY64Ak=|zYuZBWHxDSW5dl3rXA7o/p2ed1k=|x"})
        CHECK(verdict(std::string(damaged) + " ssh-ed25519 AAAAC3Nza1", "node1") ==
              KeyVerdict::unknown);
}

TEST_CASE("a key is judged by revoked, equal, other and signing keys, in this order",
          "[known_hosts]") {
    const std::string plain = "n1 ssh-ed25519 AAAAC3Nza1\n";
    CHECK(verdict(plain) == KeyVerdict::known);
    CHECK(verdict("n1 ssh-ed25519 AAAAother\n") == KeyVerdict::changed);
    CHECK(verdict("n1 ssh-rsa AAAAB3Nza2\n") == KeyVerdict::changed);
    CHECK(verdict("n1 ssh-rsa AAAAB3Nza2\n" + plain) == KeyVerdict::known);
    CHECK(verdict("n2 ssh-ed25519 AAAAC3Nza1\n") == KeyVerdict::unknown);
    CHECK(verdict(plain + "@revoked * ssh-ed25519 AAAAC3Nza1\n") == KeyVerdict::revoked);
    CHECK(verdict("@revoked * ssh-ed25519 AAAAC3Nza1\n") == KeyVerdict::revoked);
    CHECK(verdict("@revoked n2 ssh-ed25519 AAAAC3Nza1\n" + plain) == KeyVerdict::known);
    CHECK(verdict("@revoked * ssh-rsa AAAAB3Nza2\n") == KeyVerdict::unknown);
    CHECK(verdict("@cert-authority n* ssh-rsa AAAAB3Nza2\n") == KeyVerdict::needs_authority);
    CHECK(verdict("@cert-authority n* ssh-rsa AAAAB3Nza2\n" + plain) == KeyVerdict::known);
    CHECK(verdict("@other n1 ssh-ed25519 AAAAC3Nza1\n") == KeyVerdict::unknown);
}

TEST_CASE("lines that say nothing of a key are skipped", "[known_hosts]") {
    for (const char* text : {"n1", "n1 ssh-ed25519", "@revoked n1", "@revoked", "n1 2048 35 1234",
                             "@", "|1|", ",", "\n\n \t\n", "n1 ssh-ed25519 \n"})
        CHECK(verdict(text) == KeyVerdict::unknown);
}

TEST_CASE("a key that is added to known_hosts has a line of its own", "[known_hosts]") {
    std::string name = "/tmp/dtrun-test-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    const std::filesystem::path home = name;
    const std::string file = home / ".ssh/known_hosts";
    KnownHostsFiles files;
    const auto before = files.read({file, home / "none"});
    CHECK(judge(before->find("n1"), kOne) == KeyVerdict::unknown);
    REQUIRE(files.add(file, "n1", kOne).has_value());
    CHECK(read_file(file).value() == "n1 ssh-ed25519 AAAAC3Nza1\n");
    CHECK(files.has_added("n1", kOne));
    CHECK_FALSE(files.has_added("n1", kTwo));
    CHECK_FALSE(files.has_added("n2", kOne));
    std::ofstream(file) << "last line";
    REQUIRE(files.add(file, "[n1]:2222", kTwo).has_value());
    CHECK(read_file(file).value() == "last line\n[n1]:2222 ssh-rsa AAAAB3Nza2\n");
    CHECK(files.read({file, home / "none"}) == before);  // once for a job
    CHECK_FALSE(files.add(home, "n1", kOne).has_value());
    std::filesystem::remove_all(home);
}

/// How a relay would log in to a host of which a file says `text`.
std::optional<LoginOrder> order_of(std::string_view text, SshSettings settings) {
    const TempDir folder;
    const std::string file = folder.path() + "/known_hosts";
    std::ofstream(file) << text;
    settings.known_hosts = {file};
    asio::io_context io;
    Pool pool(1);
    KnownHostsFiles files;
    const auto named =
        run_to_end(io, find_keys(pool, files, settings, after(std::chrono::seconds(10))));
    REQUIRE(named.has_value());
    Host host;
    host.name = "node1";
    return order_login(host, settings, *named, "run it");
}

TEST_CASE("a relay is told the keys that a host may show, and of hosts whose keys are known only",
          "[known_hosts][tree]") {
    SshSettings settings;
    settings.host = "n1";
    settings.user = "ann";
    settings.port = 2222;
    settings.macs = "hmac-sha2-256";

    const auto order = order_of(
        "[n1]:2222 ssh-ed25519 AAAAC3Nza1\n[n1]:2222 ssh-rsa AAAAB3Nza2\n"
        "n2 ecdsa-sha2-nistp256 AAAAE2Vjz3\n",
        settings);
    REQUIRE(order.has_value());
    CHECK(order->name == "node1");
    CHECK(order->host == "n1");
    CHECK(order->port == 2222);
    CHECK(order->user == "ann");
    CHECK(order->known_as == "[n1]:2222");
    CHECK(order->keys == std::vector<std::string>{"ssh-ed25519 AAAAC3Nza1", "ssh-rsa AAAAB3Nza2"});
    CHECK(order->options == std::vector<std::string>{"MACs=hmac-sha2-256"});
    CHECK(order->command == "run it");

    const auto at_any_port = order_of("n1 ssh-ed25519 AAAAC3Nza1\n", settings);
    REQUIRE(at_any_port.has_value());
    CHECK(at_any_port->keys == std::vector<std::string>{"ssh-ed25519 AAAAC3Nza1"});

    for (const char* const text :
         {"n2 ssh-ed25519 AAAAC3Nza1\n", "@cert-authority * ssh-ed25519 AAAAC3Nza1\n",
          "[n1]:2222 ssh-ed25519 AAAAC3Nza1\n@revoked * ssh-rsa AAAAB3Nza2\n",
          "n1 ssh-ed25519 AAAAC3Nza1\n@revoked n1 ssh-rsa AAAAB3Nza2\n"}) {
        INFO(text);
        CHECK_FALSE(order_of(text, settings).has_value());
    }
}

}  // namespace dtrun
