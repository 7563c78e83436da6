#include "hostfiles/hostfile.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"

#include <unistd.h>
#include <cstdlib>
#include <fstream>

using namespace dtrun;

TEST_CASE("parse_hostfile reads the forms of other launchers", "[hostfiles]") {
    const auto [input, expected] = GENERATE(table<std::string, std::string>({
        {"s1 slots=4\ns2 slots=2\n", "s1:4, s2:2"},                            // Horovod, DeepSpeed
        {"s1 slots=4 max_slots=8\ns2 max-slots=2 slots=2", "s1:4/8, s2:2/2"},  // Open MPI
        {"s1 cpu=4 slots-max=8\n// all\ns2 count=2 // ib\n", "s1:4/8, s2:2"},
        {"s1:4\ns2:2\n", "s1:4, s2:2"},      // MPICH
        {"s1\ns2\ns1\ns1\n", "s1:3, s2:1"},  // srun hostname
        {"# all\n\n  \t\ns1 slots=4 # trailing\n#s2 slots=4\ns3#near\n", "s1:4, s3:1"},
        {"s1 slots=4\r\ns2 slots=2\r\n", "s1:4, s2:2"},
        {"\xef\xbb\xbfs1 slots=4\n", "s1:4"},
        {"\ts1\t \tslots=4\t\n  s2  ", "s1:4, s2:1"},
        {"s1 slots=0\ns2:0\ns3", "s1:0, s2:0, s3:1"},
        {"alice@s1 slots=2\nbob@[::1]:4\n[fe80::2] slots=3", "alice@s1:2, bob@::1:4, fe80::2:3"},
        {"n[01-03] slots=8\nn02 slots=1", "n01:8, n02:9, n03:8"},
        {"n[1,3-4]-ib slots=2", "n1-ib:2, n3-ib:2, n4-ib:2"},
        {"s1 slots=2 max_slots=4\ns1 slots=1 max_slots=2", "s1:3/6"},
        {"s1 slots=2\ns1 slots=1 max_slots=2", "s1:3/4"},
        {"s1 max_slots=2\ns1 slots=3", "s1:4/5"},
        {"hosts:4\ndefaults slots=2", "hosts:4, defaults:2"},  // not YAML
    }));
    CHECK(show(parse_hostfile(input, "hf")) == expected);
}

TEST_CASE("parse_hostfile reads the user and the port of ssh", "[hostfiles]") {
    const auto hosts = parse_hostfile("s1 username=al port=2222 slots=2\ns2:4 user=bob\n", "hf");
    CHECK(show(hosts) == "al@s1:2 port=2222, bob@s2:4");
}

TEST_CASE("parse_hostfile recognises YAML by its first line with content", "[hostfiles][yaml]") {
    CHECK(show(parse_hostfile("\xef\xbb\xbf# c\r\n\r\nhosts:\r\n  - s1:4\r\n", "hf")) == "s1:4");
    CHECK(show(parse_hostfile("---\nhosts: {s1: 4}\n", "hf")) == "s1:4");
    CHECK(show(parse_hostfile("defaults: {slots: 3}\nhosts: [s1]\n", "hf")) == "s1:3");
}

