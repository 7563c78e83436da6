#include "launcher/commands/store_command.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/watch/json_line.h"
#include "tests/support/catch.h"

namespace dtrun {

using namespace commands;

namespace {

boost::json::object object(std::string_view text) {
    auto parsed = watch::parse_object(text);
    REQUIRE(parsed.has_value());
    return std::move(*parsed);
}

}  // namespace

TEST_CASE("names of jobs and members cannot give orders to the terminal of `dtrun status`",
          "[store_command]") {
    const std::string shown = status_table(object(
        R"({"version":"1","pid":7,"uptime_s":3,"connections":1,"jobs":[{"name":"j\u001b[2J","phase":)"
        R"("running","generation":1,"ranks":2,"ranks_min":1,"ranks_max":2,"keys":0,"members":[)"
        R"({"host":"h1\ndtrun serve: forged","slots":2,"ranks":2,"connected":true}]}]})"));
    CHECK(shown ==
          "dtrun serve 1, pid 7, up 3 s, 1 connection\n"
          "JOB                  PHASE        GEN         RANKS     KEYS       STEP       UNUSED\n"
          "j\\x1b[2J             running        1       2 (1-2)        0          -            -\n"
          "  h1\\x0adtrun serve: forged   2 slots   2 ranks\n");
}

TEST_CASE("`dtrun status` tells how long nobody has been connected to a job", "[store_command]") {
    const std::string shown = status_table(object(R"({"jobs":[{"unused_s":187200},{}]})"));
    CHECK_THAT(shown, Catch::Contains("-      2 d 4 h\n"));
    CHECK_THAT(shown, Catch::EndsWith("-            -\n"));
}

TEST_CASE("a daemon's address with colons in it is an IPv6 address, or a mistake",
          "[store_command]") {
    using Place = std::pair<std::string, std::uint16_t>;
    CHECK(plan::parse_address("host:1", 9) == Place("host", 1));
    CHECK(plan::parse_address("::1", 9) == Place("::1", 9));
    CHECK(plan::parse_address("fe80::1%eth0", 9) == Place("fe80::1%eth0", 9));
    CHECK(plan::parse_address("[::1]:1", 9) == Place("::1", 1));
    for (const char* text : {"nosuch:1:2", "::1:29779"}) {
        const auto parsed = plan::parse_address(text, 9);
        REQUIRE_FALSE(parsed.has_value());
        CHECK_THAT(parsed.error().message, Catch::EndsWith("write HOST:PORT or [ADDRESS]:PORT"));
    }
}

TEST_CASE("a job is there once it has members, keys or clients besides who asks",
          "[store_command]") {
    CHECK_FALSE(has_job(object(R"({"jobs":[]})")));
    CHECK_FALSE(has_job(object(R"({"jobs":[{"name":"j","phase":"store","ranks":0,"keys":0}]})")));
    CHECK_FALSE(has_job(object(R"({"jobs":[{"phase":"store","keys":0,"connections":1}]})")));
    CHECK(has_job(object(R"({"jobs":[{"phase":"store","keys":0,"connections":2}]})")));
    CHECK(has_job(object(R"({"jobs":[{"name":"j","phase":"store","ranks":0,"keys":1}]})")));
    CHECK(has_job(object(R"({"jobs":[{"name":"j","phase":"waiting","ranks":0,"keys":0}]})")));
}

TEST_CASE("names that are no UTF-8, and answers in another language, end no command",
          "[store_command]") {
    const auto latin =
        object("{\"jobs\":[{\"name\":\"caf\xe9\",\"phase\":\"running\",\"ranks\":2}]}");
    CHECK(has_job(latin));
    CHECK_THAT(status_table(latin), Catch::Contains("caf\\xe9 "));
    CHECK(watch::json_line(latin).find("caf\xef\xbf\xbd\"") != std::string::npos);
    CHECK_FALSE(watch::parse_object("[1]").has_value());
    CHECK_FALSE(watch::parse_object("{\"a").has_value());
    const auto odd =
        object(R"({"jobs":[7,{"name":[],"ranks":"many","members":{}},{"members":[1]}]})");
    CHECK_THAT(status_table(odd), Catch::Contains("0 (0-0)"));
    CHECK(status_table(object("{}")) == "dtrun serve , pid 0, up 0 s, 0 connections\nno jobs\n");
}

}  // namespace dtrun
