#include "hostfiles/hostfile.h"
#include "hostfiles/write_hosts.h"
#include "hostfiles/yaml_hostfile.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"

using namespace dtrun;

namespace {

constexpr const char* kFull = R"(# the cluster
defaults: {slots: 4, user: alice, port: 22, identity_file: ~/.ssh/id}
hosts:
  - s1
  - s4:2
  - bob@n[01-02]:8
  - {host: s2, slots: 8, max_slots: 16, user: bob, port: 2222, identity_file: k, address: 10.0.0.2}
  - s3: {slots: 2}
  - s5: 3
  - "[::1]:6"
)";

}  // namespace

TEST_CASE("parse_yaml_hostfile reads every form of a host in a list", "[hostfiles][yaml]") {
    CHECK(show(parse_yaml_hostfile(kFull, "y")) ==
          "alice@s1:4 port=22 key=~/.ssh/id, alice@s4:2 port=22 key=~/.ssh/id, "
          "bob@n01:8 port=22 key=~/.ssh/id, bob@n02:8 port=22 key=~/.ssh/id, "
          "bob@s2:8/16 port=2222 key=k address=10.0.0.2, alice@s3:2 port=22 key=~/.ssh/id, "
          "alice@s5:3 port=22 key=~/.ssh/id, alice@::1:6 port=22 key=~/.ssh/id");
}

TEST_CASE("parse_yaml_hostfile reads hosts, defaults and documents in their variants",
          "[hostfiles][yaml]") {
    const auto [input, expected] = GENERATE(table<std::string, std::string>({
        {"hosts: [s1, s2]", "s1:1, s2:1"},
        {"hosts: {s1: 4, s2: {slots: 2}, s3: }", "s1:4, s2:2, s3:1"},
        {"hosts:\n  n[1-2]: {slots: 2, max-slots: 3}\n", "n1:2/3, n2:2/3"},
        {"hosts:\n  s1: {}\ndefaults:\n  slots: 8\n  max_slots: 9\n", "s1:8/9"},
        {"---\nhosts: [s1]\n...\n", "s1:1"},
        {"hosts: ['s1:0', \"bob@s2:3\"]", "s1:0, bob@s2:3"},
        {"hosts: [s1:2, s2, s1:3]", "s1:5, s2:1"},
        {"hosts: [s1, {host: s1, port: 7}, {host: s1, address: '::1'}]", "s1:3 port=7 address=::1"},
        {"hosts:\r\n- s1:4\r\n- s2\r\n", "s1:4, s2:1"},
        {"hosts: [{s1: 2, }]", "s1:2"},
        {"{hosts: [{host: a}]}", "a:1"},
    }));
    CHECK(show(parse_yaml_hostfile(input, "y")) == expected);
}

