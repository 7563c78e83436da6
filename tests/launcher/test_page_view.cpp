// What the page of a job is given: events in lines, curves, and a map of hosts.
#include "launcher/watch/curves.h"
#include "launcher/watch/event_lines.h"
#include "launcher/watch/health.h"
#include "launcher/watch/json_line.h"
#include "launcher/watch/page_view.h"
#include "tests/launcher/made_up_job.h"
#include "tests/support/catch.h"

#include <boost/json/parse.hpp>
#include <chrono>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

Event event_of(EventKind kind, std::int64_t time_s, std::string_view fields) {
    static std::uint64_t number = 0;
    return {kind, ++number, time_s * 1'000'000'000,
            json::parse({fields.data(), fields.size()}).as_object()};
}

std::vector<std::string> texts(const EventLines& lines) {
    std::vector<std::string> list;
    for (const json::value& line : lines.to_json()) list.emplace_back(line.at("text").as_string());
    return list;
}

TEST_CASE("what happens to many is one event of the page", "[watch]") {
    using enum EventKind;
    EventLines lines;
    lines.add(event_of(job_started, 0, R"({"ranks": 128, "hosts": 16})"));
    for (int i = 0; i < 16; ++i)
        lines.add(event_of(host_joined, 1, fmt::format(R"({{"host": "s{}"}})", i)));
    lines.add(event_of(world_started, 2, R"({"generation": 1, "ranks": 128})"));
    for (int i = 0; i < 128; ++i)
        lines.add(event_of(rank_started, 2, fmt::format(R"({{"rank": {}, "host": "s1"}})", i)));
    const auto exited = [](int rank, std::string_view rest) {
        return event_of(rank_exited, 9,
                        fmt::format(R"({{"rank": {}, "host": "s1", {}}})", rank, rest));
    };
    lines.add(exited(3, R"("code": 1, "by_dtrun": false)"));
    for (const int rank : {4, 6, 5})
        lines.add(exited(rank, R"("signal": "SIGSEGV", "by_dtrun": false)"));
    for (int i = 7; i < 128; ++i) lines.add(exited(i, R"("signal": "SIGTERM", "by_dtrun": true)"));
    lines.add(event_of(restart, 10, R"({"rank": 3, "host": "s1", "code": 1, "restarts": 1})"));
    lines.add(event_of(rank_started, 11, R"({"rank": 3, "host": "s1"})"));
    lines.add(event_of(host_lost, 12, R"({"host": "s2", "why": "no answer"})"));
    lines.add(event_of(stalled, 12, R"({"ranks": "rank 0", "what": "\"a\"", "waited_s": 60})"));
    lines.add(event_of(stall_ended, 12, R"({"ranks": "rank 0", "what": "\"a\"", "waited_s": 70})"));
    lines.add(event_of(job_ending, 13, R"({"cause": "host_lost"})"));
    lines.add(event_of(job_ended, 13, R"({"exit_code": 205})"));
    CHECK(texts(lines) == std::vector<std::string>{
                              "the job starts: 128 ranks on 16 hosts", "16 hosts have joined",
                              "generation 1 begins with 128 ranks", "128 ranks started",
                              "rank 3 on s1 failed: exit code 1", "ranks 4-6 failed: SIGSEGV",
                              "121 ranks ended by dtrun",
                              "restart 1: rank 3 on s1 failed: exit code 1", "rank 3 on s1 started",
                              "s2 is lost: no answer", "waiting for 60 s: rank 0: \"a\"",
                              "no longer waiting, after 70 s: rank 0: \"a\"",
                              "the job ends: host lost", "the job ended with exit code 205"});
    CHECK(lines.to_json().at(4).at("severity") == "failure");
    for (int i = 0; i < 1000; ++i)
        lines.add(event_of(world_started, 20 + i, R"({"generation": 2, "ranks": 1})"));
    CHECK(lines.to_json().size() == 200);
}

