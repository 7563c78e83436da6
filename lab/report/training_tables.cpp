#include "lab/report/training_tables.h"

#include "collectives/codec/format_table.h"
#include "lab/names.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

namespace dtrun::lab {
namespace {

using std::string_view;
using Cells = std::vector<std::string>;

bool has_gpus(const LabReport& report) {
    return std::ranges::any_of(report.hosts,
                               [](const HostRecord& host) { return !host.gpus.empty(); });
}

/// The order of algorithms in tables: serial, uncompressed, 8 bits, 16 bits.
int order_of(string_view algorithm) {
    if (algorithm == "serial") return 0;
    if (algorithm == "parallel") return 1;
    const auto known = parse_algorithm(algorithm);
    if (!known) return 2;  // of another version of dtrun
    const collectives::FormatRow& row = collectives::row_of(*known->format);
    const auto place = static_cast<int>(&row - collectives::kFormats);
    constexpr auto kCount = static_cast<int>(std::size(collectives::kFormats));
    return 3 + place + (row.bits == 16 ? kCount : 0);
}

/// The name of an algorithm in tables.
std::string algorithm_text(const TrainRecord& run) {
    std::string text = run.algorithm == "parallel" ? "parallel, f32" : run.algorithm;
    return run.scaling == "weak" ? text + ", weak" : text;
}

std::string devices_text(const TrainRecord& run) {
    return run.hosts == 1 ? std::to_string(run.ranks)
                          : fmt::format("{} ({} x {})", run.ranks, run.hosts, run.slots_per_host);
}

std::string backend_text(const TrainRecord& run) {
    return run.is_serial() && !run.is_on_gpu() ? "none" : run.backend;
}

std::string training_note(const LabReport& report, const std::string& batch) {
    if (report.train.empty()) return "";
    const TrainRecord& first = report.train.front();
    std::string note = first.model;
    if (first.global_batch > 0) note += ", " + batch;
    if (first.epochs > 0)
        note += fmt::format(", {} epoch{}", first.epochs, first.epochs == 1 ? "" : "s");
    if (!first.data.empty()) note += ", " + first.data;
    if (first.loss_scale != 1) note += fmt::format(", loss scale {:g}", first.loss_scale);
    return note + ".";
}

std::string batch_of_all(const LabReport& report) {
    if (report.train.empty()) return "";
    return fmt::format("{} samples in a step of all ranks", report.train.front().global_batch);
}

/// In samples, or of a program that does not tell how many a step has, in steps.
std::string throughput_text(const TrainRecord& run) {
    if (!std::isfinite(run.samples_per_s)) return short_number(1e3 / run.step_ms) + " steps/s";
    return short_number(run.samples_per_s) + " samples/s";
}

std::string step_text(const TrainRecord& run) {
    return std::isfinite(run.step_ms) ? short_number(run.step_ms) + " ms" : "-";
}

/// What is said of the seeds, if there are several.
std::string seeds_note(const std::vector<TrainGroup>& groups) {
    const std::size_t seeds = seeds_of(groups);
    if (seeds < 2) return "";
    return fmt::format(" {} seeds: the mean, and the 95 % interval of it.", seeds);
}

/// Runs in the order of a table: serial, then by backend as they were run, hosts and slots.
std::vector<ScalingPoint> sorted_points(const LabReport& report, string_view scaling) {
    std::vector<ScalingPoint> points = scaling_of(report, "parallel", scaling);
    Cells backends;
    for (const ScalingPoint& point : points)
        if (std::ranges::find(backends, point.run.backend) == backends.end())
            backends.push_back(point.run.backend);
    std::ranges::stable_sort(points, {}, [&backends](const ScalingPoint& point) {
        const auto backend = std::ranges::find(backends, point.run.backend) - backends.begin();
        return std::tuple(!point.run.is_serial(), backend, point.run.hosts,
                          point.run.slots_per_host);
    });
    return points;
}

std::vector<TrainGroup> sorted_groups(const LabReport& report) {
    std::vector<TrainGroup> groups = train_groups(report);
    std::ranges::stable_sort(groups, {}, [](const TrainGroup& group) {
        const TrainRecord& run = group.run;
        return std::tuple(run.scaling, order_of(run.algorithm), run.ranks, run.hosts);
    });
    return groups;
}

/// How a group came to the target accuracy.
struct Reached {
    Estimate seconds;
    Estimate epochs;
};

Reached reached_by(const TrainGroup& group, double accuracy) {
    std::vector<double> seconds;
    std::vector<double> epochs;
    for (const TrainRecord* const run : group.seeds) {
        seconds.push_back(seconds_to(*run, accuracy));
        const auto epoch = std::ranges::find(run->by_epoch, seconds.back(), &EpochRecord::seconds);
        epochs.push_back(epoch == run->by_epoch.end() ? kUnknown : epoch->epoch);
    }
    return {estimate_of(seconds), estimate_of(epochs)};
}

std::string seconds_text(const Estimate& seconds) {
    if (!std::isfinite(seconds.interval)) return short_time(seconds.mean);
    return fmt::format("{} ± {} s", short_number(seconds.mean, 3),
                       short_number(seconds.interval, 2));
}

}  // namespace

std::string accuracy_text(const TrainGroup& group, std::size_t seeds) {
    const Estimate& accuracy = group.accuracy;
    std::string text = percent(accuracy.mean);
    if (std::isfinite(accuracy.interval))
        text = fmt::format("{:.2f} ± {:.2f} %", accuracy.mean * 100, accuracy.interval * 100);
    if (accuracy.count < seeds) text += fmt::format(" ({} seeds)", accuracy.count);
    return text;
}

Table scaling_table(const LabReport& report) {
    Table table;
    table.title = "Scaling";
    table.note = training_note(report, batch_of_all(report)) +
                 " Times of a step are medians, without the first steps.";
    table.columns = {{"backend", false},
                     {"hosts", true},
                     {has_gpus(report) ? "ranks (GPUs) per host" : "ranks per host", true},
                     {"time per step", true},
                     {"throughput", true},
                     {"speed-up", true},
                     {"efficiency", true},
                     {"communication", true}};
    for (const ScalingPoint& point : sorted_points(report, "strong")) {
        const TrainRecord& run = point.run;
        table.rows.push_back(
            {run.is_serial() ? serial_name(run) : run.backend, std::to_string(run.hosts),
             std::to_string(run.slots_per_host), step_text(run), throughput_text(run),
             std::isfinite(point.speedup) ? fmt::format("{:.2f}", point.speedup) : "-",
             percent(point.efficiency, 0), percent(run.comm_ms / run.step_ms, 0)});
    }
    return table;
}

Table weak_scaling_table(const LabReport& report) {
    Table table;
    table.title = "Weak scaling";
    if (!has_scaling(report, "weak")) return table;
    const std::vector<ScalingPoint> points = sorted_points(report, "weak");
    table.note = training_note(report, fmt::format("{} samples in a step of each rank",
                                                   batch_of_rank(points.back().run))) +
                 " Each rank has as many samples as one alone; efficiency is throughput(p) / (p x "
                 "throughput(1)).";
    table.columns = {{"backend", false},
                     {"hosts", true},
                     {has_gpus(report) ? "ranks (GPUs) per host" : "ranks per host", true},
                     {"batch", true},
                     {"time per step", true},
                     {"throughput", true},
                     {"efficiency", true},
                     {"communication", true}};
    for (const ScalingPoint& point : points) {
        const TrainRecord& run = point.run;
        table.rows.push_back({run.is_serial() ? serial_name(run) : run.backend,
                              std::to_string(run.hosts), std::to_string(run.slots_per_host),
                              run.global_batch > 0 ? std::to_string(run.global_batch) : "-",
                              step_text(run), throughput_text(run), percent(point.efficiency, 0),
                              percent(run.comm_ms / run.step_ms, 0)});
    }
    return table;
}

Table compression_table(const LabReport& report) {
    Table table;
    const bool learns = std::ranges::any_of(
        report.train, [](const TrainRecord& run) { return std::isfinite(run.accuracy); });
    if (!learns) return table;  // programs that tell of nothing but their steps
    table.title = "Compression";
    const std::vector<TrainGroup> groups = sorted_groups(report);
    table.note = training_note(report, batch_of_all(report)) + seeds_note(groups);
    table.columns = {{"algorithm", false}, {"devices", true}, {"training time", true},
                     {"accuracy", true},   {"loss", true},    {"backend", false}};
    for (const TrainGroup& group : groups)
        table.rows.push_back({algorithm_text(group.run), devices_text(group.run),
                              short_time(group.run.seconds), accuracy_text(group, seeds_of(groups)),
                              short_number(group.run.loss), backend_text(group.run)});
    return table;
}

Table target_table(const LabReport& report) {
    Table table;
    const double target = report.target_accuracy;
    if (!std::isfinite(target)) return table;
    table.title = fmt::format("Time to {:g} % accuracy", target * 100);
    const std::vector<TrainGroup> groups = sorted_groups(report);
    table.note =
        "Time of all steps until the end of the first epoch that a test found as accurate;"
        " tests are not counted." +
        seeds_note(groups);
    table.columns = {{"algorithm", false}, {"devices", true}, {"backend", false},
                     {"reached", true},    {"time", true},    {"epochs", true}};
    for (const TrainGroup& group : groups) {
        const Reached reached = reached_by(group, target);
        table.rows.push_back(
            {algorithm_text(group.run), devices_text(group.run), backend_text(group.run),
             fmt::format("{} of {}", reached.seconds.count, group.seeds.size()),
             seconds_text(reached.seconds),
             std::isfinite(reached.epochs.mean) ? fmt::format("{:.3g}", reached.epochs.mean)
                                                : "-"});
    }
    return table;
}

std::vector<Table> training_tables(const LabReport& report) {
    if (report.train.empty()) return {};
    std::vector<Table> tables;
    if (has_scaling(report, "strong") || !has_scaling(report, "weak"))
        tables.push_back(scaling_table(report));
    tables.push_back(weak_scaling_table(report));
    tables.push_back(compression_table(report));
    tables.push_back(target_table(report));
    std::erase_if(tables, [](const Table& table) { return table.empty(); });
    return tables;
}

}  // namespace dtrun::lab
