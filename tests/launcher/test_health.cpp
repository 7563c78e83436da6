// What is wrong with a job, in sentences.
#include "launcher/watch/health.h"
#include "tests/launcher/made_up_job.h"
#include "tests/support/catch.h"

#include <boost/json/parse.hpp>

namespace dtrun::watch {
namespace {

using Catch::Contains;
namespace json = boost::json;

/// All sentences, the worst first.
std::string said(const json::object& view) {
    std::string text;
    for (const Finding& finding : examine(view).findings)
        text += (text.empty() ? "" : " | ") + finding.text;
    return text;
}

TEST_CASE("a job that runs well says how many ranks and how fast", "[watch]") {
    CHECK(said(a_job(4, 4)) == "16 ranks run well, 9.5 steps/s");
    json::object silent = a_job(1, 1);
    for (const char* const name : {"step", "steps_per_s"}) rank(silent, 0).erase(name);
    CHECK(said(silent) == "1 rank runs");
    json::object some = a_job(1, 4);
    rank(some, 1)["state"] = "ended_well";
    CHECK(said(some) == "3 ranks run well, 9.5 steps/s; 1 ended well");
}

TEST_CASE("a rank that is behind is named with its host, its steps and its pace", "[watch]") {
    json::object view = a_job(2, 4);
    for (std::size_t i = 0; i < 8; ++i) rank(view, i)["step"] = 812;
    rank(view, 5)["step"] = 789;
    rank(view, 5)["steps_per_s"] = 6.8;
    const Health health = examine(view);
    REQUIRE(health.findings.size() == 1);
    CHECK(health.findings[0].text == "rank 5 on s2 is 23 steps behind (6.8 against 9.5 steps/s)");
    CHECK(health.findings[0].severity == Severity::warning);
    CHECK(health.findings[0].rank == 5);
    CHECK(health.findings[0].host == "s2");
    CHECK(health.behind[5] == 23);
    CHECK(health.late == std::vector<bool>{false, false, false, false, false, true, false, false});
    CHECK(health.troubled == std::vector<bool>{false, true});
    rank(view, 5)["steps_per_s"] = 9.5;
    CHECK(said(view) == "rank 5 on s2 is 23 steps behind (9.5 steps/s, as others)");
}

TEST_CASE("who is behind by what hosts were asked apart is not late", "[watch]") {
    json::object view = a_job(1, 3);
    rank(view, 1)["step"] = 31;  // in a second a usual rank makes 9.5
    CHECK(said(view) == "3 ranks run well, 9.5 steps/s");
    for (std::size_t i = 0; i < 3; ++i) rank(view, i)["steps_per_s"] = 0.1;
    rank(view, 1)["step"] = 39;
    CHECK(said(view) == "3 ranks run well, 0.1 steps/s");
    rank(view, 1)["step"] = 38;
    CHECK(said(view) == "rank 1 on s1 is 2 steps behind (0.1 steps/s, as others)");
}

TEST_CASE("late ranks of one host are told together, and of many hosts counted", "[watch]") {
    json::object view = a_job(4, 4);
    for (const std::size_t i : {4u, 5u, 6u}) {
        rank(view, i)["step"] = 20 - static_cast<int>(i);
        rank(view, i)["steps_per_s"] = 5;
    }
    CHECK(said(view) == "ranks 4-6 on s2 are up to 26 steps behind (5.0 against 9.5 steps/s)");
    rank(view, 9)["step"] = 1;
    CHECK(said(view) ==
          "4 ranks are up to 39 steps behind, the last of them rank 9 on s3 "
          "(9.5 steps/s, as others)");
}

TEST_CASE("ranks that wait too long are a warning, while the job runs", "[watch][stall]") {
    json::object view = a_job(1, 2);
    view["stalls"] = json::parse(
        R"([{"ranks": "rank 0", "what": "\"a\"; rank 1 has not asked for it", "waited_s": 75}])");
    CHECK(said(view) == "waiting for 1 min 15 s: rank 0: \"a\"; rank 1 has not asked for it");
    CHECK(examine(view).findings.front().severity == Severity::warning);
    view["state"] = "ended";
    view["exit_code"] = 0;
    CHECK_THAT(said(view), Contains("ended well"));
}

TEST_CASE("a job in which no rank makes a step any more says since when, and who is not there",
          "[watch]") {
    json::object view = a_job(2, 2);
    for (std::size_t i = 0; i < 4; ++i) {
        rank(view, i)["step_age_s"] = 80.0 + static_cast<double>(i);
        rank(view, i)["steps_per_s"] = 0.0125;
    }
    CHECK(said(view) == "no rank has made a step for 1 min 20 s: all are at step 40");
    rank(view, 3)["step"] = 39;
    view["waiting"] = json::array{"rank 0 waits for key \"x\""};
    CHECK(said(view) ==
          "no rank has made a step for 1 min 20 s: rank 3 on s2 is at step 39, others "
          "at 40; rank 0 waits for key \"x\"");
    // A step of 10 s may take that long.
    for (std::size_t i = 0; i < 4; ++i) rank(view, i)["step_s"] = 10;
    rank(view, 3)["step"] = 40;
    CHECK_THAT(said(view), Contains("4 ranks run well"));
}

