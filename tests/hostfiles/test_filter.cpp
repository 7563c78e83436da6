#include "hostfiles/filter.h"
#include "hostfiles/host_spec.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"

using namespace dtrun;

namespace {

HostList pool(std::string_view text = "w0:4,w1:4") {
    return parse_hosts(text).value();
}

}  // namespace

TEST_CASE("filter_hosts includes by DeepSpeed's documented grammar", "[hostfiles][filter]") {
    const auto [include, expected] = GENERATE(table<std::string, std::string>({
        {"w0", "w0:4"},
        {"w1@w0", "w0:4, w1:4"},  // the order of the hosts
        {"w0@w1:0,2", "w0:4, w1:2{0,2}"},
        {"w0:1@w0", "w0:4"},
        {"w0@w0:1", "w0:4"},
        {"w0:3,1,3@w1:0@w0:1,0", "w0:3{0,1,3}, w1:1{0}"},
        {"w[0-1]:1", "w0:1{1}, w1:1{1}"},
        {" w0 @ w1:0 ", "w0:4, w1:1{0}"},
        {"", "w0:4, w1:4"},
    }));
    CHECK(show(filter_hosts(pool(), include, "")) == expected);
}

TEST_CASE("filter_hosts excludes by DeepSpeed's documented grammar", "[hostfiles][filter]") {
    const auto [exclude, expected] = GENERATE(table<std::string, std::string>({
        {"w0:1", "w0:3{0,2,3}, w1:4"},
        {"w0", "w1:4"},
        {"w0:0,1,2,3", "w1:4"},
        {"w0:1@w0", "w1:4"},
        {"w[0-1]:0-0", "--exclude:1:8: '0-0' is not a slot number; write host:0,1,2"},
        {"w1:3@w0:0", "w0:3{1,2,3}, w1:3{0,1,2}"},
    }));
    CHECK(show(filter_hosts(pool(), "", exclude)) == expected);
}

TEST_CASE("filter_hosts knows a host by the first part of its name, if that is no other's",
          "[hostfiles][filter]") {
    const HostList hosts = pool("n1.a.org:2,n2.a.org:2,n2.b.org:2,n3:2,10.0.0.1:2");
    CHECK(show(filter_hosts(hosts, "n1:1", "")) == "n1.a.org:1{1}");
    CHECK(show(filter_hosts(hosts, "n3.a.org", "")) == "n3:2");
    CHECK(show(filter_hosts(hosts, "n2.b.org", "")) == "n2.b.org:2");
    CHECK_FALSE(filter_hosts(hosts, "n2", "").has_value());
    CHECK_FALSE(filter_hosts(hosts, "n1.b.org", "").has_value());
    CHECK_FALSE(filter_hosts(hosts, "10", "").has_value());
}

TEST_CASE("filter_hosts keeps the other settings of a host", "[hostfiles][filter]") {
    HostList hosts = pool("bob@[::1]:4,w1:0,w2:2");
    hosts[0].slots_max = 8;
    hosts[0].port = 2222;
    CHECK(show(filter_hosts(hosts, "[::1]:2", "")) == "bob@::1:1/8{2} port=2222");
    CHECK(show(filter_hosts(hosts, "", "w2:0")) == "bob@::1:4/8 port=2222, w2:1{1}");
}

TEST_CASE("filter_hosts filters what was already filtered", "[hostfiles][filter]") {
    const HostList first = filter_hosts(pool(), "w0:1,3@w1", "").value();
    CHECK(show(filter_hosts(first, "", "w0:3")) == "w0:1{1}, w1:4");
    CHECK(show(filter_hosts(first, "w0", "")) == "w0:2{1,3}");
    CHECK(error_of(filter_hosts(first, "w0:2", "")) ==
          "--include:1:1: host 'w0' has no slot 2; its slots are: 1,3");
}

TEST_CASE("filter_hosts names the host or slot that is not there", "[hostfiles][filter]") {
    const auto [include, message] = GENERATE(table<std::string, std::string>({
        {"jeff", "1:1: host 'jeff' is not in the host list"},
        {"w0@w2", "1:4: host 'w2' is not in the host list; did you mean 'w0'?"},
        {"w[1-2]:0", "1:1: host 'w2' is not in the host list; did you mean 'w0'?"},
        {"w0:9", "1:1: host 'w0' has no slot 9; its slots are: 0-3"},
        {"w0@w1:0,4", "1:4: host 'w1' has no slot 4; its slots are: 0-3"},
        {"w0:", "1:4: '' is not a slot number; write host:0,1,2"},
        {"w0:0,", "1:6: '' is not a slot number; write host:0,1,2"},
        {"w0:1,x", "1:6: 'x' is not a slot number; write host:0,1,2"},
        {"w0:-0", "1:4: '-0' is not a slot number; write host:0,1,2"},
        {"w0:65536", "1:4: '65536' is not a slot number; write host:0,1,2"},
        {"w0:1:2",
         "1:1: 'w0:1:2' has several ':'; write host:slots, and an IPv6 address in brackets, as in "
         "[::1]:4"},
        {"w0@@w1", "1:4: no host stands next to this '@'; write host:0,1@host"},
        {"@", "1:1: no host stands next to this '@'; write host:0,1@host"},
        {" ", "1:1: no host stands next to this '@'; write host:0,1@host"},
        {"w0@w[3-1]", "1:6: range 3-1 runs backwards; write 1-3"},
        {"w 0", "1:2: ' ' cannot stand in a host name; use letters, digits, '.', '-' and '_'"},
    }));
    CHECK(error_of(filter_hosts(pool(), include, "")) == "--include:" + message);
}

TEST_CASE("filter_hosts shows long and short lists of slots", "[hostfiles][filter]") {
    HostList hosts = pool("w0:20,w1:0");
    CHECK(error_of(filter_hosts(hosts, "w1:0", "")) ==
          "--include:1:1: host 'w1' has no slot 0; its slots are: none");
    hosts[0].slot_ids = {0, 2, 4, 5, 6, 8, 10, 12, 14, 16, 18};
    hosts[0].slots = 11;
    CHECK(error_of(filter_hosts(hosts, "w0:1", "")) ==
          "--include:1:1: host 'w0' has no slot 1; its slots are: 0,2,4-6,8,10,12,14,16,...");
}

TEST_CASE("filter_hosts refuses two filters, and to leave nothing", "[hostfiles][filter]") {
    CHECK(error_of(filter_hosts(pool(), "w0", "w1")) ==
          "--include:1:1: --include and --exclude are both given; give one of them");
    CHECK(error_of(filter_hosts(pool(), "", "w0@w1")) ==
          "--exclude:1:1: no slot is left on any host; exclude fewer");
    CHECK(error_of(filter_hosts(pool("a:0,b:1"), "a", "")) ==
          "--include:1:1: no slot is left on any host; include hosts that have slots");
}

TEST_CASE("filter_hosts bounds what a short filter can cost", "[hostfiles][filter]") {
    const HostList hosts = pool("n[1-1000]:65536");
    std::string many = "n[1-1000]:0";
    for (int i = 0; i < 20'000; ++i) many += ",0";
    CHECK(error_of(filter_hosts(hosts, many, "")) ==
          "--include:1:1: the filter names more than 16777216 hosts and slots");
    CHECK(error_of(filter_hosts(hosts, "", "n[1-1000]:0")) ==
          "--exclude:1:1: more than 16777216 slots are left; name fewer of them");
}
