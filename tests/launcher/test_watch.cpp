// What is shown of jobs: events, tables, numbers, and what the page is given.
#include "launcher/cli/run.h"
#include "launcher/cli/show_rows.h"
#include "launcher/watch/daemon_page.h"
#include "launcher/watch/event.h"
#include "launcher/watch/http_server.h"
#include "launcher/watch/job_table.h"
#include "launcher/watch/json_line.h"
#include "launcher/watch/metrics_text.h"
#include "launcher/watch/rank_tails.h"
#include "launcher/watch/top_text.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

#include <algorithm>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <boost/json/parse.hpp>
#include <fstream>
#include <set>
#include <sstream>

namespace dtrun::watch {
namespace {

using Catch::Contains;

/// A job of two hosts, of which one has a GPU and the other is lost.
boost::json::object a_view() {
    return boost::json::parse(R"({"schema": 1, "job": "0123456789abcdef0123456789abcdef",
        "state": "running", "program": "python3 train.py", "dtrun_pid": 4242, "ran_s": 75.5, "restarts": 1,
        "generation": 2, "waiting": ["rank 2 waits for key \"x\""],
        "hosts": [{"host": "s1", "state": "joined", "processors": 8, "load": 3.25,
                   "memory_bytes": 1073741824, "memory_total_bytes": 8589934592,
                   "gpus": [{"index": 0, "name": "NVIDIA H100", "busy_percent": 97, "memory_bytes": 1048576,
                             "memory_total_bytes": 2097152, "strangers": 1, "ranks": [0, 1]}]},
                  {"host": "s2\u001b[2J", "state": "lost", "why": "last heard 3.5 s ago"}],
        "ranks": [{"rank": 0, "host": "s1", "state": "running", "pid": 100, "processors": 0.987, "cpu_s": 12.5,
                   "memory_bytes": 123456789, "step": 40, "steps_per_s": 2.5},
                  {"rank": 1, "host": "s1", "state": "running", "pid": 101, "processors": 1.5,
                   "memory_bytes": 900, "step": 31},
                  {"rank": 2, "host": "s2", "state": "failed", "pid": 102, "signal": "SIGKILL"},
                  {"rank": 3, "host": "s2", "state": "waiting"}]})")
        .as_object();
}

TEST_CASE("dtrun jobs shows a line for each job", "[watch]") {
    CHECK(jobs_table({a_view()}) ==
          "JOB             DTRUN STATE            RANKS HOSTS       RUNS FOR  PROGRAM\n"
          "0123456789ab     4242 running         2 of 4     2     1 min 15 s  python3 train.py\n");
    CHECK(jobs_table({}) == "no job of yours runs here\n");
}

TEST_CASE("dtrun top shows hosts, GPUs and ranks, and who is behind", "[watch]") {
    CHECK(top_text(a_view(), TopOrder::trouble, {}) ==
          R"(job 0123456789ab: running for 1 min 15 s, 2 of 4 ranks run on 2 hosts, 1 restart
program: python3 train.py
rank 2 on s2 failed: SIGKILL
s2\x1b[2J is lost: last heard 3.5 s ago
rank 1 on s1 is 9 steps behind
waiting: rank 2 waits for key "x"

  s1               joined     load   3.25 of 8    memory  1.0G of 8.0G
    GPU 0  NVIDIA H100           97% memory  1.0M of 2.0M  rank 0,1, 1 stranger
  s2\x1b[2J        lost       last heard 3.5 s ago

 RANK HOST             STATE          PID  CPU% MEMORY     STEP STEPS/S BEHIND
    2 s2               SIGKILL        102     -      -        -       -
    1 s1               running        101   150   900B       31       -      9
    0 s1               running        100    99   118M       40    2.50
    3 s2               waiting          -     -      -        -       -
)");
}

TEST_CASE("dtrun top fits a terminal, in the order that is asked for", "[watch]") {
    const std::string text =
        top_text(a_view(), TopOrder::processors, {.rows = 14, .columns = 80, .color = false});
    std::istringstream lines(text);
    std::string line;
    std::size_t count = 0;
    while (std::getline(lines, line)) {
        ++count;
        CHECK(line.size() <= 80);
    }
    CHECK(count == 14);
    CHECK(text.find("    1 s1") != std::string::npos);
    CHECK_THAT(text, Contains("and 3 more ranks"));
    const std::string by_step = top_text(a_view(), TopOrder::step, {});
    CHECK(by_step.find("\n    1 s1") < by_step.find("\n    0 s1"));
}

TEST_CASE("dtrun top shows who is behind in a narrow place, and in one with too few lines",
          "[watch]") {
    boost::json::object view = a_view();
    boost::json::array& ranks = view["ranks"].as_array();
    ranks.resize(2);
    for (int i = 2; i < 40; ++i) {
        ranks.push_back(ranks[0]);
        ranks.back().as_object()["rank"] = i;
    }
    view["hosts"].as_array().resize(1);
    ranks[37].as_object()["step"] = 12;
    const std::string text =
        top_text(view, TopOrder::trouble, {.rows = 16, .columns = 60, .color = false});
    CHECK_THAT(text, Contains("RANK HOST             STATE          STEP STEPS/S BEHIND\n"));
    CHECK_THAT(text, Contains("   37 s1               running          12    2.50     28\n"
                              "    1 s1               running          31       -      9\n"
                              "    0 s1               running          40    2.50\n"));
    CHECK_THAT(text, Contains("more ranks\n"));
    CHECK(std::ranges::count(text, '\n') == 16);
    const std::string by_rank =
        top_text(view, TopOrder::rank, {.rows = 16, .columns = 60, .color = false});
    CHECK_THAT(by_rank, Contains(" more ranks, 1 of them late or failed\n"));
    const std::string narrow =
        top_text(view, TopOrder::trouble, {.rows = 0, .columns = 12, .color = false});
    CHECK_THAT(narrow, Contains("RANK BEHIND\n   37     28\n"));
    // A sentence is not cut.
    CHECK_THAT(narrow, Contains("ranks 1, 37\non s1 are up\nto 28 steps\n"));
}

TEST_CASE(
    "dtrun top colours who is late or has failed, and what does not fit has no colour of its own",
    "[watch]") {
    const std::string text =
        top_text(a_view(), TopOrder::trouble, {.rows = 24, .columns = 80, .color = true});
    CHECK_THAT(text, Contains("\x1b[1;31m    2 s2"));
    CHECK_THAT(text, Contains("\x1b[33m    1 s1"));
    CHECK_THAT(text, Contains("\n    0 s1"));
    CHECK_THAT(text, Contains("    GPUs busy  97 %\n"));
    CHECK(text.find("[2J\x1b") == std::string::npos);
}

TEST_CASE("metrics are numbers with the job, host and rank, in Prometheus' format", "[watch]") {
    const std::string text = metrics_text(a_view());
    const std::string job = R"(job_id="0123456789abcdef0123456789abcdef")";
    CHECK_THAT(text, Contains("# TYPE dtrun_job_state gauge\n"));
    CHECK_THAT(text, Contains("dtrun_job_state{" + job + ",state=\"running\"} 1\n"));
    CHECK_THAT(text, Contains("dtrun_job_state{" + job + ",state=\"ended\"} 0\n"));
    CHECK_THAT(text, Contains("dtrun_hosts{" + job + ",state=\"lost\"} 1\n"));
    CHECK_THAT(text, Contains("dtrun_ranks{" + job + ",state=\"failed\"} 1\n"));
    CHECK_THAT(text, Contains("dtrun_findings{" + job + ",severity=\"failure\"} 2\n"));
    CHECK_THAT(text,
               Contains("dtrun_rank_cpu_seconds_total{" + job + ",rank=\"0\",host=\"s1\"} 12.5\n"));
    CHECK_THAT(text, Contains("dtrun_gpu_busy_ratio{" + job + ",host=\"s1\",gpu=\"0\"} 0.97\n"));
    CHECK(text.find("train.py") == std::string::npos);  // what runs is nobody's business
    // Each family has its help and type once, before its samples.
    std::istringstream lines(text);
    std::string line, family;
    std::set<std::string> seen;
    while (std::getline(lines, line)) {
        if (line.starts_with("# TYPE ")) {
            family = line.substr(7, line.find(' ', 7) - 7);
            CHECK(seen.insert(family).second);
        } else if (!line.starts_with("#")) {
            CHECK(line.starts_with(family + "{"));
        }
    }
}

TEST_CASE("a daemon's metrics are of itself and of each of its jobs", "[watch]") {
    const auto status = parse_object(R"({"uptime_s": 60, "connections": 3, "requests": 12,
        "unsent_bytes": 0, "operations": {"set": 9, "get": 3},
        "commits": {"count": 4, "sum_s": 0.75, "buckets": [[0.001, 1], [0.5, 3]]}, "jobs": [
        {"name": "a \"b\"", "keys": 2, "connections": 1, "store_bytes": 100, "generation": 0, "age_s": 60},
        {"name": "idle", "keys": 1, "connections": 0, "unused_s": 7, "age_s": 700000}]})");
    const std::string text = daemon_metrics_text(status.value());
    CHECK_THAT(text, Contains("# TYPE dtrun_serve_seconds_total counter\n"
                              "dtrun_serve_seconds_total 60\n"));
    CHECK_THAT(text, Contains("\ndtrun_serve_requests_total 12\n"));
    CHECK_THAT(text, Contains("\ndtrun_serve_job_keys{job=\"a \\\"b\\\"\"} 2\n"
                              "dtrun_serve_job_keys{job=\"idle\"} 1\n"));
    CHECK_THAT(text, Contains("\ndtrun_serve_job_unused_seconds{job=\"idle\"} 7\n"));
    CHECK(text.find("unused_seconds{job=\"a") == std::string::npos);
    CHECK_THAT(text, Contains("\ndtrun_serve_operations_total{operation=\"set\"} 9\n"));
    CHECK_THAT(text, Contains("# TYPE dtrun_serve_commit_seconds histogram\n"
                              "dtrun_serve_commit_seconds_bucket{le=\"0.001\"} 1\n"
                              "dtrun_serve_commit_seconds_bucket{le=\"0.5\"} 3\n"
                              "dtrun_serve_commit_seconds_bucket{le=\"+Inf\"} 4\n"
                              "dtrun_serve_commit_seconds_sum 0.75\n"
                              "dtrun_serve_commit_seconds_count 4\n"));
    CHECK(text.find("dtrun_serve_fsync_seconds") == std::string::npos);  // it has no disk
    CHECK_THAT(text, Contains("dtrun_serve_jobs{age=\"minute\"} 0\n"
                              "dtrun_serve_jobs{age=\"hour\"} 1\n"
                              "dtrun_serve_jobs{age=\"day\"} 0\n"
                              "dtrun_serve_jobs{age=\"week\"} 0\n"
                              "dtrun_serve_jobs{age=\"older\"} 1\n"));
}

TEST_CASE("an event is one line of JSON with a schema, a time and a number", "[watch]") {
    Event event{EventKind::host_lost, 7, 1'764'093'605'123'456'789, {}};
    event.fields["host"] = "s1";
    event.fields["why"] = std::string("line\nwith \xff");
    CHECK(to_json(event, "abc") ==
          "{\"schema\":1,\"time\":\"2025-11-25T18:00:05.123456Z\",\"job\":\"abc\",\"number\":7,"
          "\"event\":\"host_lost\",\"host\":\"s1\",\"why\":\"line\\nwith \xef\xbf\xbd\"}");
    CHECK_FALSE(event_kind("host"));
}

TEST_CASE("each event has the name that docs/EVENTS.md has, and no other does", "[watch]") {
    std::ifstream file(DTRUN_EVENTS_MD);
    std::vector<std::string> documented;
    bool in_table = false;
    for (std::string line; std::getline(file, line);) {
        if (in_table && line.starts_with("| `"))
            documented.push_back(line.substr(3, line.find('`', 3) - 3));
        in_table = line.starts_with("| event |") || (in_table && line.starts_with("|"));
    }
    CHECK(event_names() == documented);
#define DTRUN_EVENT(name)                        \
    CHECK(event_kind(#name) == EventKind::name); \
    CHECK(name_of(EventKind::name) == #name);
#include "launcher/watch/events.def"
}

TEST_CASE("JSON has numbers as people write them", "[watch]") {
    const auto value =
        boost::json::parse(R"({"a": 3.25, "b": [], "c": {}, "d": [1, null, true], "e": -7})");
    CHECK(json_line(value) == R"({"a":3.25,"b":[],"c":{},"d":[1,null,true],"e":-7})");
}

TEST_CASE("the last lines of a rank are kept, however much it prints", "[watch]") {
    constexpr std::size_t kBytes = 4096;
    RankTails tails(kBytes);
    const plan::SlotId rank{3};
    CHECK(tails.of(rank).empty());
    for (int i = 0; i < 10'000; ++i) tails.add(rank, fmt::format("line {}\n", i));
    CHECK(tails.of(rank).size() <= 2 * kBytes);
    CHECK(tails.of(rank).ends_with("line 9998\nline 9999\n"));
    CHECK(tails.of(rank).starts_with("line "));
    tails.add(rank, std::string(1 << 20, 'x'));
    CHECK(tails.of(rank).size() <= 2 * kBytes);
}

TEST_CASE("a daemon's status is shown as jobs", "[watch]") {
    const auto view =
        daemon_view(R"({"jobs": [{"name": "train", "phase": "running", "generation": 2,
        "waiting": 1, "slowest_rank": 1, "slowest_step": 5, "fastest_step": 9,
        "members": [{"host": "s1", "connected": true, "rank_list": [0, 1]},
                    {"host": "s2", "connected": false, "rank_list": [2]}]},
        {"name": "other", "phase": "store", "generation": 0, "waiting": 0},
        {"name": "third", "phase": "gathering", "generation": 0, "waiting": 0, "ranks_min": 1,
         "slots_ready": 2, "slots_needed": 4,
         "members": [{"host": "s1", "connected": true, "slots": 2, "rank_list": []}]},
        {"name": "twice", "phase": "running", "generation": 1, "waiting": 0,
         "members": [{"host": "s1", "connected": false, "rank_list": [0]},
                     {"host": "s1", "connected": true, "rank_list": [1, 2]}]}]})");
    const auto& jobs = view.at("jobs").as_array();
    REQUIRE(jobs.size() == 4);
    CHECK(json_line(jobs[3].at("hosts")) ==
          R"([{"host":"s1","state":"joined","ranks":[0,1,2],"states":"xrr"}])");
    CHECK(jobs[0].at("state") == "running");
    CHECK(jobs[0].at("hosts").at(0).at("states") == "rl");  // rank 1 is 4 steps behind
    CHECK(jobs[0].at("hosts").at(1).at("states") == "x");
    CHECK(jobs[0].at("findings").at(1).at("text") == "rank 1 on s1 is 4 steps behind");
    CHECK(jobs[1].at("hosts").as_array().empty());
    CHECK(jobs[1].at("state") == "store");
    CHECK(jobs[2].at("findings").at(0).at("text") == "2 of 4 slots have come");
    CHECK(jobs[2].at("hosts").at(0).at("states") == "ww");
}

TEST_CASE("the key of a daemon's page follows from its secret alone", "[watch]") {
    const Secret secret = Secret::random();
    CHECK(page_key(secret) == page_key(Secret(secret)));
    CHECK(page_key(secret) != page_key(Secret::random()));
    CHECK(page_key(secret).size() == 32);
}

TEST_CASE("a request's query is found by name", "[watch]") {
    const HttpRequest request{.path = "/api/view", .query = "page=1&after=22", .key = ""};
    CHECK(request.value("after") == "22");
    CHECK(request.value("page") == "1");
    CHECK(request.value("aft").empty());
}

TEST_CASE("who asks this machine's loopback by another name is not answered", "[watch]") {
    for (const char* const name : {"127.0.0.1", "127.0.0.1:80", "127.0.1.1", "localhost",
                                   "localhost:9", "[::1]", "[::1]:80", ""})
        CHECK(is_loopback_name(name));
    for (const char* const name : {"evil.example", "evil.example:80", "10.0.0.1",
                                   "localhost.evil.example", "[::2]:80", "127.0.0.1.evil.example"})
        CHECK_FALSE(is_loopback_name(name));
}

TEST_CASE(
    "connections that say nothing close a page to nobody, nor do strangers to who has the key",
    "[watch]") {
    asio::io_context io;
    const auto answer = [](HttpRequest request) -> asio::awaitable<HttpReply> {
        HttpReply reply;
        reply.is_trusted = request.key == "key";
        co_return reply;
    };
    auto server = HttpServer::open(io.get_executor(), "127.0.0.1", 0, answer);
    REQUIRE(server.has_value());
    const std::string place = (*server)->place();
    const tcp::endpoint there(
        asio::ip::address_v4::loopback(),
        static_cast<std::uint16_t>(std::stoi(place.substr(place.find(':') + 1))));
    const auto ask = [&io, there](tcp::socket& socket, std::string_view key) {
        if (!socket.is_open()) socket.connect(there);
        const std::string text = fmt::format(
            "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", key);
        asio::write(socket, asio::buffer(text));
        std::string head;
        const auto read = [](tcp::socket& from, std::string& into) -> asio::awaitable<bool> {
            const auto [error, bytes] = co_await asio::async_read_until(
                from, asio::dynamic_buffer(into), "\r\n\r\n", use_tuple);
            co_return !error && into.starts_with("HTTP/1.1 200 ");
        };
        return run_to_end(io, read(socket, head));
    };
    tcp::socket reader(io);
    REQUIRE(ask(reader, "key"));
    std::vector<tcp::socket> silent;
    for (int i = 0; i < 200; ++i) {
        silent.emplace_back(io).connect(there);
        io.restart();
        io.poll();
    }
    tcp::socket scraper(io);
    CHECK(ask(scraper, "none"));
    CHECK(ask(reader, "key"));
    io.restart();
    asio::co_spawn(io, (*server)->join(), [&io](std::exception_ptr) { io.stop(); });
    io.run();
}

TEST_CASE("where a page listens is on the loopback unless an address is given", "[watch][cli]") {
    using cli::parse_listen_address;
    CHECK(*parse_listen_address("") == plan::ListenAddress{"127.0.0.1", 0});
    CHECK(*parse_listen_address("8080") == plan::ListenAddress{"127.0.0.1", 8080});
    CHECK(*parse_listen_address("0.0.0.0:8080") == plan::ListenAddress{"0.0.0.0", 8080});
    CHECK(*parse_listen_address("[::1]:80") == plan::ListenAddress{"::1", 80});
    CHECK(*parse_listen_address("localhost:1") == plan::ListenAddress{"127.0.0.1", 1});
    for (const char* const wrong : {"70000", "somewhere:80", "127.0.0.1:x", ":80"})
        CHECK_FALSE(parse_listen_address(wrong));
}

TEST_CASE("--on-event names events before a colon, or means those that people want",
          "[watch][cli]") {
    const auto commands_of = [](const std::string& value) {
        return cli::parse_run(std::vector<std::string>{"--on-event", value, "true"}, {});
    };
    const auto some = commands_of("job_ended,restart:mail me");
    REQUIRE(some);
    CHECK(some->options.show.commands[0].events ==
          std::vector<std::string>{"job_ended", "restart"});
    CHECK(some->options.show.commands[0].line == "mail me");
    const auto all = commands_of("curl -d @- http://example.org/");
    REQUIRE(all);
    CHECK(all->options.show.commands[0].line == "curl -d @- http://example.org/");
    CHECK(all->options.show.commands[0].events.size() == 5);
    CHECK_THAT(commands_of("job_end:true").error().message, Contains("did you mean job_ended"));
    CHECK_FALSE(commands_of(" "));
}

}  // namespace
}  // namespace dtrun::watch
