#include "lab/report/mllog.h"

#include "base/json_writer.h"
#include "lab/report/training.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>

namespace dtrun::lab {
namespace {

using std::string_view;

constexpr string_view kStart = "INTERVAL_START";
constexpr string_view kEnd = "INTERVAL_END";
constexpr string_view kPoint = "POINT_IN_TIME";

/// The lines of one run.
class Log {
public:
    /// \param value  JSON
    void add(std::uint64_t unix_ms, string_view kind, string_view key, std::string_view value,
             JsonWriter metadata = JsonWriter()) {
        // MLPerf's own logger tells here which line of a program has called it.
        metadata.add("file", "dtrun bench").add("lineno", ++lines_);
        JsonWriter line(17);
        line.add("namespace", "").add("time_ms", unix_ms).add("event_type", kind);
        line.add("key", key).raw("value", value).raw("metadata", metadata.text());
        text_ += ":::MLLOG " + line.text() + "\n";
    }
    void point(std::uint64_t unix_ms, string_view key, string_view value) {
        add(unix_ms, kPoint, key, value);
    }
    void text(std::uint64_t unix_ms, string_view key, string_view value) {
        point(unix_ms, key, json_text(value));
    }

    const std::string& text() const { return text_; }

private:
    std::string text_;
    int lines_ = 0;
};

std::string number(double value) {
    return std::isfinite(value) ? fmt::format("{:.7g}", value) : "null";
}

std::string whole(double value) {
    return std::isfinite(value) ? fmt::format("{:.0f}", value) : "null";
}

JsonWriter of_epoch(int epoch) {
    JsonWriter metadata;
    metadata.add("epoch_num", epoch);
    return metadata;
}

void add_submission(Log& log, const LabReport& report, const TrainRecord& run) {
    const std::uint64_t begin = run.init_unix_ms;
    log.text(begin, "submission_benchmark", "dtrun_digits");
    log.text(begin, "submission_org", "dtrun");
    log.text(begin, "submission_division", "open");
    log.text(begin, "submission_status", "research");
    log.text(begin, "submission_platform",
             fmt::format("{} x {}", run.hosts,
                         report.hosts.empty() || report.hosts.front().cpu.empty()
                             ? "unknown"
                             : report.hosts.front().cpu));
    log.point(begin, "cache_clear", "true");
}

void add_settings(Log& log, const TrainRecord& run) {
    const std::uint64_t at = run.init_unix_ms;
    log.point(at, "seed", std::to_string(run.seed));
    log.point(at, "global_batch_size", std::to_string(run.global_batch));
    log.point(at, "gradient_accumulation_steps", "1");
    log.point(at, "train_samples", whole(run.train_samples));
    log.point(at, "eval_samples", whole(run.test_samples));
    log.text(at, "opt_name", "sgd");
    log.point(at, "opt_base_learning_rate", number(run.learning_rate));
    log.text(at, "dtrun_algorithm", run.algorithm);
    log.text(at, "dtrun_backend", run.is_serial() && !run.is_on_gpu() ? "none" : run.backend);
    log.text(at, "dtrun_scaling", run.scaling);
    log.point(at, "dtrun_hosts", std::to_string(run.hosts));
    log.point(at, "dtrun_ranks", std::to_string(run.ranks));
}

void add_epoch(Log& log, const EpochRecord& epoch, std::uint64_t begin) {
    const JsonWriter which = of_epoch(epoch.epoch);
    log.add(begin, kStart, "epoch_start", "null", which);
    log.add(epoch.ended_unix_ms, kEnd, "epoch_stop", "null", which);
    log.add(epoch.ended_unix_ms, kStart, "eval_start", "null", which);
    log.add(epoch.tested_unix_ms, kPoint, "eval_accuracy", number(epoch.accuracy), which);
    log.add(epoch.tested_unix_ms, kEnd, "eval_stop", "null", which);
}

}  // namespace

std::string write_mllog(const LabReport& report, const TrainRecord& run) {
    Log log;
    add_submission(log, report, run);
    log.add(run.init_unix_ms, kStart, "init_start", "null");
    add_settings(log, run);
    log.add(run.start_unix_ms, kEnd, "init_stop", "null");
    log.add(run.start_unix_ms, kStart, "run_start", "null");
    const double target = report.target_accuracy;
    bool reached = !std::isfinite(target);
    std::uint64_t now = run.start_unix_ms;
    for (const EpochRecord& epoch : run.by_epoch) {
        add_epoch(log, epoch, now);
        now = epoch.tested_unix_ms;
        if (!std::isfinite(target) || !(epoch.accuracy >= target)) continue;
        reached = true;  // which ends the run, whatever has been trained behind it
        break;
    }
    JsonWriter status;
    status.add("status", reached ? "success" : "aborted");
    log.add(now, kEnd, "run_stop", "null", status);
    if (std::isfinite(target)) {
        log.point(now, "target_accuracy", number(target));
        log.point(now, "time_to_target_s",
                  reached ? number(static_cast<double>(now - run.start_unix_ms) / 1e3) : "null");
    }
    return log.text();
}

std::string mllog_path(const std::string& file, const TrainRecord& run, bool several) {
    if (!several || file == "-") return file;
    const std::filesystem::path path(file);
    std::string name = path.stem().string() + "-" + run.algorithm;
    if (!run.is_serial())
        name += fmt::format("-{}-{}x{}", run.backend, run.hosts, run.slots_per_host);
    else if (run.is_on_gpu())
        name += "-gpu";
    if (run.scaling != "strong") name += "-" + run.scaling;
    name += fmt::format("-seed{}", run.seed);
    return (path.parent_path() / (name + path.extension().string())).string();
}

}  // namespace dtrun::lab
