#include "lab/report/training_figures.h"

#include "lab/report/phrases.h"
#include "lab/report/tables.h"
#include "lab/report/training.h"
#include "lab/report/training_tables.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace dtrun::lab {
namespace {

using std::string_view;

double most_ranks(const LabReport& report) {
    double most = 1;
    for (const TrainRecord& run : report.train) most = std::max<double>(most, run.ranks);
    return most;
}

enum class Scaled { speedup, efficiency };

/// A figure with nothing but the ideal line.
Figure scaling_frame(const LabReport& report, std::string title, Scaled what) {
    const ReportWords& words = report.words();
    const bool is_speedup = what == Scaled::speedup;
    Figure figure;
    figure.title = std::move(title);
    figure.chart.description = figure.title;
    figure.chart.x = ranks_axis(report.words());
    figure.chart.y.label = is_speedup ? words.speedup : words.efficiency;
    if (!is_speedup) figure.chart.y.unit = Chart::Unit::percent;
    const double most = most_ranks(report);
    Chart::Series ideal;
    ideal.label = report.words().ideal;
    ideal.is_ideal = true;
    ideal.points = {{1, 1, kUnknown, ""}, {most, is_speedup ? most : 1, kUnknown, ""}};
    figure.chart.series.push_back(std::move(ideal));
    return figure;
}

/// Whether a run has a place in the figure of a backend: serial ones if they compute on the same.
bool belongs_to(const TrainRecord& run, string_view backend) {
    return run.is_serial() ? run.is_on_gpu() == computes_on_gpu(backend) : run.backend == backend;
}

Chart::Series scaling_series(const LabReport& report, Chart::Series series, string_view backend,
                             string_view algorithm, Scaled what, string_view scaling = "strong") {
    const ReportWords& words = report.words();
    for (const ScalingPoint& point : scaling_of(report, algorithm, scaling)) {
        const bool is_serial = point.run.is_serial();
        if (!std::isfinite(point.speedup) || !belongs_to(point.run, backend)) continue;
        const double y = what == Scaled::speedup ? point.speedup : point.efficiency;
        const std::string who = is_serial
                                    ? serial_name(point.run, words)
                                    : label_of(backend_name_in(words, backend), algorithm) +
                                          std::string(words.comma) + shape_text(point.run, words);
        series.points.push_back(
            {static_cast<double>(point.run.ranks), y, kUnknown,
             filled(words.scaling_tip, who, fmt::format("{:.2f}", point.speedup),
                    percent(point.efficiency, 0), short_number(point.run.step_ms))});
    }
    keep_best(series);
    return series;
}

/// Backends that have trained with several ranks.
Names backends_of(const LabReport& report, string_view scaling) {
    Names backends;
    for (const TrainRecord& run : report.train)
        if (!run.is_serial() && run.scaling == scaling) add_name(backends, run.backend);
    return backends;
}

/// Throughput of weak scaling by ranks; \return with T(1) in `alone`, which gives the ideal line
Chart::Series throughput_series(const LabReport& report, Chart::Series series, string_view backend,
                                double& alone) {
    const ReportWords& words = report.words();
    for (const ScalingPoint& point : scaling_of(report, "parallel", "weak")) {
        const TrainRecord& run = point.run;
        if (!belongs_to(run, backend)) continue;
        if (run.ranks == 1) alone = run.samples_per_s;
        series.points.push_back(
            {static_cast<double>(run.ranks), run.samples_per_s, kUnknown,
             filled(words.throughput_tip,
                    run.is_serial() ? serial_name(run, words) : shape_text(run, words),
                    short_number(run.samples_per_s), percent(point.efficiency, 0))});
    }
    keep_best(series);
    return series;
}

/// Of the backends whose ranks compute on GPUs, or of the others: one may be a hundred times the other.
Figure throughput_figure(const LabReport& report, const Styles& styles, bool on_gpu) {
    Figure figure;
    const ReportWords& words = report.words();
    figure.title = on_gpu ? words.throughput_of_gpus : words.throughput_figure;
    figure.chart.description = words.throughput_described;
    figure.chart.x = ranks_axis(report.words());
    figure.chart.y.label = words.samples_axis;
    double alone = kUnknown;
    for (const std::string& backend : backends_of(report, "weak"))
        if (computes_on_gpu(backend) == on_gpu)
            figure.chart.series.push_back(
                throughput_series(report, styles.backend(backend), backend, alone));
    Chart::Series ideal;
    ideal.label = report.words().ideal;
    ideal.is_ideal = true;
    const double most = most_ranks(report);
    ideal.points = {{1, alone, kUnknown, ""}, {most, most * alone, kUnknown, ""}};
    figure.chart.series.insert(figure.chart.series.begin(), std::move(ideal));
    return figure;
}

enum class Over { seconds, epochs };

/// The accuracy of a training by epochs: the mean of its seeds, with the interval as a whisker.
Chart::Series accuracy_series(const TrainGroup& group, Chart::Series series, Over over,
                              const ReportWords& words) {
    std::map<int, std::vector<const EpochRecord*>> epochs;
    for (const TrainRecord* const run : group.seeds)
        for (const EpochRecord& epoch : run->by_epoch) epochs[epoch.epoch].push_back(&epoch);
    for (const auto& [number, found] : epochs) {
        std::vector<double> accuracies;
        std::vector<double> seconds;
        for (const EpochRecord* const epoch : found) {
            accuracies.push_back(epoch->accuracy);
            seconds.push_back(epoch->seconds);
        }
        const Estimate accuracy = estimate_of(accuracies);
        const double time = estimate_of(seconds).mean;
        Chart::Point point;
        point.x = over == Over::seconds ? time : number;
        point.y = accuracy.mean;
        point.low = accuracy.mean - accuracy.interval;
        point.high = std::fmin(accuracy.mean + accuracy.interval, 1);
        if (!std::isfinite(accuracy.interval)) point.low = point.high = kUnknown;
        point.tip = filled(words.accuracy_tip, series.label, number, percent(accuracy.mean),
                           short_time(time));
        series.points.push_back(std::move(point));
    }
    return series;
}

struct Place {
    std::string backend, scaling;
    ShapeRecord shape;
};

/// The largest shape of one host, and that of several, of each backend.
std::vector<Place> largest_places(const LabReport& report) {
    std::map<std::tuple<std::string, std::string, bool>, ShapeRecord> largest;
    std::vector<std::tuple<std::string, std::string, bool>> order;
    for (const TrainRecord& run : report.train) {
        if (run.is_serial()) continue;
        const auto [entry, added] =
            largest.try_emplace({run.backend, run.scaling, run.hosts == 1}, run);
        if (added) order.push_back(entry->first);
        if (run.ranks > entry->second.ranks) entry->second = run;
    }
    std::vector<Place> places;
    for (const auto& key : order)
        places.push_back({std::get<0>(key), std::get<1>(key), largest[key]});
    return places;
}

Figure accuracy_figure(const LabReport& report, const Styles& styles, const Place& place,
                       Over over) {
    Figure figure;
    const ReportWords& words = report.words();
    const std::string backend = backend_name_in(words, place.backend);
    figure.title = filled(over == Over::seconds ? words.accuracy_by_time : words.accuracy_by_epochs,
                          place.scaling == "weak" ? filled(words.weak_place, backend) : backend,
                          shape_text(place.shape, words));
    figure.chart.description = filled(words.colon, words.test_accuracy, figure.title);
    figure.chart.x.label = over == Over::seconds ? words.seconds_axis : words.epochs;
    figure.chart.x.only_values = over == Over::epochs;
    figure.chart.y.label = words.test_accuracy;
    figure.chart.y.unit = Chart::Unit::percent;
    figure.chart.y.from_zero = false;
    for (const TrainGroup& group : train_groups(report)) {
        const TrainRecord& run = group.run;
        const bool is_here =
            run.scaling == place.scaling && static_cast<const ShapeRecord&>(run) == place.shape;
        if (run.is_serial() ? !belongs_to(run, place.backend) : !is_here) continue;
        figure.chart.series.push_back(
            accuracy_series(group, styles.compression(run.algorithm, place.backend), over, words));
    }
    if (std::isfinite(report.target_accuracy))
        figure.chart.add_level(fmt::format("{:g} %", report.target_accuracy * 100),
                               report.target_accuracy);
    return figure;
}

/// A figure without the trainings that end far below the best one, which leave the others no room.
/// \return nothing if there are none
std::optional<Figure> close_up(Figure figure, const ReportWords& words) {
    constexpr double kFar = 0.1;
    std::vector<Chart::Series>& all = figure.chart.series;
    double best = kUnknown;
    for (const Chart::Series& series : all)
        if (!series.is_ideal && !series.points.empty())
            best = std::fmax(best, series.points.back().y);
    const auto left_out = std::erase_if(all, [best](const Chart::Series& series) {
        return !series.is_ideal && !series.points.empty() && series.points.back().y < best - kFar;
    });
    if (left_out == 0) return std::nullopt;
    figure.title = filled(words.close_up, figure.title);
    figure.chart.description = filled(words.close_up, figure.chart.description);
    return figure;
}

}  // namespace

