#include "hostfiles/filter.h"
#include "hostfiles/host_names.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "hostfiles/nodelist.h"
#include "hostfiles/write_hosts.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <random>

using namespace dtrun;
using Catch::Contains;

namespace {

std::string written(const HostList& hosts, HostFormat format) {
    const auto text = write_hosts(hosts, format);
    return text ? *text : error_of(text);
}

/// Two hosts with nothing but slots.
HostList plain_hosts() {
    return parse_hosts("n1:4,n2:2").value();
}

/// One host of which everything is known.
HostList full_host() {
    Host host;
    host.name = "n1";
    host.slots = 2;
    host.slots_max = 4;
    host.user = "o'neil";
    host.port = 2222;
    host.identity_file = "/k e\"y";
    host.address = "10.0.0.1";
    return {host};
}

}  // namespace

TEST_CASE("every format has its documented form", "[hostfiles][write]") {
    const auto [format, expected] = GENERATE(table<HostFormat, std::string>({
        {HostFormat::deepspeed, "n1 slots=4\nn2 slots=2\n"},
        {HostFormat::horovod, "n1 slots=4\nn2 slots=2\n"},
        {HostFormat::openmpi, "n1 slots=4\nn2 slots=2\n"},
        {HostFormat::mpich, "n1:4\nn2:2\n"},
        {HostFormat::yaml, "hosts:\n  - {host: n1, slots: 4}\n  - {host: n2, slots: 2}\n"},
        {HostFormat::json,
         "{\"hosts\":[\n{\"host\":\"n1\",\"slots\":4},\n{\"host\":\"n2\",\"slots\":2}\n]}\n"},
        {HostFormat::plain, "n1\nn2\n"},
        {HostFormat::nodelist, "n[1-2]\n"},
        {HostFormat::ansible, "[dtrun]\nn1\nn2\n"},
    }));
    CHECK(written(plain_hosts(), format) == expected);
}

TEST_CASE("rich formats say everything that is known of a host", "[hostfiles][write]") {
    const HostList hosts = full_host();
    CHECK(written(hosts, HostFormat::yaml) ==
          "hosts:\n  - {host: n1, slots: 2, max_slots: 4, user: 'o''neil', port: 2222, "
          "identity_file: '/k e\"y', address: '10.0.0.1'}\n");
    CHECK(written(hosts, HostFormat::json) ==
          "{\"hosts\":[\n{\"host\":\"n1\",\"slots\":2,\"max_slots\":4,\"user\":\"o'neil\","
          "\"port\":2222,\"identity_file\":\"/k e\\\"y\",\"address\":\"10.0.0.1\"}\n]}\n");
    CHECK_THAT(
        written(hosts, HostFormat::ansible),
        Contains("n1 ansible_host=10.0.0.1 ansible_user='o'") && Contains("ansible_port=2222"));
    CHECK(written(hosts, HostFormat::plain) == "n1\n");
    HostList user = parse_hosts("alice@n1:4").value();
    user[0].slots_max = 8;
    CHECK(written(user, HostFormat::openmpi) == "alice@n1 slots=4 max_slots=8\n");
    const HostList chosen = filter_hosts(plain_hosts(), "n1:0,3", "").value();
    CHECK_THAT(written(chosen, HostFormat::json), Contains("\"slots\":2,\"slot_ids\":[0,3]"));
}

