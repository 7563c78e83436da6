#include "lab/report/training_tables.h"

#include "collectives/codec/format_table.h"
#include "lab/names.h"
#include "lab/report/phrases.h"

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

/// The name of an algorithm in tables: "8 bits (int8)".
std::string algorithm_text(const TrainRecord& run, const ReportWords& words) {
    std::string text = run.algorithm;
    if (run.is_serial())
        text = serial_name(run, words);
    else if (run.algorithm == "parallel")
        text = words.parallel;
    else if (const auto known = parse_algorithm(run.algorithm); known && known->format)
        text = filled(words.bits_of, collectives::row_of(*known->format).bits, run.algorithm);
    return run.scaling == "weak" && !run.is_serial() && run.epochs > 0 ? filled(words.weak_of, text)
                                                                       : text;
}

/// "4 devices (2 x 2)": where a training ran, but for the backend.
std::string devices_text(const TrainRecord& run, const ReportWords& words) {
    if (run.hosts > 1)
        return filled(words.devices_of_hosts, run.ranks, run.hosts, run.slots_per_host);
    return filled(run.ranks == 1 ? words.one_device : words.some_devices, run.ranks);
}

std::string backend_text(const TrainRecord& run, const ReportWords& words) {
    return run.is_serial() && !run.is_on_gpu() ? std::string(words.none)
                                               : backend_name_in(words, run.backend);
}

std::string training_note(const LabReport& report, const std::string& batch) {
    if (report.train.empty()) return "";
    const ReportWords& words = report.words();
    const TrainRecord& first = report.train.front();
    std::string note = model_text(first);
    const auto add = [&](const std::string& text) { note.append(words.comma).append(text); };
    if (first.global_batch > 0) add(batch);
    if (first.epochs > 0)
        add(filled(first.epochs == 1 ? words.one_epoch : words.some_epochs, first.epochs));
    if (!first.data.empty()) add(first.data);
    if (first.loss_scale != 1) add(filled(words.loss_scale, fmt::format("{:g}", first.loss_scale)));
    return note.append(words.full_stop);
}

std::string batch_of_all(const LabReport& report) {
    if (report.train.empty()) return "";
    const TrainRecord& first = report.train.front();
    if (has_scaling(report, "weak") && !has_scaling(report, "strong"))
        return filled(report.words().samples_of_each, batch_of_rank(first));
    return filled(report.words().samples_of_all, first.global_batch);
}

/// In samples, or of a program that does not tell how many a step has, in steps.
std::string throughput_text(const TrainRecord& run, const ReportWords& words) {
    if (!std::isfinite(run.samples_per_s))
        return filled(words.steps_per_second, short_number(1e3 / run.step_ms));
    return filled(words.samples_per_second, short_number(run.samples_per_s));
}

std::string step_text(const TrainRecord& run) {
    return std::isfinite(run.step_ms) ? short_number(run.step_ms) + " ms" : "-";
}

std::string speedup_text(const ScalingPoint& point) {
    return std::isfinite(point.speedup) ? fmt::format("{:.2f}", point.speedup) : "-";
}

/// What is said of the seeds, if there are several.
std::string seeds_note(const std::vector<TrainGroup>& groups, const ReportWords& words) {
    const std::size_t seeds = seeds_of(groups);
    return seeds < 2 ? "" : filled(words.seeds_note, seeds);
}

void leave_out_column(Table& table, std::size_t column) {
    const auto place = static_cast<std::ptrdiff_t>(column);
    table.columns.erase(table.columns.begin() + place);
    for (Cells& row : table.rows) row.erase(row.begin() + place);
}

/// Leaves out the last columns, as far as nothing in them is known.
void leave_out_unknown_end(Table& table) {
    const auto is_unknown = [](const Cells& row) { return row.back() == "-"; };
    while (!table.rows.empty() && std::ranges::all_of(table.rows, is_unknown))
        leave_out_column(table, table.columns.size() - 1);
}

constexpr std::size_t kBatchColumn = 3;  // of scaling_row()

