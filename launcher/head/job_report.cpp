#include "launcher/head/job_report.h"

#include "base/log.h"
#include "base/simulated.h"
#include "base/threads.h"
#include "launcher/history/job_entry.h"
#include "launcher/output/path_pattern.h"
#include "launcher/plan/exit_code.h"
#include "launcher/report/outcome.h"
#include "launcher/watch/json_line.h"

#include <dtrun_version.h>
#include <fmt/format.h>
#include <unistd.h>
#include <ctime>
#include <optional>
#include <utility>

namespace dtrun::head {
namespace {

namespace json = boost::json;

constexpr int kDocumentSchema = 1;  // docs/JOBS.md, "--report FILE"
constexpr std::chrono::milliseconds kRefusalLimit{2'000};
constexpr std::size_t kEventsMax = 10'000;  // of a job that runs for months

/// Ranks that have ended well, or were told to end, are no trouble; where they are, the view says.
bool is_worth_keeping(const watch::Event& event) {
    using enum watch::EventKind;
    if (event.kind != rank_exited)
        return event.kind == world_started || event.kind == restart || event.kind == host_failed ||
               event.kind == host_lost || event.kind == host_left;
    const json::value* const code = event.fields.if_contains("code");
    return event.fields.at("by_dtrun") == false && (code == nullptr || *code != 0);
}

}  // namespace

Result<JobReport> JobReport::open(const plan::Options& options, const std::string& job) {
    const output::PathFacts facts{job.substr(0, output::kJobDigits), std::time(nullptr)};
    auto file =
        report::ReportFile::open(output::expand_path_pattern(options.show.report, facts), job);
    if (!file) return fail(file.error(), "--report");
    JobReport report(options.history);
    report.file_ = std::make_shared<const report::ReportFile>(std::move(*file));
    return report;
}

void JobReport::happened(const watch::Event& event) {
    if (events_.size() >= kEventsMax || !is_worth_keeping(event)) return;
    json::object& kept = events_.emplace_back(json::object()).get_object();
    kept["time"] = watch::utc_time(event.time_ns);
    kept["event"] = name_of(event.kind);
    for (const auto& [name, value] : event.fields) kept[name] = value;
}

int JobReport::write(int status, json::object job, std::chrono::milliseconds limit) const {
    json::object document;
    document["schema"] = kDocumentSchema;
    document["version"] = DTRUN_VERSION;
    for (auto& each : job) document.insert(std::move(each));
    document["exit_code"] = status;
    document["events"] = events_;
    document["ended"] = watch::utc_time(since_1970().count());
    document["typed"] = history::to_json(history::TypedLine{history_.typed, history_.hidden});
    document["typed_in"] = history_.typed_in;
    document.erase("page");  // it is gone, and its key is nobody's business
    // A disk that does not answer keeps nobody waiting for ever: the thread is left behind there.
    const auto written = std::make_shared<Result<void>>();
    Thread thread([written, file = file_, text = watch::json_line(document) + "\n"] {
        *written = file->write(text);
    });
    const bool is_done = thread.join_until(after(limit));
    if (is_done && *written) return status;
    log::error("--report: {}", is_done ? written->error().message : "the disk does not answer");
    return status == 0 ? plan::kExitInternal : status;
}

void JobReport::refuse(int status, std::string_view why) const {
    json::object job;
    job["state"] = "ended";
    job["cause"] = name_of(report::JobOutcome::Cause::cannot_start);
    job["report"] = fmt::format("dtrun: {}\n", why);
    write(status, std::move(job), kRefusalLimit);
}

void report_refusal(const plan::Options& options, int status, std::string_view why) {
    if (options.show.report.empty() || options.plan != plan::PlanFormat::none) return;
    // It has no id.
    const auto report = JobReport::open(options, fmt::format("refused-{}", ::getpid()));
    if (!report) return log::error("{}", report.error().message);
    report->refuse(status, why);
}

}  // namespace dtrun::head