FigureGroup scaling_figures(const LabReport& report, const Styles& styles) {
    FigureGroup scaling;
    const ReportWords& words = report.words();
    scaling.title = words.scalability;
    scaling.below = scaling_tables(report, "strong").back().title;
    scaling.lead = words.scalability_lead;
    Names backends;
    std::map<std::string, Names> algorithms;
    for (const TrainRecord& run : report.train) {
        if (run.is_serial() || run.scaling != "strong") continue;
        add_name(backends, run.backend);
        add_name(algorithms[run.backend], run.algorithm);
    }
    for (const Scaled what : {Scaled::speedup, Scaled::efficiency}) {
        Figure figure = scaling_frame(
            report,
            std::string(what == Scaled::speedup ? words.speedup_figure : words.efficiency_figure),
            what);
        for (const std::string& backend : backends)
            figure.chart.series.push_back(
                scaling_series(report, styles.backend(backend), backend, "parallel", what));
        add_if_lines(scaling.figures, std::move(figure));
    }
    for (const std::string& backend : backends) {
        if (algorithms[backend].size() < 2) continue;
        Figure figure =
            scaling_frame(report, filled(words.compressed_speedup, backend_name_in(words, backend)),
                          Scaled::speedup);
        for (const std::string& algorithm : algorithms[backend])
            figure.chart.series.push_back(scaling_series(report,
                                                         styles.compression(algorithm, backend),
                                                         backend, algorithm, Scaled::speedup));
        add_if_lines(scaling.figures, std::move(figure));
    }
    return scaling;
}