TEST_CASE("what a format cannot say is refused, with what to do", "[hostfiles][write]") {
    const auto [spec, format, expected] = GENERATE(table<std::string, HostFormat, std::string>({
        {"al@n1", HostFormat::deepspeed,
         "host 'n1': format deepspeed: no place for user 'al'; put it into ~/.ssh/config"},
        {"al@n1", HostFormat::mpich, "host 'n1': format mpich: no place for user 'al'"},
        {"[::1]:2", HostFormat::deepspeed,
         "host '::1': format deepspeed: an IPv6 address cannot be its name"},
        {"[::1]:2", HostFormat::nodelist, "host '::1': format nodelist: an IPv6 address"},
        {"[::1]:2", HostFormat::openmpi, "host '::1': format openmpi: an IPv6 address"},
    }));
    CHECK_THAT(written(parse_hosts(spec).value(), format), Catch::StartsWith(expected));

    const HostList chosen = filter_hosts(plain_hosts(), "n1:0,3", "").value();
    CHECK_THAT(written(chosen, HostFormat::deepspeed), Contains("deepspeed --include n1:0,3"));
    CHECK_THAT(written(chosen, HostFormat::yaml), Contains("no place for chosen slots 0,3"));
    HostList ported = plain_hosts();
    ported[1].port = 22;
    CHECK_THAT(written(ported, HostFormat::openmpi), Contains("host 'n2'") && Contains("port 22"));
    HostList twice = plain_hosts();
    twice[1].name = "n1";
    CHECK_THAT(written(twice, HostFormat::deepspeed), Contains("host 'n1' is listed twice"));
}

TEST_CASE("what is written reads back the same", "[hostfiles][write][random]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    const auto below = [&](int limit) {
        return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    for (int round = 0; round < 200; ++round) {
        HostList hosts(static_cast<std::size_t>(1 + below(9)));
        HostList rich;
        for (std::size_t i = 0; i < hosts.size(); ++i) {
            hosts[i].name = fmt::format("{}{}{}", below(2) == 0 ? "n" : "null", i * 7,
                                        below(2) == 0 ? "" : ".x-y_z");
            hosts[i].slots = below(5);
            Host host = hosts[i];
            if (below(3) == 0) host.name = fmt::format("fe80::{}%eth0", i + 1);
            if (below(2) == 0) host.slots_max = host.slots + below(3);
            if (below(2) == 0) host.user = below(2) == 0 ? "o,neil: #x" : "true";
            if (below(2) == 0) host.port = 1 + below(65'535);
            if (below(2) == 0) host.identity_file = "~/.ssh/k {'é}\"";
            if (below(2) == 0) host.address = below(2) == 0 ? "::1" : "10.1.2.3";
            if (host.user.find(' ') != std::string::npos) host.user = "o,neil:#x";
            rich.push_back(host);
        }
        for (const HostFormat format : {HostFormat::deepspeed, HostFormat::horovod,
                                        HostFormat::openmpi, HostFormat::mpich, HostFormat::yaml}) {
            const std::string text = written(hosts, format);
            INFO(text);
            CHECK(parse_hostfile(text, "hf").value() == hosts);
        }
        const std::string text = written(rich, HostFormat::yaml);
        INFO(text);
        CHECK(show(parse_hostfile(text, "hf")) == show(Result<HostList>(rich)));
    }
}

TEST_CASE("an inventory gives an IPv6 address an alias", "[hostfiles][write]") {
    CHECK(written(parse_hosts("[fe80::1%eth0]:4").value(), HostFormat::ansible) ==
          "[dtrun]\nipv6-fe80--1-eth0 ansible_host=fe80::1%eth0\n");
}

TEST_CASE("short names end at the first dot and may become one host", "[hostfiles][names]") {
    const HostList hosts = parse_hosts("n1.a.org:2,10.0.0.1,n2.a.org,n1.b.org:3,[fe80::1]").value();
    CHECK(show(shorten_names(hosts)) == "n1:5, 10.0.0.1:1, n2:1, fe80::1:1");
    CHECK(error_of(shorten_names(parse_hosts("a@n1.x,b@n1.y").value())) ==
          "--short:2:1: host 'n1' has user 'b' here but 'a' at 1:1; give one host one value");
}

TEST_CASE("hosts sort as a person would sort them", "[hostfiles][names]") {
    HostList hosts =
        parse_hosts("n10,n2,n02,n1,n,a9b2,a9b10,n2-ib,rack1n9,rack1n10,10.0.0.9,10.0.0.10").value();
    sort_naturally(hosts);
    CHECK(show(Result<HostList>(hosts)) ==
          "10.0.0.9:1, 10.0.0.10:1, a9b2:1, a9b10:1, n:1, n1:1, n2:1, n02:1, n2-ib:1, n10:1, "
          "rack1n9:1, rack1n10:1");
}
