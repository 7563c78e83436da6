#include "hostfiles/hosts_alike.h"

#include "hostfiles/nodelist.h"
#include "tests/support/catch.h"

#include <fmt/format.h>

namespace dtrun {
namespace {

using Said = std::vector<std::pair<std::string, std::string>>;

/// Six hosts of which `form` is said, with {0} a number and {1} the host's name.
Said of_six(const char* form) {
    Said said;
    for (int number = 1; number <= 6; ++number) {
        const std::string name = fmt::format("n{}", number);
        said.emplace_back(name, fmt::format(fmt::runtime(form), number, name));
    }
    return said;
}

}  // namespace

TEST_CASE("hosts of which the same is said are one group, also if ssh says it with their names",
          "[hostfiles]") {
    const auto groups =
        group_alike({{"s1", "ssh: connect to host s1 port 22: No route to host"},
                     {"s2", "no key"},
                     {"s3", "ssh: connect to host s3 port 22: No route to host"},
                     {"s4", "ssh: connect to host gate port 22: No route to host"}});
    REQUIRE(groups.size() == 3);
    CHECK(groups[0].names == std::vector<std::string>{"s1", "s3"});
    CHECK(groups[0].text == "ssh: port 22: No route to host");
    CHECK(groups[1].text == "no key");
    CHECK(groups[2].names == std::vector<std::string>{"s4"});
    CHECK(groups[2].text == "ssh: connect to host gate port 22: No route to host");
}

TEST_CASE("many hosts are one group where their names, addresses, ports and keys alone differ",
          "[hostfiles]") {
    const auto [said, shown] = GENERATE(table<const char*, const char*>({
        {"ssh: connect to host node-{0}.dc port 22: Connection timed out",
         "ssh: connect to host … port 22: Connection timed out"},
        {"ssh: connect to host 10.0.0.{0} port 220{0}: Connection refused",
         "ssh: connect to host … port …: Connection refused"},
        {"ssh: Could not resolve hostname real{0}: Name or service not known",
         "ssh: Could not resolve hostname …: Name or service not known"},
        {"al@real{0}.dc: Permission denied (publickey).", "al@…: Permission denied (publickey)."},
        {"al@{1}: Permission denied (publickey).", "al@…: Permission denied (publickey)."},
        {"kex_exchange_identification: read: Connection reset by peer\nConnection reset by "
         "fe80::{0} "
         "port 22",
         "kex_exchange_identification: read: Connection reset by peer\nConnection reset by … port "
         "22"},
        {"No ED25519 host key is known for [{1}]:2222 and you have requested strict checking.",
         "No ED25519 host key is known for … and you have requested strict checking."},
        {"its host key is not in known_hosts (SHA256:ab{0}/c): log in once",
         "its host key is not in known_hosts (…): log in once"},
        {"its host key has changed (now SHA256:x{0}): run: ssh-keygen -R '[real{0}]:2222'",
         "its host key has changed (now …): run: ssh-keygen -R '…'"},
        {"no answer on port {0}022 (down, or a firewall drops it)",
         "no answer on port … (down, or a firewall drops it)"},
        {"looking up real{0}: unknown host name", "looking up …: unknown host name"},
    }));
    CAPTURE(said);
    const auto groups = group_alike(of_six(said));
    REQUIRE(groups.size() == 1);
    CHECK(name_hosts(groups[0].names) == "n[1-6] (6)");
    CHECK(groups[0].text == shown);
}

TEST_CASE("hosts are not one group where anything else differs", "[hostfiles]") {
    const char* const said =
        GENERATE("exit status {0}", "no agent for cpu{0}", "permission denied for user al{0}",
                 "/opt/a{0}: no such file");
    CAPTURE(said);
    CHECK(group_alike(of_six(said)).size() == 6);
}

TEST_CASE("of a few hosts addresses and keys are shown, as somebody has to compare them",
          "[hostfiles]") {
    Said said = of_six("its host key is not in known_hosts (SHA256:ab{0})");
    said.resize(kFewHosts);
    const auto groups = group_alike(said);
    REQUIRE(groups.size() == kFewHosts);
    CHECK(groups[3].text == "its host key is not in known_hosts (SHA256:ab4)");
}

TEST_CASE("a text that has the sign for any word itself disturbs nothing", "[hostfiles]") {
    Said said = of_six("port {0}: refused");
    said.emplace_back("n7", "port …: refused");
    said.emplace_back("n8", "");
    const auto groups = group_alike(said);
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].names.size() == 7);
    CHECK(groups[1].text == "");
}

}  // namespace dtrun