Cells scaling_row(const ScalingPoint& point, const ReportWords& words) {
    const TrainRecord& run = point.run;
    return {run.is_serial() ? serial_name(run, words) : backend_name_in(words, run.backend),
            std::to_string(run.hosts),
            std::to_string(run.slots_per_host),
            run.global_batch > 0 ? std::to_string(run.global_batch) : "-",
            step_text(run),
            throughput_text(run, words),
            speedup_text(point),
            percent(point.efficiency, 0),
            percent(run.comm_ms / run.step_ms, 0)};
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

/// The name of the column for ranks: with GPUs each has one.
string_view per_host(const LabReport& report) {
    const ReportWords& words = report.words();
    return has_gpus(report) ? words.gpus_per_host : words.ranks_per_host;
}

/// Whether a training belongs to the table of a backend: serial ones if they compute on the same.
bool is_of(const TrainRecord& run, string_view backend) {
    if (run.is_serial()) return backend.empty() || run.is_on_gpu() == computes_on_gpu(backend);
    return run.backend == backend;
}

/// One backend's trainings: a row for each algorithm, and a group of two columns for each number of devices.
Table compression_table(const LabReport& report, const std::vector<TrainGroup>& groups,
                        const std::string& backend) {
    const ReportWords& words = report.words();
    Table table;
    table.title = words.compression;
    table.note = training_note(report, batch_of_all(report)) + seeds_note(groups, words);
    Cells algorithms;
    std::vector<ShapeRecord> shapes;  // of one host, then those of several; backends play no part
    for (const TrainGroup& group : groups) {
        if (!is_of(group.run, backend)) continue;
        const std::string name = algorithm_text(group.run, words);
        if (std::ranges::find(algorithms, name) == algorithms.end()) algorithms.push_back(name);
        const ShapeRecord shape{"", group.run.hosts, group.run.slots_per_host, group.run.ranks};
        if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
    }
    std::ranges::sort(shapes, {}, [](const ShapeRecord& shape) {
        return std::tuple(shape.hosts > 1, shape.ranks, shape.hosts);
    });
    for (const std::string& name : algorithms)
        table.rows.push_back({name}), table.rows.back().resize(1 + 2 * shapes.size(), "-");
    table.columns = {{std::string(words.algorithm), false, ""}};
    table.groups = words.devices;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        std::string devices;
        for (const TrainGroup& group : groups) {
            const TrainRecord& run = group.run;
            if (!is_of(run, backend) || run.hosts != shapes[i].hosts ||
                run.slots_per_host != shapes[i].slots_per_host)
                continue;
            devices = devices_text(run, words);
            const auto row = std::ranges::find(algorithms, algorithm_text(run, words));
            Cells& cells = table.rows[static_cast<std::size_t>(row - algorithms.begin())];
            cells[1 + 2 * i] = short_time(run.seconds);
            cells[2 + 2 * i] = accuracy_text(group, seeds_of(groups), words);
        }
        for (const string_view name : {words.training_time, words.accuracy})
            table.columns.push_back({std::string(name), true, devices});
    }
    return table;
}

}  // namespace

std::string accuracy_text(const TrainGroup& group, std::size_t seeds, const ReportWords& words) {
    const Estimate& accuracy = group.accuracy;
    std::string text = percent(accuracy.mean);
    if (std::isfinite(accuracy.interval))
        text = fmt::format("{:.2f} ± {:.2f} %", accuracy.mean * 100, accuracy.interval * 100);
    return accuracy.count > 0 && accuracy.count < seeds
               ? filled(words.seeds_that_know, text, accuracy.count)
               : text;
}