FigureGroup weak_scaling_figures(const LabReport& report, const Styles& styles) {
    FigureGroup weak;
    const ReportWords& words = report.words();
    weak.title = words.weak_scalability;
    weak.lead = words.weak_lead;
    if (!has_scaling(report, "weak")) return weak;
    weak.below = scaling_tables(report, "weak").back().title;
    for (const bool on_gpu : {false, true})
        add_if_lines(weak.figures, throughput_figure(report, styles, on_gpu));
    for (const Scaled what : {Scaled::speedup, Scaled::efficiency}) {
        Figure figure =
            scaling_frame(report,
                          std::string(what == Scaled::speedup ? words.weak_speedup_figure
                                                              : words.weak_efficiency_figure),
                          what);
        for (const std::string& backend : backends_of(report, "weak"))
            figure.chart.series.push_back(
                scaling_series(report, styles.backend(backend), backend, "parallel", what, "weak"));
        add_if_lines(weak.figures, std::move(figure));
    }
    return weak;
}

FigureGroup accuracy_figures(const LabReport& report, const Styles& styles) {
    FigureGroup accuracy;
    accuracy.title = report.words().accuracy_group;
    accuracy.lead = report.words().accuracy_lead;
    if (const std::vector<Table> tables = compression_tables(report); !tables.empty())
        accuracy.below = tables.back().title;
    for (const Place& place : largest_places(report))
        for (const Over over : {Over::seconds, Over::epochs}) {
            Figure figure = accuracy_figure(report, styles, place, over);
            std::optional<Figure> closer = close_up(figure, report.words());
            add_if_lines(accuracy.figures, std::move(figure));
            if (closer) add_if_lines(accuracy.figures, std::move(*closer));
        }
    return accuracy;
}

}  // namespace dtrun::lab
