#include "launcher/commands/store_command.h"

#include <catch2/catch.hpp>

namespace dtrun {

using namespace commands;

TEST_CASE("names of jobs and members cannot give orders to the terminal of `dtrun status`",
          "[store_command]") {
    const std::string shown = status_table(
        R"({"version":"1","pid":7,"uptime_s":3,"connections":1,"jobs":[{"name":"j\u001b[2J","phase":)"
        R"("running","generation":1,"ranks":2,"ranks_min":1,"ranks_max":2,"keys":0,"members":[)"
        R"({"host":"h1\ndtrun serve: forged","slots":2,"ranks":2,"connected":true}]}]})");
    CHECK(shown ==
          "dtrun serve 1, pid 7, up 3 s, 1 connection\n"
          "JOB                  PHASE        GEN         RANKS     KEYS       STEP\n"
          "j\\x1b[2J             running        1       2 (1-2)        0          -\n"
          "  h1\\x0adtrun serve: forged   2 slots   2 ranks\n");
}

TEST_CASE("a job is there once it has members or keys", "[store_command]") {
    CHECK_FALSE(has_job(R"({"jobs":[]})"));
    CHECK_FALSE(has_job(R"({"jobs":[{"name":"j","phase":"store","ranks":0,"keys":0}]})"));
    CHECK(has_job(R"({"jobs":[{"name":"j","phase":"store","ranks":0,"keys":1}]})"));
    CHECK(has_job(R"({"jobs":[{"name":"j","phase":"waiting","ranks":0,"keys":0}]})"));
}

}  // namespace dtrun
