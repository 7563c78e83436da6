// The flags by which one looks into ranks.

#include "tests/launcher/cli_support.h"

#include <catch2/catch.hpp>

using namespace dtrun;
using Catch::Matchers::Contains;
using Strings = std::vector<std::string>;

TEST_CASE("--wrap takes a command for all ranks, or for those before its colon",
          "[launcher][look]") {
    const Options options =
        options_of("-np 4 --wrap 'nsys profile -o \"p %q{RANK}\" {}' --wrap 0,2-3:'perf record' x");
    REQUIRE(options.wraps.size() == 2);
    CHECK(options.wraps[0].words == Strings{"nsys", "profile", "-o", "p %q{RANK}", "{}"});
    CHECK(options.wraps[0].ranks.empty());
    CHECK(options.wraps[1].words == Strings{"perf", "record"});
    CHECK(options.wraps[1].ranks.largest() == 3);
    CHECK_FALSE(options.wraps[1].ranks.contains(1));
    CHECK(options.wraps[1].written == "0,2-3:perf record");
}

TEST_CASE("a colon in the command itself names no ranks", "[launcher][look]") {
    CHECK(options_of("--wrap 'env A=b:c' x").wraps[0].words == Strings{"env", "A=b:c"});
    CHECK(options_of("--wrap '1:env 2:x' x").wraps[0].words == Strings{"env", "2:x"});
}

TEST_CASE("a --wrap that wraps nothing is refused", "[launcher][look]") {
    CHECK_THAT(error_of("--wrap 'env \"x' x"), Contains("is never closed"));
    CHECK_THAT(error_of("--wrap 0: x"), Contains("'0:' names no command before the program"));
    CHECK_THAT(error_of("--wrap '{} x' x"), Contains("names no command"));
    CHECK_THAT(error_of("--wrap 3-1:env x"), Contains("range 3-1 runs backwards"));
    CHECK_THAT(error_of("--mpi mpirun --wrap env x"), Contains("which --wrap would need"));
}
