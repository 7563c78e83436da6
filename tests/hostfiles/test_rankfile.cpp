#include "hostfiles/host_spec.h"
#include "hostfiles/placement.h"
#include "hostfiles/rankfile.h"
#include "tests/support/catch.h"

using namespace dtrun;

namespace {

std::string wrong(std::string_view text) {
    const auto ranks = parse_rankfile(text, "f");
    return ranks ? "none" : ranks.error().message;
}

}  // namespace

TEST_CASE("a rankfile says where each rank runs", "[hostfiles][rankfile]") {
    const auto ranks = parse_rankfile(
        "# by hand\n\nrank 2=+n0\nrank 0=bb slot=1:0-2\nrank  1 = al@aa   slots=0  # first\n", "f");
    REQUIRE(ranks.has_value());
    CHECK(*ranks == std::vector<RankLine>{{"bb", "1:0-2"}, {"al@aa", "0"}, {"+n0", ""}});
    HostList hosts = parse_hosts("aa:1,bb:4").value();
    CHECK(hosts_of_ranks(*ranks, hosts) == std::vector<int>{1, 0, 0});
}

TEST_CASE("a rankfile may have the short names of a batch system's hosts",
          "[hostfiles][rankfile]") {
    const auto ranks = parse_rankfile("rank 0=n2\nrank 1=al@n1\nrank 2=n3.a.org\n", "f").value();
    HostList hosts = parse_hosts("n1.a.org:1,n2.a.org:1,n3:1").value();
    CHECK(hosts_of_ranks(ranks, hosts) == std::vector<int>{1, 0, 2});
}

TEST_CASE("a rankfile alone has its hosts, with as many slots as ranks", "[hostfiles][rankfile]") {
    const auto ranks = parse_rankfile("rank 0=bb\nrank 1=aa\nrank 2=bb\n", "f").value();
    HostList hosts;
    const auto host_of = hosts_of_ranks(ranks, hosts);
    REQUIRE(host_of == std::vector<int>{0, 1, 0});
    REQUIRE(hosts.size() == 2);
    CHECK(hosts[0].name == "bb");
    CHECK(hosts[0].slots == 2);
    const Placement placement = place_on(hosts, *host_of);
    CHECK(placement.ranks[2].local_rank == 1);
    CHECK(placement.ranks[2].local_size == 2);
    CHECK(placement.ranks[2].cross_size == 1);
    CHECK(placement.ranks[1].cross_rank == 1);
}

TEST_CASE("what is wrong in a rankfile is said with its line", "[hostfiles][rankfile]") {
    const std::string form = "; write `rank 0=host` or `rank 0=host slot=0-1`";
    CHECK(wrong("") == "f: has no ranks" + form);
    CHECK(wrong("\naa\n") == "f:2: 'aa' does not begin with rank" + form);
    CHECK(wrong("rank x=aa\n") == "f:1: 'x=aa' is no rank with its host" + form);
    CHECK(wrong("rank 0\n") == "f:1: '0' is no rank with its host" + form);
    CHECK(wrong("rank 0=\n") == "f:1: rank 0 has no host" + form);
    CHECK(wrong("rank 0=aa cpu=3\n") == "f:1: 'cpu=3' is not slot=..." + form);
    CHECK(wrong("rank 0=aa\nrank 0=bb\n") == "f:2: rank 0 stands there twice");
    CHECK(wrong("rank 0=aa\nrank 2=bb\n") == "f: rank 1 is missing");
    HostList hosts = parse_hosts("aa:1").value();
    CHECK(hosts_of_ranks({{"cc", ""}}, hosts).error().message ==
          "rank 0: cc is none of the job's hosts");
    CHECK(hosts_of_ranks({{"+n1", ""}}, hosts).error().message ==
          "rank 0: +n1 is none of the job's hosts");
    HostList none;
    CHECK(hosts_of_ranks({{"+n0", ""}}, none).error().message ==
          "+n0 is one of the job's hosts by number, but none are given; add -H or --hostfile");
}