TEST_CASE("parse_yaml_hostfile names the place of a wrong structure", "[hostfiles][yaml]") {
    const std::string all_keys =
        "the keys are slots, max_slots, max-slots, user, port, identity_file, address and host";
    const auto [input, message] = GENERATE_COPY(table<std::string, std::string>({
        {"", "1:1: the document is empty; write hosts: and a list"},
        {"# c\n", "1:1: the document is empty; write hosts: and a list"},
        {"- s1", "1:1: the document is a list; write hosts: and a list"},
        {"s1", "1:1: the document is a plain value; write hosts: and a list"},
        {"defaults: {slots: 2}", "1:1: no hosts in the file; write hosts: and a list"},
        {"host: [a]",
         "1:1: unknown key 'host'; did you mean 'hosts'?; the keys are hosts and "
         "defaults"},
        {"hosts: [a]\nx: 1", "2:1: unknown key 'x'; the keys are hosts and defaults"},
        {"hosts: [a]\nhosts: [b]", "2:1: hosts is given twice; keep one"},
        {"hosts: [a]\n[a]: 1", "2:1: a key is a list; write a plain word"},
        {"hosts: a", "1:8: hosts: is a plain value; write a list or a map of hosts"},
        {"hosts: []", "1:8: no hosts in the file; write at least one under hosts:"},
        {"hosts: {}", "1:8: no hosts in the file; write at least one under hosts:"},
        {"hosts: [a, [b]]",
         "1:12: a host is a list; write a name or a map, and '[::1]:4' in quotes"},
        {"hosts: [{}]", "1:9: this host has no name; write {host: name, slots: 4}"},
        {"hosts: [{slots: 4}]", "1:9: this host has no name; write {host: name, slots: 4}"},
        {"hosts: {[a]: 4}", "1:9: a host name is a list; write a plain name"},
        {"hosts: {a: [4]}", "1:12: the settings are a list; write a map such as {slots: 4}"},
        {"hosts: [a]\ndefaults: 4",
         "2:11: the settings are a plain value; write a map such as {slots: 4}"},
        {"hosts: [{host: a, slot: 4}]",
         "1:19: unknown key 'slot'; did you mean 'slots'?; " + all_keys},
        {"hosts: [{host: a, '<<': 4}]", "1:20: unknown key '<<'; " + all_keys},
        {"hosts: [a]\ndefaults: {address: b}",
         "2:12: unknown key 'address'; the keys are slots, max_slots, max-slots, user, port and "
         "identity_file"},
        {"hosts: [{host: a, slots: 1, slots: 1}]", "1:29: slots is given twice; keep one"},
        {"hosts: [{host: a, max_slots: 1, max-slots: 1}]",
         "1:33: max_slots is given twice; keep one"},
        {"hosts: [a]\n---\nhosts: [b]", "2:1: a second document begins; keep one '---'"},
        {"hosts: [&x a, *x]", "1:15: aliases (*name) are not supported; write the value out"},
        {"hosts: [[[[[a]]]]]", "1:11: nested too deeply; a host has only plain settings"},
        {"hosts: [a", "1:10: not valid YAML: end of sequence flow not found"},
        {"# c\nhosts: {a: 4,\n b", "3:3: not valid YAML: end of map flow not found"},
        {"hosts: [\"a\\\x01\"]", "1:13: not valid YAML: unknown escape character: \\x01"},
        {"hosts:\n\t- a", "2:2: not valid YAML: illegal block entry; indent with spaces, not tabs"},
    }));
    CHECK(error_of(parse_yaml_hostfile(input, "y")) == "y:" + message);
}

