#include "worker/client/nodelist.h"

#include <catch2/catch.hpp>

namespace dtrun::embedded {
namespace {

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the client expands the lists that Slurm writes", "[client][nodelist]") {
    struct Row {
        const char* text;
        Names names;
    };
    const std::vector<Row> rows{
        {"n1", {"n1"}},
        {"n[1-3]", {"n1", "n2", "n3"}},
        {"n[08-11,100]", {"n08", "n09", "n10", "n11", "n100"}},
        {"a1,login,rack1n[09-10],rack2n01", {"a1", "login", "rack1n09", "rack1n10", "rack2n01"}},
        {"x001-ib,x002-ib", {"x001-ib", "x002-ib"}},
        {"r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}},
        {"127.0.0.1", {"127.0.0.1"}},
    };
    for (const Row& row : rows) {
        INFO(row.text);
        const auto names = expand_nodelist(row.text);
        REQUIRE(names.has_value());
        CHECK(*names == row.names);
    }
    CHECK(expand_nodelist("n[0-65535]")->size() == 65'536);
}

TEST_CASE("what is no list of nodes is refused", "[client][nodelist]") {
    for (const char* text : {"", ",", "n1,", "n[", "n[]", "n]", "n[1-", "n[3-1]", "n[1-x]", "n[-1]",
                             "n[1,]", "n[[1]]", "n[1]]", "[", "n[0-65536]",
                             "n[1-9999999999999999999]", "a[1-300]b[1-300]", "n[0-65535],m"}) {
        INFO(text);
        const auto names = expand_nodelist(text);
        REQUIRE_FALSE(names.has_value());
        CHECK(names.error().code == DTRUN_INVALID);
    }
}

}  // namespace dtrun::embedded