std::vector<Table> scaling_tables(const LabReport& report, string_view scaling) {
    const ReportWords& words = report.words();
    const bool is_weak = scaling == "weak";
    if (is_weak && !has_scaling(report, scaling)) return {};
    Table inside;
    inside.columns =
        columns_of({words.backend},
                   {words.backend, words.hosts, per_host(report), words.batch, words.time_per_step,
                    words.throughput, words.speedup, words.efficiency, words.communication});
    Table between = inside;
    bool has_inside = false;
    bool has_between = false;
    const std::vector<ScalingPoint> points = sorted_points(report, scaling);
    for (const ScalingPoint& point : points) {
        const TrainRecord& run = point.run;
        const Cells row = scaling_row(point, words);
        if (run.hosts == 1) inside.rows.push_back(row);
        if (run.is_serial() || run.hosts > 1) between.rows.push_back(row);
        if (!run.is_serial()) (run.hosts == 1 ? has_inside : has_between) = true;
    }
    const string_view title = is_weak ? words.weak_scaling : words.scaling;
    inside.title = has_between ? filled(words.inside_a_host, title) : std::string(title);
    between.title = has_inside ? filled(words.between_hosts, title) : std::string(title);
    std::vector<Table> tables;
    if (has_inside || !has_between) tables.push_back(std::move(inside));
    if (has_between) tables.push_back(std::move(between));
    const std::string batch = is_weak && !points.empty()
                                  ? filled(words.samples_of_each, batch_of_rank(points.back().run))
                                  : batch_of_all(report);
    tables.front().note =
        training_note(report, batch) + std::string(is_weak ? words.weak_note : words.medians);
    for (Table& table : tables) {
        if (!is_weak) leave_out_column(table, kBatchColumn);
        leave_out_unknown_end(table);
    }
    return tables;
}

std::vector<Table> compression_tables(const LabReport& report) {
    const bool learns = std::ranges::any_of(
        report.train, [](const TrainRecord& run) { return std::isfinite(run.accuracy); });
    if (!learns) return {};  // programs that tell of nothing but their steps
    const std::vector<TrainGroup> groups = sorted_groups(report);
    Cells backends;
    for (const TrainGroup& group : groups)
        if (!group.run.is_serial() &&
            std::ranges::find(backends, group.run.backend) == backends.end())
            backends.push_back(group.run.backend);
    if (backends.empty()) backends.emplace_back();  // there are serial runs alone
    std::vector<Table> tables;
    for (const std::string& backend : backends) {
        tables.push_back(compression_table(report, groups, backend));
        if (backends.size() > 1)
            tables.back().title =
                filled(report.words().compression_of, backend_name_in(report.words(), backend));
    }
    return tables;
}

Table target_table(const LabReport& report) {
    Table table;
    const double target = report.target_accuracy;
    if (!std::isfinite(target)) return table;
    const ReportWords& words = report.words();
    table.title = filled(words.to_accuracy, fmt::format("{:g}", target * 100));
    const std::vector<TrainGroup> groups = sorted_groups(report);
    table.note = std::string(words.to_accuracy_note) + seeds_note(groups, words);
    table.columns = columns_of(
        {words.algorithm, words.devices, words.backend},
        {words.algorithm, words.devices, words.backend, words.reached, words.time, words.epochs});
    for (const TrainGroup& group : groups) {
        const Reached reached = reached_by(group, target);
        table.rows.push_back({algorithm_text(group.run, words), devices_text(group.run, words),
                              backend_text(group.run, words),
                              filled(words.of_of, reached.seconds.count, group.seeds.size()),
                              seconds_text(reached.seconds),
                              std::isfinite(reached.epochs.mean)
                                  ? fmt::format("{:.3g}", reached.epochs.mean)
                                  : "-"});
    }
    return table;
}

std::vector<Table> training_tables(const LabReport& report) {
    if (report.train.empty()) return {};
    std::vector<Table> tables;
    if (has_scaling(report, "strong") || !has_scaling(report, "weak"))
        tables = scaling_tables(report, "strong");
    std::ranges::move(scaling_tables(report, "weak"), std::back_inserter(tables));
    std::ranges::move(compression_tables(report), std::back_inserter(tables));
    tables.push_back(target_table(report));
    std::erase_if(tables, [](const Table& table) { return table.empty(); });
    return tables;
}

}  // namespace dtrun::lab
