#include "hostfiles/host_spec.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"

using namespace dtrun;

TEST_CASE("parse_hosts reads every form of -H", "[hostfiles]") {
    const auto [input, expected] = GENERATE(table<std::string, std::string>({
        {"s1:4", "s1:4"},
        {"s1", "s1:1"},
        {"s1:0", "s1:0"},
        {"s1:65536", "s1:65536"},
        {"s1:4,s2:2", "s1:4, s2:2"},
        {" s1:4 ,\ts2:2\n", "s1:4, s2:2"},
        {"10.0.0.7:2", "10.0.0.7:2"},
        {"alice@s1:4,s2", "alice@s1:4, s2:1"},
        {"alice@site.org@s1", "alice@site.org@s1:1"},
        {"[::1]:4", "::1:4"},
        {"[::1]", "::1:1"},
        {"bob@[fe80::1%eth0]:2", "bob@fe80::1%eth0:2"},
        {"n[1-3]:8", "n1:8, n2:8, n3:8"},
        {"n[1,3-4].example.com:8,m", "n1.example.com:8, n3.example.com:8, n4.example.com:8, m:1"},
        {"a@[1-2]:3", "a@1:3, a@2:3"},
        // A repeated host: the sum, at the place of the first mention.
        {"b:1,a:2,b:3", "b:4, a:2"},
        {"n[1-3]:2,n2", "n1:2, n2:3, n3:2"},
        {"h,alice@h", "alice@h:2"},
        {"alice@h,h:2", "alice@h:3"},
    }));
    CHECK(show(parse_hosts(input)) == expected);
}

TEST_CASE("parse_hosts names the column and what to write instead", "[hostfiles]") {
    const std::string chars = " cannot stand in a host name; use letters, digits, '.', '-' and '_'";
    const std::string option = " starts with '-': ssh would read it as an option";
    const std::string colons =
        " has several ':'; write host:slots, and an IPv6 address in brackets, as in [::1]:4";
    const std::string blank = "hosts are separated by commas; write a:1,b:1 without blanks";
    const auto [input, message] = GENERATE_COPY(table<std::string, std::string>({
        {"", "1:1: no hosts; write -H host:slots,host:slots"},
        {" \t", "1:1: no hosts; write -H host:slots,host:slots"},
        {"a:1 b:1", "1:4: " + blank},
        {"a:1\nb:1", "1:4: " + blank},
        {"x,a: 1", "1:5: " + blank},
        {"s1\uff1a4\uff0cs2\uff1a4", "1:3: \uff1a is not the keyboard's :; write s1:4,s2:4"},
        {"s1:4,\u3000s2:4",
         "1:6: a blank in it is not the keyboard's but U+3000; write s1:4, s2:4"},
        {"a:1,,b:1", "1:5: no host stands next to this comma; remove the comma"},
        {"a:1,", "1:5: no host stands next to this comma; remove the comma"},
        {",a:1", "1:1: no host stands next to this comma; remove the comma"},
        {"a:1,:4", "1:5: the host name is missing"},
        {"a:1,u@", "1:7: the host name is missing"},
        {"a:1,b:", "1:7: the number of slots is missing; write host:4"},
        {"a:x", "1:3: 'x' is not a number of slots; write host:4"},
        {"a:-1", "1:3: '-1' is not a number of slots; write host:4"},
        {"a:4.5", "1:3: '4.5' is not a number of slots; write host:4"},
        {"bob@a:65537", "1:7: '65537' slots are too many; a host has at most 65536"},
        {"a:99999999999999999999",
         "1:3: '99999999999999999999' slots are too many; a host has at most 65536"},
        {"::1", "1:1: '::1'" + colons},
        {"x,fe80::1:4", "1:3: 'fe80::1:4'" + colons},
        {"h:4:2", "1:1: 'h:4:2'" + colons},
        {"[::g]:4", "1:2: '::g' is not an IPv6 address; write one as in [::1]:4"},
        {"[fe80::1%]", "1:2: 'fe80::1%' is not an IPv6 address; write one as in [::1]:4"},
        {"[fe80::1%a b]", "1:11: " + blank},
        {"[fe80::1%$x]", "1:2: 'fe80::1%$x' is not an IPv6 address; write one as in [::1]:4"},
        {"[::1]4", "1:6: after ']' comes ':' and the slots, or nothing"},
        {"[::1:4", "1:1: '[::1:4'" + colons},
        {"-x:4", "1:1: host name '-x'" + option},
        {"u@-x:4", "1:3: host name '-x'" + option},
        {"-u@x:4", "1:1: user name '-u'" + option},
        {"@x:4", "1:1: the user name is missing"},
        {"a;b@x:4", "1:2: ';' cannot stand in a user name"},
        {"a\x1b[31m@x", "1:2: '\\x1b' cannot stand in a user name"},
        {std::string(256, 'u') + "@x",
         "1:1: user name '" + std::string(64, 'u') + "...' is longer than 255 bytes"},
        {"a$b", "1:2: '$'" + chars},
        {"n[3-1]:4", "1:3: range 3-1 runs backwards; write 1-3"},
        {"m,u@n[1-999999999]:4",
         "1:7: range 1-999999999 goes past the 1000000 hosts that one list can hold"},
        {"n[1-1000000],n[1-2]", "1:14: more than 1000000 hosts; split the list"},
    }));
    CHECK(error_of(parse_hosts(input)) == "-H:" + message);
}

TEST_CASE("parse_hosts names both places of a host with two users", "[hostfiles]") {
    CHECK(error_of(parse_hosts("x,alice@h:2,bob@h:2")) ==
          "-H:1:13: host 'h' has user 'bob' here but 'alice' at 1:3; give one host one value");
    CHECK(error_of(parse_hosts("h,alice@h,bob@h")) ==
          "-H:1:11: host 'h' has user 'bob' here but 'alice' at 1:1; give one host one value");
}

TEST_CASE("parse_hosts limits the sum of a host's slots", "[hostfiles]") {
    CHECK(error_of(parse_hosts("h:65536,h:1")) ==
          "-H:1:9: the slots of host 'h' add up to 65537; a host has at most 65536");
}

TEST_CASE("parse_hosts merges 100,000 repeated names in a moment", "[hostfiles]") {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += fmt::format("node{:05}.example.com:2,", i % 50'000);
    text.pop_back();
    const double begin = processor_seconds();
    const auto hosts = parse_hosts(text);
    CHECK(processor_seconds() - begin < 5);  // not O(n^2)
    REQUIRE(hosts.has_value());
    CHECK(hosts->size() == 50'000);
    CHECK(hosts->back().slots == 4);
}
