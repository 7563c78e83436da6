#include "base/fd.h"
#include "base/strings.h"
#include "hostfiles/host.h"
#include "hostfiles/nodelist.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"

#include <map>

using namespace dtrun;

namespace {

std::string expand(std::string_view text) {
    const auto names = expand_nodelist(text);
    return names ? fmt::format("{}", fmt::join(*names, ",")) : error_of(names);
}

// Rows of expand.tsv where dtrun differs from `scontrol show hostnames` on purpose.
const std::map<std::string, std::string>& differences() {
    static const std::map<std::string, std::string> rows = {
        // Text after a bracket is allowed; scontrol refuses it.
        {"rack[1-2]n[01-02]-ib", "rack1n01-ib,rack1n02-ib,rack2n01-ib,rack2n02-ib"},
        {"x[001-003]-ib0.cluster.local",
         "x001-ib0.cluster.local,x002-ib0.cluster.local,x003-ib0.cluster.local"},
        {"host_a[1-2]_b", "host_a1_b,host_a2_b"},
        // scontrol makes a host "n]" of it.
        {"n[1-3", "nodelist:1:2: '[' is not closed; write ']' after the last number"},
        // scontrol passes on what no host can be called.
        {"n1:4",
         "nodelist:1:3: ':' cannot stand in a host name; use letters, digits, '.', '-' and '_'"},
        {"n1*2",
         "nodelist:1:3: '*' cannot stand in a host name; use letters, digits, '.', '-' and '_'"},
        {"n1(x2)",
         "nodelist:1:3: '(' cannot stand in a host name; use letters, digits, '.', '-' and '_'"},
    };
    return rows;
}

void check_row(const std::vector<std::string_view>& row) {
    const std::string input(row[0]);
    INFO(input);
    if (const auto found = differences().find(input); found != differences().end()) {
        CHECK(expand(input) == found->second);
        return;
    }
    const auto names = expand_nodelist(input);
    if (row[2] == "0") {
        CHECK_THAT(error_of(names), Catch::StartsWith("nodelist:1:"));
        return;
    }
    REQUIRE(names.has_value());
    CHECK(std::to_string(names->size()) == row[2]);
    const std::string all = fmt::format("{}", fmt::join(*names, ","));
    const std::size_t cut = row[3].find("...");
    CHECK(all.starts_with(row[3].substr(0, cut)));
    CHECK(all.ends_with(cut == std::string_view::npos ? row[3] : row[3].substr(cut + 3)));
}

}  // namespace

TEST_CASE("expand_nodelist agrees with scontrol, except where scontrol is wrong or stricter",
          "[hostfiles][slurm]") {
    const auto table = read_file(DTRUN_TEST_DATA "/expand.tsv");
    REQUIRE(table.has_value());
    int rows = 0;
    for (const std::string_view line : split(*table, '\n')) {
        if (line.empty() || line.starts_with('#')) continue;
        check_row(split(line, '\t'));
        ++rows;
    }
    CHECK(rows > 30);
}

TEST_CASE("expand_nodelist varies the last of several brackets fastest, then the first as scontrol",
          "[hostfiles][slurm]") {
    CHECK(expand("r[1-2]c[1-2]n[1-2]") ==
          "r1c1n1,r1c1n2,r2c1n1,r2c1n2,r1c2n1,r1c2n2,r2c2n1,r2c2n2");
    CHECK(expand("r[1-2]c[1-2]n[1-2]-ib") ==
          "r1c1n1-ib,r1c1n2-ib,r2c1n1-ib,r2c1n2-ib,r1c2n1-ib,r1c2n2-ib,r2c2n1-ib,r2c2n2-ib");
    CHECK(expand("[1-2][08-10]") == "108,109,110,208,209,210");
    CHECK(expand("a[1-2]b[1,3]c[1]d[1-2]") ==
          "a1b1c1d1,a1b1c1d2,a2b1c1d1,a2b1c1d2,a1b3c1d1,a1b3c1d2,a2b3c1d1,a2b3c1d2");
}

TEST_CASE("expand_nodelist calls the list what its caller calls it", "[hostfiles][slurm]") {
    CHECK_THAT(error_of(expand_nodelist("n[3-1]", "SLURM_JOB_NODELIST")),
               Catch::StartsWith("SLURM_JOB_NODELIST:1:3: range 3-1"));
}

TEST_CASE("compress_nodelist writes neighbours as ranges, in order", "[hostfiles][slurm]") {
    const auto [names, list] = GENERATE(table<std::string, std::string>({
        {"n1", "n1"},
        {"n1,n2,n3", "n[1-3]"},
        {"n01,n02,n03,n20,login1", "n[01-03,20],login1"},
        {"n9,n10,n11", "n[9-11]"},
        {"n09,n10,n099,n100", "n[09-10,099-100]"},
        {"n9,n010", "n[9,010]"},
        {"n3,n2,n1", "n[3,2,1]"},
        {"n1,n1,n2", "n[1,1-2]"},
        {"n00,n0,n000", "n[00,0,000]"},
        {"n1,m1,n2", "n1,m1,n2"},
        {"x001-ib,x002-ib", "x001-ib,x002-ib"},  // scontrol reads nothing behind a bracket
        {"login,login", "login,login"},
        {"rack1n09,rack1n10,rack2n01", "rack1n[09-10],rack2n01"},
        {"1,2,3", "[1-3]"},
        {"10.0.0.1,10.0.0.2", "10.0.0.[1-2]"},
        {"n999999999999999999,n1000000000000000000,n1000000000000000001",
         "n999999999999999999,n1000000000000000000,n1000000000000000001"},
    }));
    std::vector<std::string> split_names;
    for (const std::string_view name : split(names, ',')) split_names.emplace_back(name);
    CHECK(compress_nodelist(split_names) == list);
    CHECK(expand(list) == names);
    CHECK(compress_nodelist({}) == "");
}