TEST_CASE("parse_yaml_hostfile names the place of a wrong value", "[hostfiles][yaml]") {
    const auto [input, message] = GENERATE(table<std::string, std::string>({
        {"hosts: [n1, 'n[3-1]']", "1:16: range 3-1 runs backwards; write 1-3"},
        {"hosts: [a b]",
         "1:10: ' ' cannot stand in a host name; use letters, digits, '.', '-' and "
         "'_'"},
        {"hosts: {a: x}", "1:12: 'x' is not a number of slots; write host: 4"},
        {"hosts: {a: {slots: }}", "1:20: slots is nothing; write a plain value"},
        {"hosts: {a: {slots: [4]}}", "1:20: slots is a list; write a plain value"},
        {"hosts: {a: {slots: many}}", "1:20: 'many' is not a number of slots; write slots: 4"},
        {"hosts: {a: {max-slots: 70000}}",
         "1:24: '70000' slots are too many; a host has at most 65536"},
        {"hosts: {a: {port: 0}}", "1:19: '0' is not a port; write 1 to 65535"},
        {"hosts: {a: {port: 65536}}", "1:19: '65536' is not a port; write 1 to 65535"},
        {"hosts: {a: {user: -l}}",
         "1:19: user name '-l' starts with '-': ssh would read it as an option"},
        {"hosts: {a: {user: \"x\\ny\"}}", "1:21: '\\x0a' cannot stand in a user name"},
        {"hosts: {a: {identity_file: \"\"}}",
         "1:29: '' is not a path; write the path of a private key"},
        {"hosts: {a: {identity_file: \"k\\x07\"}}",
         "1:29: 'k\\x07' is not a path; write the path of a private key"},
        {"hosts: {a: {address: 'b:2'}}",
         "1:23: 'b:2' is not an address; write a host name, 10.0.0.2 or '::1'"},
        {"hosts: {a: {address: 'b[1-2]'}}",
         "1:23: 'b[1-2]' is not an address; write a host name, 10.0.0.2 or '::1'"},
        {"hosts: {'n[1-3]': {address: b}}",
         "1:10: 3 hosts cannot have one address; write them one by one"},
        {"hosts: {'a:2': {slots: 2}}",
         "1:10: slots are given twice, with the name and as a setting; keep one"},
        {"hosts: {bob@a: {user: bob}}",
         "1:9: the user is given twice, with the name and as a setting; keep one"},
        {"hosts: {a: {slots: 4, max_slots: 2}}",
         "1:9: max_slots=2 is less than slots=4; raise it or lower slots"},
        {"hosts:\n- {host: a, port: 1}\n- {host: a, port: 2}",
         "3:10: host 'a' has port 2 here but 1 at 2:10; give one host one value"},
        {"hosts:\n- {host: a, address: b}\n- {host: a, address: c}",
         "3:10: host 'a' has address 'c' here but 'b' at 2:10; give one host one value"},
        {"hosts:\n- {host: a, identity_file: b}\n- {host: a, identity_file: c}",
         "3:10: host 'a' has identity_file 'c' here but 'b' at 2:10; give one host one value"},
    }));
    CHECK(error_of(parse_yaml_hostfile(input, "y")) == "y:" + message);
}

TEST_CASE("parse_yaml_hostfile reads what write_hosts writes as JSON", "[hostfiles][yaml]") {
    Host host;
    host.name = "s1";
    host.slots = 2;
    host.slots_max = 4;
    host.user = "al";
    host.port = 2222;
    host.identity_file = "/keys/a \"b\"";
    host.address = "10.0.0.2";
    Host other;
    other.name = "s2";
    const HostList hosts{host, other};
    CHECK(parse_hostfile(*write_hosts(hosts, HostFormat::json), "hosts.json").value() == hosts);
}

TEST_CASE("looks_like_yaml wants a document mark or a key at the start", "[hostfiles][yaml]") {
    for (const char* text :
         {"---", "---\n", "\n# c\n--- # x\n", "hosts:", "hosts: [a]", "hosts:\r\n",
          "defaults:\n  slots: 4", "#\n\nhosts:\n", "{\"hosts\":[]}"})
        CHECK(looks_like_yaml(text));
    for (const char* text : {"", "# hosts:\n", "s1\nhosts:", "hosts:4", "hosts slots=4", "----",
                             "- s1", "hosts", " hosts: x", "defaults:2"})
        CHECK_FALSE(looks_like_yaml(text));
}

TEST_CASE("parse_yaml_hostfile refuses deep nesting and huge ranges quickly", "[hostfiles][yaml]") {
    const std::string deep = "hosts: " + std::string(100'000, '[');
    CHECK_THAT(error_of(parse_yaml_hostfile(deep, "y")), Catch::Contains("nested too deeply"));
    CHECK(error_of(parse_yaml_hostfile("hosts: ['n[1-999999999]']", "y")) ==
          "y:1:12: range 1-999999999 goes past the 1000000 hosts that one list can hold");
}

TEST_CASE("parse_yaml_hostfile reads 20,000 hosts in linear time", "[hostfiles][yaml]") {
    std::string text = "hosts:\n";
    for (int i = 0; i < 20'000; ++i) text += fmt::format("  node{:05}: {{slots: 8}}\n", i);
    const double begin = processor_seconds();
    CHECK(parse_yaml_hostfile(text, "y").value().size() == 20'000);
    CHECK(processor_seconds() - begin < 15);
}