TEST_CASE("parse_hostfile names the line, the column and the right form", "[hostfiles]") {
    const std::string not_setting =
        " is not a setting; a line is one host, then slots=4, max_slots=8, "
        "user=alice or port=22, then a # comment";
    const std::string blanks = " without blanks around '='";
    const auto [input, message] = GENERATE_COPY(table<std::string, std::string>({
        {"", "1:1: no hosts in the file; write lines such as: host slots=4"},
        {"# c\n\n", "1:1: no hosts in the file; write lines such as: host slots=4"},
        {"#x slots=1", "1:1: no hosts in the file; write lines such as: host slots=4"},
        {"a\nw slots = 2", "2:3: write slots=4" + blanks},
        {"w slots =2", "1:3: write slots=4" + blanks},
        {"w slots", "1:3: write slots=4" + blanks},
        {"w max_slots = 2", "1:3: write max_slots=4" + blanks},
        {"w =2", "1:3: write slots=4" + blanks},
        {"w slots= 2", "1:9: the number of slots is missing; write slots=4" + blanks},
        {"w slots=2x", "1:9: '2x' is not a number of slots; write slots=4" + blanks},
        {"w max-slots=-1", "1:13: '-1' is not a number of slots; write max-slots=4" + blanks},
        {"w slots=65537", "1:9: '65537' slots are too many; a host has at most 65536"},
        {"a b slots=1", "1:3: 'b'" + not_setting},
        {"w slots=1,", "1:9: '1,' is not a number of slots; write slots=4" + blanks},
        {"w 4", "1:3: '4' has no key; write slots=4"},
        {"\n\n w slot=4",
         "3:4: unknown key 'slot'; did you mean 'slots'?; the keys are slots, max_slots, "
         "user and port"},
        {"w maxslots=4",
         "1:3: unknown key 'maxslots'; did you mean 'max_slots'?; the keys are "
         "slots, max_slots, user and port"},
        {"w gpus=4", "1:3: unknown key 'gpus'; the keys are slots, max_slots, user and port"},
        {"w user", "1:3: write user=alice" + blanks},
        {"a@w user=b", "1:5: user is given twice on this line; keep one"},
        {"w user=a;b", "1:9: ';' cannot stand in a user name"},
        {"w port=0", "1:8: '0' is not a port; write 1 to 65535"},
        {"ssh://a@w:22",
         "1:1: 'ssh://a@w:22' is an address of the web; write a@w, and ssh's port as -p 22, or as "
         "port=22 in a hostfile"},
        {"ssh://[::1]", "1:1: 'ssh://[::1]' is an address of the web; write [::1]"},
        {"a@http://w", "1:1: 'a@http://w' is an address of the web; write a@w"},
        {"w slots=4 slots=4", "1:11: slots is given twice on this line; keep one"},
        {"w:4 slots=4", "1:5: slots is given twice on this line; keep one"},
        {"w max_slots=4 max-slots=4", "1:15: max-slots is given twice on this line; keep one"},
        {"x\nw slots=4 max_slots=2",
         "2:11: max_slots=2 is less than slots=4; raise it or lower slots"},
        {"w max_slots=0", "1:3: max_slots=0 is less than slots=1; raise it or lower slots"},
        {"a:1,b:1", "1:4: a hostfile has one host on each line; lists with commas are for -H"},
        {"a, slots=2", "1:2: a hostfile has one host on each line; lists with commas are for -H"},
        {"ok\n  n[3-1] slots=4", "2:5: range 3-1 runs backwards; write 1-3"},
        {"n[1-3 slots=4", "1:2: '[' is not closed; write ']' after the last number"},
        {"- s1", "1:1: host name '-' starts with '-': ssh would read it as an option"},
        {"::1 slots=4",
         "1:1: '::1' has several ':'; write host:slots, and an IPv6 address in brackets, as in "
         "[::1]:4"},
        {"n[1-1000000]\nn1", "2:1: more than 1000000 hosts; split the list"},
        {"alice@h\n\n bob@h",
         "3:2: host 'h' has user 'bob' here but 'alice' at 1:1; give one host one value"},
        {"h slots=65536\nh",
         "2:1: the slots of host 'h' add up to 65537; a host has at most 65536"},
        {"# \u670d\u52a1\u5668\uff0c\u4e24\u53f0\ns1 slots\uff1d2  # \uff1a\r\n",
         "2:9: \uff1d is not the keyboard's =; write s1 slots=2"},
        {"s1\u3000slots=2",
         "1:3: a blank in it is not the keyboard's but U+3000; write s1 slots=2"},
        {"s1:2\u200b\n", "1:5: a character that cannot be seen, U+200B, is in it; write s1:2"},
        {"hosts:\n  - s1\uff1a4\n", "2:7: \uff1a is not the keyboard's :; write s1:4"},
        {"h max_slots=65536\nh max_slots=1",
         "2:1: the slots of host 'h' add up to 65537; a host has at most 65536"},
    }));
    CHECK(error_of(parse_hostfile(input, "hf")) == "hf:" + message);
}

TEST_CASE("parse_hostfile reads 100,000 lines in a moment", "[hostfiles]") {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += fmt::format("node{:05}.example.com slots=8\n", i);
    const double begin = processor_seconds();
    CHECK(parse_hostfile(text, "hf").value().size() == 100'000);
    CHECK(processor_seconds() - begin < 5);  // not O(n^2)
}

TEST_CASE("read_hostfile names the path that is missing", "[hostfiles]") {
    const auto hosts = read_hostfile("/no/such/hostfile");
    REQUIRE_FALSE(hosts.has_value());
    CHECK(hosts.error().code == Errc::not_found);
    CHECK(hosts.error().message == "--hostfile: /no/such/hostfile: No such file or directory");
}

TEST_CASE("read_hostfile names the file in messages", "[hostfiles]") {
    std::string path = "/tmp/dtrun-hostfile-XXXXXX";
    const int fd = ::mkstemp(path.data());
    REQUIRE(fd >= 0);
    ::close(fd);
    std::ofstream(path) << "s1:2\n";
    CHECK(show(read_hostfile(path)) == "s1:2");
    std::ofstream(path) << "s1 s2\n";
    CHECK_THAT(error_of(read_hostfile(path)), Catch::StartsWith(path + ":1:4: 's2'"));
    ::unlink(path.c_str());
}

TEST_CASE("read_hostfile reads standard input for a dash", "[hostfiles]") {
    const int saved = ::dup(STDIN_FILENO);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], "s1:4\ns2 x\n", 10) == 10);
    ::close(ends[1]);
    ::dup2(ends[0], STDIN_FILENO);
    const auto hosts = read_hostfile("-");
    ::dup2(saved, STDIN_FILENO);
    ::close(ends[0]);
    ::close(saved);
    CHECK_THAT(error_of(hosts), Catch::StartsWith("stdin:2:4: 'x' is not a setting"));
}
