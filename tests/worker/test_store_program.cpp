// The agent under the name `dtrun`, which ranks find where dtrun is not installed.
#include "worker/agent/store_program.h"

#include "tests/support/catch.h"
#include "worker/ranks/agent_directories.h"

#include <filesystem>

namespace dtrun {

using namespace agent;
using asking::StoreOrder;
using Catch::Contains;

namespace {

StoreOrder order_of(const std::vector<std::string>& words) {
    const auto parsed = parse_store_words(words);
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->has_value());
    return **parsed;
}

std::string error_of(const std::vector<std::string>& words) {
    const auto parsed = parse_store_words(words);
    REQUIRE_FALSE(parsed.has_value());
    return parsed.error().message;
}

}  // namespace

TEST_CASE("the agent's dtrun store takes options and operands in any order", "[store_program]") {
    const StoreOrder set = order_of({"set", "k", "v", "--timeout", "2.5"});
    CHECK(set.verb.op == Op::set);
    CHECK(set.operands == std::vector<std::string>{"k", "v"});
    CHECK(set.timeout == std::chrono::milliseconds(2500));
    CHECK(order_of({"--timeout=0", "wait", "a", "b"}).timeout == std::chrono::milliseconds(0));
    CHECK(order_of({"set", "k", "-"}).reads_input());
    CHECK(order_of({"compare-set", "k", "old", "-"}).reads_input());
    CHECK_FALSE(order_of({"get", "-"}).reads_input());
    CHECK(order_of({"add", "k", "--", "-5"}).operands.back() == "-5");
    CHECK(order_of({"ls", "-0"}).nul);
    CHECK(order_of({"ls"}).operands.empty());
    const StoreOrder brief = order_of({"set", "--ttl=1.5", "k", "v"});
    CHECK(brief.verb.op == Op::put);
    CHECK(brief.ttl == std::chrono::milliseconds(1500));
    CHECK(order_of({"rm", "--prefix", "a/"}).verb.op == Op::erase_prefix);
    CHECK(order_of({"watch", "a/", "--prefix"}).verb.op == Op::watch_prefix);
    const StoreOrder lock = order_of({"lock", "--value", "me", "k", "tail", "-f", "--", "--help"});
    CHECK(lock.holder == "me");
    CHECK(lock.operands == std::vector<std::string>{"k", "tail", "-f", "--", "--help"});
    CHECK(order_of({"lock", "k", "--", "--odd"}).operands.back() == "--odd");
    CHECK_FALSE(parse_store_words(std::vector<std::string>{"get", "--help"}).value().has_value());
}

TEST_CASE("words that the agent's dtrun store does not have are told with what to do",
          "[store_program]") {
    for (const char* const option : {"--server=h", "--job", "--secret-file", "--secret-fd=3"})
        CHECK_THAT(error_of({"get", "k", option}),
                   Contains("dtrun is not installed on this host; its agent"));
    CHECK_THAT(error_of({"get", "k", "--tomorrow"}), Contains("there is no option --tomorrow"));
    CHECK_THAT(error_of({"get", "k", "--timeout"}), Contains("--timeout needs a value"));
    for (const char* const time : {"-1", "soon", "nan", "inf", "1s"})
        CHECK_THAT(error_of({"get", "k", "--timeout", time}), Contains("not a number of seconds"));
    CHECK_THAT(error_of({"steal", "k"}), Contains("there is no 'steal', but get, set, create"));
    CHECK_THAT(error_of({"compare-set", "k", "v"}),
               Contains("usage: dtrun store compare-set [options] KEY EXPECTED VALUE|-"));
    CHECK_THAT(error_of({"lock", "k"}),
               Contains("usage: dtrun store lock [options] NAME [--] COMMAND..."));
    CHECK(error_of({"get", "k", "--prefix"}) == "get has no --prefix; see dtrun store --help");
    CHECK(error_of({"create", "k", "v", "--ttl", "1"}) ==
          "create has no --ttl; see dtrun store --help");
    CHECK_THAT(error_of({"set", "k", "v", "--ttl", "0"}), Contains("there for 0 s"));
    CHECK_THAT(error_of({"get"}), Contains("usage: dtrun store get [options] KEY"));
    CHECK_THAT(error_of({}), Contains("dtrun store what?"));
}

TEST_CASE("the agent's dtrun stands behind all that is on PATH, and nowhere without one",
          "[store_program]") {
    const auto folder = make_store_program("dtrun-job-test-");
    REQUIRE(folder.has_value());
    CHECK(std::filesystem::read_symlink(*folder + "/dtrun") ==
          std::filesystem::read_symlink("/proc/self/exe"));
    ranks::remove_directory(*folder);
    contracts::Environment env{{"PATH", "/mine:/usr/bin"}};
    add_to_path("/p", env);
    CHECK(env["PATH"] == "/mine:/usr/bin:/p");
    // Without PATH programs are looked for where the system says, and not there if it has one.
    contracts::Environment none;
    add_to_path("/p", none);
    CHECK(none.empty());
}

}  // namespace dtrun