TEST_CASE("a failed rank comes first, with how it ended and what it said last", "[watch]") {
    json::object view = a_job(2, 2);
    rank(view, 3) =
        json::parse(R"({"rank": 3, "host": "s2", "state": "failed", "code": 1, "step": 12,
        "last_line": "ValueError: loss is NaN"})")
            .as_object();
    host(view, 0)["load"] = 11.0;
    const Health health = examine(view);
    CHECK(health.findings[0].text ==
          "rank 3 on s2 failed: exit code 1 at step 12 (ValueError: loss is NaN)");
    CHECK(health.findings[0].severity == Severity::failure);
    CHECK(health.findings[1].text == "load 11 of 2 on s1");
    rank(view, 2)["state"] = "failed";
    rank(view, 2)["signal"] = "SIGKILL";
    view["cause_rank"] = 3;
    CHECK_THAT(said(view), Contains("rank 3 on s2 failed: exit code 1 at step 12 (ValueError: loss "
                                    "is NaN); 1 rank failed as well"));
}

TEST_CASE("hosts that are lost, overloaded, full or used by others are told", "[watch]") {
    json::object view = a_job(3, 1);
    host(view, 1)["state"] = "lost";
    host(view, 1)["why"] = "last heard 3.5 s ago";
    CHECK(said(view) == "s2 is lost: last heard 3.5 s ago");
    host(view, 2)["state"] = "failed";
    host(view, 2)["why"] = "timed out";
    CHECK(said(view) == "s2 is lost: last heard 3.5 s ago; so 1 more");

    json::object busy = a_job(3, 1);
    host(busy, 0)["load"] = 11.2;
    host(busy, 2)["load"] = 3.4;
    CHECK(said(busy) == "load 11 of 2 on s1, and too high on 1 more host");
    host(busy, 1)["memory_bytes"] = 1 << 24;
    CHECK_THAT(said(busy), Contains("memory of s2 is full: 16M of 16M"));

    json::object shared = a_job(2, 1);
    host(shared, 0)["gpus"] =
        gpus(R"([{"index": 0, "strangers": 0}, {"index": 2, "strangers": 1}])");
    CHECK(said(shared) == "GPU 2 on s1: other users");
    host(shared, 1)["gpus"] = host(shared, 0)["gpus"];
    CHECK(said(shared) == "GPU 2 on s1 and GPU 2 on s2: other users");
}

TEST_CASE("a job that starts says which host it waits for, and a daemon's how many slots have come",
          "[watch]") {
    json::object view = a_job(3, 1);
    view["state"] = "starting";
    view["ranks"] = json::array();
    host(view, 1)["state"] = "connecting";
    host(view, 1)["doing"] = "copying the agent";
    CHECK(said(view) == "starting: 2 of 3 hosts are ready; s2: copying the agent");
    const json::object gathering =
        json::parse(
            R"({"state": "gathering", "slots": 2, "slots_needed": 4, "hosts": [], "ranks": []})")
            .as_object();
    CHECK(said(gathering) == "2 of 4 slots have come");
    CHECK(said(json::parse(R"({"state": "store"})").as_object()) ==
          "only a store: no rank is in it");
}

TEST_CASE("a job that has ended says how, when, and because of whom", "[watch]") {
    json::object view = a_job(2, 2);
    view["state"] = "ended";
    view["exit_code"] = 0;
    CHECK(said(view) == "ended well after 1 min 15 s");
    view["exit_code"] = 3;
    view["cause"] = "rank_failed";
    view["cause_rank"] = 1;
    rank(view, 1) =
        json::parse(R"({"rank": 1, "host": "s1", "state": "failed", "code": 3, "step": 40})")
            .as_object();
    CHECK(said(view) ==
          "ended with exit code 3 after 1 min 15 s: rank 1 on s1 failed: exit code 3 "
          "at step 40");
    view["exit_code"] = 205;
    view["cause"] = "host_lost";
    host(view, 1)["state"] = "lost";
    host(view, 1)["why"] = "no answer";
    CHECK(said(view) == "ended with exit code 205 after 1 min 15 s: s2 is lost: no answer");
    view["exit_code"] = 130;
    view["cause"] = "interrupted";
    CHECK(said(view) == "ended with exit code 130 after 1 min 15 s: interrupted");
    // Without hosts and ranks, as who waits for the end is told.
    CHECK(said(json::parse(R"({"state": "ended", "exit_code": 0, "ran_s": 2})").as_object()) ==
          "ended well after 2.00 s");
}

TEST_CASE("whatever a view lacks, it is examined", "[watch]") {
    for (const char* const text :
         {"{}", R"({"ranks": 7, "hosts": [1, {}]})", R"({"ranks": [{}, null, {"step": "x"}]})",
          R"({"state": "ended", "exit_code": 1})",
          R"({"state": "running", "ranks": [{"state": "failed"}]})"})
        CHECK_FALSE(examine(json::parse(text).as_object()).findings.empty());
}

}  // namespace
}  // namespace dtrun::watch
