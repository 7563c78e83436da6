#include "base/strings.h"
#include "lab/report/mllog.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

#include <boost/json.hpp>
#include <map>

using namespace dtrun;
using namespace dtrun::lab;
namespace json = boost::json;

namespace {

constexpr std::string_view kToken = ":::MLLOG ";

TrainRecord some_run() {
    TrainRecord run = with_epochs(train_record("int8", "gloo", 2, 2, 3), 7, {0.9, 0.955, 0.96});
    run.train_samples = 6'000;
    run.test_samples = 2'000;
    run.learning_rate = static_cast<double>(0.1f);
    return run;
}

/// Every line has what MLPerf's own logger writes.
std::vector<json::object> lines_of(const std::string& log) {
    std::vector<json::object> lines;
    for (const std::string_view line : split(log, '\n')) {
        if (line.empty()) continue;
        CAPTURE(line);
        REQUIRE(line.starts_with(kToken));
        const std::string_view text = line.substr(kToken.size());
        lines.push_back(json::parse({text.data(), text.size()}).as_object());
        const json::object& object = lines.back();
        for (const char* const key :
             {"namespace", "time_ms", "event_type", "key", "value", "metadata"})
            CHECK(object.contains(key));
        CHECK(object.at("time_ms").is_int64());
        CHECK(object.at("metadata").as_object().contains("file"));
        CHECK(object.at("metadata").as_object().contains("lineno"));
    }
    return lines;
}

std::string key_of(const json::object& line) {
    return std::string(line.at("key").as_string());
}

const json::object& only(const std::vector<json::object>& lines, std::string_view key) {
    const json::object* found = nullptr;
    for (const json::object& line : lines)
        if (key_of(line) == key) {
            CHECK(found == nullptr);
            found = &line;
        }
    INFO(key);
    REQUIRE(found != nullptr);
    return *found;
}

std::string status_of(const std::vector<json::object>& lines) {
    return std::string(only(lines, "run_stop").at("metadata").as_object().at("status").as_string());
}

}  // namespace

TEST_CASE("a training's log has what MLPerf's rules ask for", "[lab]") {
    const auto lines = lines_of(write_mllog(lab_report(), some_run()));
    for (const char* const key :
         {"submission_benchmark", "submission_org", "submission_division", "submission_platform",
          "cache_clear", "init_start", "init_stop", "run_start", "run_stop", "train_samples",
          "eval_samples", "opt_base_learning_rate"})
        only(lines, key);
    CHECK(only(lines, "seed").at("value").as_int64() == 7);
    CHECK(only(lines, "global_batch_size").at("value").as_int64() == 256);
    CHECK(only(lines, "eval_samples").at("value").as_int64() == 2'000);
    CHECK(only(lines, "opt_base_learning_rate").at("value").as_double() == 0.1);
    CHECK(only(lines, "run_start").at("event_type").as_string() == "INTERVAL_START");
    CHECK(only(lines, "run_start").at("time_ms").as_int64() == 1'700'000'000'500);
    CHECK(only(lines, "run_stop").at("time_ms").as_int64() == 1'700'000'006'600);
    CHECK(status_of(lines) == "success");
    std::map<std::string, int> counts;
    std::int64_t before = 0;
    for (const json::object& line : lines) {
        ++counts[key_of(line)];
        CHECK(line.at("time_ms").as_int64() >= before);
        before = line.at("time_ms").as_int64();
    }
    for (const char* const key :
         {"epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop"})
        CHECK(counts[key] == 3);
    for (const json::object& line : lines)
        if (key_of(line).starts_with("e") && key_of(line) != "eval_samples")
            CHECK(line.at("metadata").as_object().contains("epoch_num"));
}

TEST_CASE("a run's log ends where the target was reached", "[lab]") {
    LabReport report = lab_report();
    report.target_accuracy = 0.95;
    auto lines = lines_of(write_mllog(report, some_run()));
    CHECK(status_of(lines) == "success");
    CHECK(only(lines, "run_stop").at("time_ms").as_int64() == 1'700'000'004'600);
    CHECK(only(lines, "time_to_target_s").at("value").as_double() == 4.1);
    CHECK(std::ranges::count(lines, "eval_accuracy", key_of) == 2);
    report.target_accuracy = 0.99;
    lines = lines_of(write_mllog(report, some_run()));
    CHECK(status_of(lines) == "aborted");
    CHECK(only(lines, "time_to_target_s").at("value").is_null());
}

TEST_CASE("logs of several trainings have names of their own", "[lab]") {
    const TrainRecord run = some_run();
    CHECK(mllog_path("a/log.txt", run, false) == "a/log.txt");
    CHECK(mllog_path("a/log.txt", run, true) == "a/log-int8-gloo-2x2-seed7.txt");
    CHECK(mllog_path("log", run, true) == "log-int8-gloo-2x2-seed7");
    CHECK(mllog_path("-", run, true) == "-");
    TrainRecord weak = run;
    weak.scaling = "weak";
    CHECK(mllog_path("log", weak, true) == "log-int8-gloo-2x2-weak-seed7");
    TrainRecord serial = run;
    serial.algorithm = "serial";
    serial.backend = "none";
    CHECK(mllog_path("log", serial, true) == "log-serial-seed7");
    serial.backend = "nccl";
    CHECK(mllog_path("log", serial, true) == "log-serial-gpu-seed7");
}