TEST_CASE("name_hosts names every host, few by their names and many as a list", "[hostfiles]") {
    CHECK(name_hosts({"s1", "s2", "s3"}) == "s1, s2 and s3");
    CHECK(name_hosts({"s1", "s2", "s3", "s4", "login"}) == "s[1-4],login (5)");
    CHECK(name_hosts({"s1.dc", "s2.dc", "s3.dc", "s3.eu", "in.eu", "10.0.0.1", "10.0.0.2"}) ==
          "s[1-3].dc,s3.eu,in.eu,10.0.0.[1-2] (7)");
}

TEST_CASE("compress_nodelist writes no range that is too large for scontrol",
          "[hostfiles][slurm]") {
    const auto names = expand_nodelist("n[1-70000]").value();
    const std::string list = compress_nodelist(names);
    CHECK(list == "n[1-65536,65537-70000]");
    CHECK(expand_nodelist(list).value() == names);
}

TEST_CASE("expand_nodelist pads to the width of the low bound", "[hostfiles][slurm]") {
    CHECK(expand("n[099-101]") == "n099,n100,n101");
    CHECK(expand("n[0-0000000001]") == "n0,n1");
}

TEST_CASE("expand_nodelist names the column of what is wrong", "[hostfiles][slurm]") {
    const std::string chars = " cannot stand in a host name; use letters, digits, '.', '-' and '_'";
    const std::string number = " is not a number or a range; write [1-3] or [01-16,20]";
    const std::string limit = " goes past the 1000000 hosts that one list can hold";
    const auto [input, message] = GENERATE_COPY(table<std::string, std::string>({
        {"gpu[3-1]", "1:5: range 3-1 runs backwards; write 1-3"},
        {"", "1:1: no hosts; write a list such as n[01-16],login1"},
        {" , ,\t", "1:1: no hosts; write a list such as n[01-16],login1"},
        {"n1,n[2-4", "1:5: '[' is not closed; write ']' after the last number"},
        {"n1,n2]", "1:6: ']' without '[' before it"},
        {"n[1[2]]", "1:3: '1[2'" + number},
        {"n[1]]", "1:5: ']' without '[' before it"},
        {"a,n[1 - 3]", "1:5: '1 - 3'" + number},
        {"n[1-2-3]", "1:3: '1-2-3'" + number},
        {"n[1-]", "1:3: '1-'" + number},
        {"n[5,-3]", "1:5: '-3'" + number},
        {"n[]", "1:3: ''" + number},
        {"n[a]", "1:3: 'a'" + number},
        {"n[1-2,9-1234567890123456789]",
         "1:9: number '1234567890123456789' is too large; at most 18 digits"},
        {"n[1-999999999]", "1:3: range 1-999999999" + limit},
        {"n[1-999999999999999999]", "1:3: range 1-999999999999999999" + limit},
        {"n[1-1000000,7]", "1:13: range 7" + limit},
        {"r[1-1001]n[1-1000]", "1:12: range 1-1000" + limit},
        {"[1-1000000][1-1000000][1-1000000]", "1:13: range 1-1000000" + limit},
        {"a[1-1000000],b", "1:14: more than 1000000 hosts; split the list"},
        {"-oProxyCommand=x",
         "1:1: host name '-oProxyCommand=x' starts with '-': ssh would read it as an option"},
        {"a/b", "1:2: '/'" + chars},
        {"n\xc3\xa9",
         "1:2: only ASCII can stand in a host name: DNS has xn--... for other letters"},
        {std::string("a\0b", 3), "1:2: '\\x00'" + chars},
        {std::string(256, 'a'),
         "1:1: host name '" + std::string(64, 'a') + "...' is longer than 255 bytes"},
    }));
    CHECK(error_of(expand_nodelist(input)) == "nodelist:" + message);
}

TEST_CASE("expand_nodelist counts the digits of ranges in the length of a name",
          "[hostfiles][slurm]") {
    CHECK(expand_nodelist(std::string(253, 'a') + "[99-99]").has_value());
    CHECK_THAT(error_of(expand_nodelist(std::string(253, 'a') + "[99-100]")),
               Catch::EndsWith("is longer than 255 bytes"));
}

TEST_CASE("expand_nodelist takes exactly as many hosts as a list may hold", "[hostfiles][slurm]") {
    CHECK(expand_nodelist("r[1-1000]n[1-1000]").value().size() == kHostsMax);
}

TEST_CASE("expand_nodelist expands 100,000 names in a moment", "[hostfiles][slurm]") {
    const double begin = processor_seconds();
    CHECK(expand_nodelist("rack[001-100]-n[0001-1000].example.com").value().size() == 100'000);
    // Far above what an optimised build needs, far below what O(n^2) would take.
    CHECK(processor_seconds() - begin < 2);
}