TEST_CASE("hosts that are lost together are all named", "[watch]") {
    EventLines lines;
    for (int i = 1; i <= 1'000; ++i)
        lines.add(event_of(EventKind::host_lost, 1,
                           fmt::format(R"({{"host": "n{:04}", "why": "no answer"}})", i)));
    CHECK(texts(lines) ==
          std::vector<std::string>{"1000 hosts (n[0001-1000]) are lost: no answer"});
}

Sample sample_at(std::int64_t time_s, float pace) {
    Sample sample{.time_s = time_s};
    sample.spreads[0] = Spread{pace - 1, pace, pace + 1};
    return sample;
}

TEST_CASE("curves of a day are bounded, and coarser as they get older", "[watch]") {
    Curves curves;
    constexpr std::int64_t kBegin = 1'764'000'000, kDay = 86'400;
    for (std::int64_t t = 0; t < kDay; t += 2)
        curves.add(sample_at(kBegin + t, t < kDay / 2 ? 5.0f : 10.0f));
    CHECK(curves.points() <= 720);
    const json::array rows = curves.since(0);
    CHECK(rows.size() <= 720);
    CHECK(json_line(rows).size() < 60'000);
    const auto time = [&rows](std::size_t i) { return rows.at(i).at(0).to_number<std::int64_t>(); };
    CHECK(time(0) <= kBegin + 480);
    CHECK(time(1) - time(0) == 480);
    CHECK(time(rows.size() - 1) - time(rows.size() - 2) == 5);
    for (std::size_t i = 1; i < rows.size(); ++i) CHECK(time(i) > time(i - 1));
    CHECK(rows.front().at(2).to_number<double>() == 5);
    CHECK(rows.back().at(1).to_number<double>() == 9);
    CHECK(rows.back().at(4).is_null());  // there is no GPU
    // What is asked for is only what is new.
    CHECK(curves.since(kBegin + kDay - 10).size() == 2);
}

TEST_CASE("a point of a curve has the extremes and the mean of its time", "[watch]") {
    Curves curves;
    curves.add(sample_at(100, 4));
    curves.add(sample_at(102, 8));
    const json::array rows = curves.since(0);
    REQUIRE(rows.size() == 1);
    CHECK(json_line(rows[0]) ==
          "[100,3,6,9,null,null,null,null,null,null,null,null,null,null,null,null]");
}

TEST_CASE("a sample has what ranks, GPUs and hosts tell", "[watch]") {
    json::object view = a_job(2, 2);
    rank(view, 0)["steps_per_s"] = 1.0;
    host(view, 0)["gpus"] = gpus(
        R"([{"busy_percent": 40, "memory_bytes": 1, "memory_total_bytes": 4}, {"busy_percent": 90}])");
    const Sample sample = sample_of(view, 7);
    const auto of = [&sample](Curve curve) { return *sample.spreads[std::to_underlying(curve)]; };
    CHECK(of(Curve::pace).low == 1);
    CHECK(of(Curve::pace).middle == 9.5f);
    CHECK(of(Curve::gpu).low == 40);
    CHECK(of(Curve::gpu).high == 90);
    CHECK(of(Curve::gpu_memory).middle == 25);
    CHECK(of(Curve::load).middle == 75);
    CHECK(sample_of(json::object(), 7).spreads[0] == std::nullopt);
}

TEST_CASE("the page gets ranks and GPUs of a host as columns", "[watch]") {
    json::object view = a_job(2, 2);
    rank(view, 3)["step"] = 10;
    rank(view, 3)["processors"] = 0.987;
    rank(view, 3)["steps_per_s"] = 6.8;
    rank(view, 0)["state"] = "ended_well";
    host(view, 1)["gpus"] = gpus(
        R"([{"index": 0, "busy_percent": 40, "memory_bytes": 1, "memory_total_bytes": 4, "strangers": 2}])");
    const json::object page = page_view(view, examine(view));
    CHECK(page.at("step") == 40);
    CHECK(
        json_line(page.at("hosts").at(0)) ==
        R"({"host":"s1","state":"joined","load":1.5,"processors":2,"memory":6,"ranks":[0,1],"states":"er",)"
        R"("pace":[9.5,9.5]})");
    CHECK(
        json_line(page.at("hosts").at(1)) ==
        R"({"host":"s2","state":"joined","troubled":true,"load":1.5,"processors":2,"memory":6,"gpu":[40],)"
        R"("gpu_memory":[25],"others":[2],"ranks":[2,3],"states":"rl","behind":[0,30],"cpu":[null,99],)"
        R"("pace":[9.5,6.8]})");
}

TEST_CASE("a thousand hosts of eight ranks and GPUs are small and quick for the page", "[watch]") {
    json::object view = a_job(1000, 8);
    std::string text = "[";
    for (int i = 0; i < 8; ++i)
        text += fmt::format(R"({}{{"index": {}, "name": "NVIDIA H100 80GB HBM3", "busy_percent": 97,
            "memory_bytes": 1, "memory_total_bytes": 4, "strangers": 0, "ranks": [{}]}})",
                            i == 0 ? "" : ",", i, i);
    for (std::size_t i = 0; i < 1000; ++i) host(view, i)["gpus"] = gpus(text + "]");
    const auto begin = std::chrono::steady_clock::now();
    const std::string page = json_line(page_view(view, examine(view)));
    const auto took = std::chrono::steady_clock::now() - begin;
    INFO(page.size() << " bytes, of " << json_line(view).size() << ", in "
                     << std::chrono::duration_cast<std::chrono::milliseconds>(took).count()
                     << " ms");
    CHECK(page.size() < 300'000);
    CHECK(took < std::chrono::seconds(2));  // some 10 ms where nothing is checked
}

}  // namespace
}  // namespace dtrun::watch
