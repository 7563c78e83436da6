#include "lab/report/figures.h"

#include "collectives/backend_table.h"
#include "lab/plan/plan.h"
#include "lab/report/tables.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace dtrun::lab {
namespace {

using std::string_view;
using Rows = std::vector<const RowRecord*>;
using Names = std::vector<std::string>;

void add_name(Names& names, const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

/// Gives each backend one colour in all figures, and each compression one that no backend has, as long as there
/// are enough. What is not compressed has the colour of its backend.
class Styles {
public:
    explicit Styles(const LabReport& report) {
        for (const RowRecord& row : report.rows) {
            add_name(backends_, row.backend);
            if (!is_in_full(row.compression)) add_name(compressions_, row.compression);
        }
        for (const TrainRecord& run : report.train) {
            if (run.algorithm == "serial") continue;
            add_name(backends_, run.backend);
            if (run.algorithm != "parallel") add_name(compressions_, run.algorithm);
        }
    }

    Chart::Series backend(const std::string& name) const {
        const collectives::BackendRow* const row = collectives::find_backend(name);
        const auto other = std::ranges::find(backends_, name) - backends_.begin();
        Chart::Series series;
        series.label = name;
        series.color = row != nullptr
                           ? static_cast<int>(row - collectives::kBackends)
                           : static_cast<int>(kKnown + other % (Chart::kColors - kKnown));
        return series;
    }
    Chart::Series compression(const std::string& name, const std::string& backend_name) const {
        Chart::Series series = backend(backend_name);
        series.label = is_in_full(name) ? "in full" : name;
        const auto place = std::ranges::find(compressions_, name) - compressions_.begin();
        if (!is_in_full(name)) series.color = static_cast<int>((kKnown + place) % Chart::kColors);
        return series;
    }

private:
    static constexpr int kKnown = static_cast<int>(collectives::kBackendCount);
    static_assert(kKnown < Chart::kColors);  // the rest is for others

    static bool is_in_full(string_view name) {
        return name.empty() || name == "none" || name == "parallel";
    }

    Names backends_;
    Names compressions_;
};

/// Keeps the best shape of each number of ranks in the line, and puts the others beside it.
void keep_best(Chart::Series& series) {
    std::map<double, Chart::Point> best;
    for (Chart::Point& point : series.points) {
        const auto [entry, added] = best.try_emplace(point.x, point);
        if (added) continue;
        if (point.y > entry->second.y) std::swap(point, entry->second);
        series.loose.push_back(std::move(point));
    }
    series.points.clear();
    for (auto& [x, point] : best) series.points.push_back(std::move(point));
}

Chart::Axis ranks_axis() {
    Chart::Axis axis;
    axis.label = "ranks";
    axis.only_values = true;
    return axis;
}

enum class Scaled { speedup, efficiency };

/// A figure with nothing but the ideal line.
Figure scaling_frame(const LabReport& report, std::string title, Scaled what) {
    const bool is_speedup = what == Scaled::speedup;
    Figure figure;
    figure.title = std::move(title);
    figure.chart.description = figure.title;
    figure.chart.x = ranks_axis();
    figure.chart.y.label = is_speedup ? "speed-up" : "efficiency";
    if (!is_speedup) figure.chart.y.unit = Chart::Unit::percent;
    double most = 1;
    for (const TrainRecord& run : report.train) most = std::max<double>(most, run.ranks);
    Chart::Series ideal;
    ideal.label = "ideal";
    ideal.is_ideal = true;
    ideal.points = {{1, 1, kUnknown, ""}, {most, is_speedup ? most : 1, kUnknown, ""}};
    figure.chart.series.push_back(std::move(ideal));
    return figure;
}

Chart::Series scaling_series(const LabReport& report, Chart::Series series, string_view backend,
                             string_view algorithm, Scaled what) {
    for (const ScalingPoint& point : scaling_of(report, algorithm)) {
        const bool is_serial = point.run->algorithm == "serial";
        if (!std::isfinite(point.speedup) || (!is_serial && point.run->backend != backend))
            continue;
        const double y = what == Scaled::speedup ? point.speedup : point.efficiency;
        const std::string who =
            is_serial ? "serial" : label_of(backend, algorithm) + ", " + shape_text(*point.run);
        series.points.push_back(
            {static_cast<double>(point.run->ranks), y, kUnknown,
             fmt::format("{}: speed-up {:.2f}, efficiency {}, {} ms a step", who, point.speedup,
                         percent(point.efficiency, 0), short_number(point.run->step_ms))});
    }
    keep_best(series);
    return series;
}

void add_if_lines(std::vector<Figure>& figures, Figure figure) {
    if (figure.chart.has_lines()) figures.push_back(std::move(figure));
}

FigureGroup scaling_figures(const LabReport& report, const Styles& styles) {
    FigureGroup scaling;
    scaling.title = "Scalability";
    scaling.lead =
        "The same problem on more ranks: with p of them an ideal step takes 1/p of the time. Where "
        "a "
        "number of ranks can be had in several shapes, the line goes through the best of them, and "
        "hollow marks are the others.";
    Names backends;
    std::map<std::string, Names> algorithms;
    for (const TrainRecord& run : report.train) {
        if (run.algorithm == "serial") continue;
        add_name(backends, run.backend);
        add_name(algorithms[run.backend], run.algorithm);
    }
    for (const Scaled what : {Scaled::speedup, Scaled::efficiency}) {
        Figure figure = scaling_frame(
            report, what == Scaled::speedup ? "Speed-up of a training step" : "Parallel efficiency",
            what);
        for (const std::string& backend : backends)
            figure.chart.series.push_back(
                scaling_series(report, styles.backend(backend), backend, "parallel", what));
        add_if_lines(scaling.figures, std::move(figure));
    }
    for (const std::string& backend : backends) {
        if (algorithms[backend].size() < 2) continue;
        Figure figure = scaling_frame(report, backend + ": speed-up with compressed gradients",
                                      Scaled::speedup);
        for (const std::string& algorithm : algorithms[backend])
            figure.chart.series.push_back(scaling_series(report,
                                                         styles.compression(algorithm, backend),
                                                         backend, algorithm, Scaled::speedup));
        add_if_lines(scaling.figures, std::move(figure));
    }
    return scaling;
}

std::string tip_of(const RowRecord& row) {
    return fmt::format("{}, {}, {}: {} us (p99 {}), {} GB/s bus",
                       label_of(row.backend, row.compression), shape_text(row),
                       short_bytes(static_cast<double>(row.bytes)), short_number(row.t_p50_us),
                       short_number(row.t_p99_us), bandwidth_text(row.busbw_GBps));
}

enum class Measure { bandwidth, time };

const std::string& key_of(const RowRecord& row, bool by_backend) {
    return by_backend ? row.backend : row.compression;
}

/// \param by_backend  one line for each backend, else for each compression
Figure size_figure(const Rows& rows, const Styles& styles, std::string title, Measure measure,
                   bool by_backend) {
    const bool is_time = measure == Measure::time;
    Figure figure;
    figure.title = std::move(title);
    figure.chart.description = figure.title + ", by size";
    figure.chart.x.label = "size in bytes";
    figure.chart.x.scale = Chart::Scale::logarithmic;
    figure.chart.x.unit = Chart::Unit::bytes;
    figure.chart.y.scale = Chart::Scale::logarithmic;
    figure.chart.y.label = is_time ? "time, p50 and up to p99" : "bus bandwidth";
    figure.chart.y.unit = is_time ? Chart::Unit::microseconds : Chart::Unit::gigabytes_per_second;
    Names keys;
    for (const RowRecord* const row : rows) add_name(keys, key_of(*row, by_backend));
    for (const std::string& key : keys) {
        Chart::Series series =
            by_backend ? styles.backend(key) : styles.compression(key, rows.front()->backend);
        for (const RowRecord* const row : rows)
            if (key_of(*row, by_backend) == key)
                series.points.push_back({static_cast<double>(row->bytes),
                                         is_time ? row->t_p50_us : row->busbw_GBps,
                                         is_time ? row->t_p99_us : kUnknown, tip_of(*row)});
        std::ranges::stable_sort(series.points, {}, &Chart::Point::x);
        figure.chart.series.push_back(std::move(series));
    }
    return figure;
}

/// Bandwidth by ranks, at the largest of the sizes that most shapes have.
Figure ranks_figure(const Rows& rows, const Styles& styles) {
    std::map<std::uint64_t, std::set<std::pair<int, int>>> shapes;
    for (const RowRecord* const row : rows)
        shapes[row->bytes].insert({row->hosts, row->slots_per_host});
    std::size_t most = 0;
    std::uint64_t bytes = 0;
    for (const auto& [size, found] : shapes)
        if (found.size() >= most) {
            most = found.size();
            bytes = size;
        }
    Figure figure;
    figure.title = fmt::format("By ranks, {}", short_bytes(static_cast<double>(bytes)));
    figure.chart.description = figure.title;
    figure.chart.x = ranks_axis();
    figure.chart.y.label = "bus bandwidth";
    figure.chart.y.unit = Chart::Unit::gigabytes_per_second;
    Names backends;
    for (const RowRecord* const row : rows) add_name(backends, row->backend);
    for (const std::string& backend : backends) {
        Chart::Series series = styles.backend(backend);
        for (const RowRecord* const row : rows)
            if (row->backend == backend && row->bytes == bytes && row->ranks > 1 &&
                std::isfinite(row->busbw_GBps))
                series.points.push_back(
                    {static_cast<double>(row->ranks), row->busbw_GBps, kUnknown, tip_of(*row)});
        keep_best(series);
        figure.chart.series.push_back(std::move(series));
    }
    return figure;
}

/// Gives charts of one measure the same axis, so that they can be compared by eye.
void share_axis(std::vector<Figure>& figures, const std::string& label) {
    double low = kUnknown;
    double high = kUnknown;
    for (const Figure& figure : figures) {
        if (figure.chart.y.label != label) continue;
        for (const Chart::Series& series : figure.chart.series)
            for (const Chart::Point& point : series.points) {
                if (!(point.y > 0)) continue;
                low = std::fmin(low, std::fmin(point.y, point.low));
                high = std::fmax(high, std::fmax(point.y, point.high));
            }
    }
    for (Figure& figure : figures)
        if (figure.chart.y.label == label && figure.chart.y.scale == Chart::Scale::logarithmic) {
            figure.chart.y.low = low;
            figure.chart.y.high = high;
        }
}

using ByShape = std::map<std::pair<int, int>, Rows>;

ByShape by_shape(const Rows& rows) {
    ByShape shapes;
    for (const RowRecord* const row : rows)
        shapes[{row->hosts, row->slots_per_host}].push_back(row);
    return shapes;
}

/// Adds figures that compare compressions, for each backend: in the largest shape of one host, and
/// in that of several.
void add_compression(std::vector<Figure>& figures, const Rows& rows, const Styles& styles) {
    std::map<bool, std::pair<int, int>> largest;  // the key: whether it is one host
    for (const RowRecord* const row : rows) {
        std::pair<int, int>& shape = largest[row->hosts == 1];
        if (row->ranks > shape.first * shape.second) shape = {row->hosts, row->slots_per_host};
    }
    Names backends;
    for (const RowRecord* const row : rows) add_name(backends, row->backend);
    for (const auto& [one_host, shape] : largest)
        for (const std::string& backend : backends) {
            Rows found;
            std::ranges::copy_if(rows, std::back_inserter(found), [&](const RowRecord* row) {
                return row->backend == backend &&
                       std::pair(row->hosts, row->slots_per_host) == shape;
            });
            Names compressions;
            for (const RowRecord* const row : found) add_name(compressions, row->compression);
            if (compressions.size() < 2) continue;
            const std::string title =
                fmt::format("{} compressed, {}", backend, shape_text(*found.front()));
            add_if_lines(figures, size_figure(found, styles, title, Measure::bandwidth, false));
        }
}

/// The figures of one operation on one type.
FigureGroup sweep_figures(const std::string& title, const Rows& rows, const Styles& styles) {
    FigureGroup figures;
    figures.title = title;
    figures.lead =
        "Bus bandwidth is what a link carries, so that numbers of ranks can be compared; of "
        "compressed data it is that of the data they stand for. Small sizes show what a call "
        "costs, "
        "large ones what the link gives.";
    Rows in_full;
    std::ranges::copy_if(rows, std::back_inserter(in_full), [](const RowRecord* row) {
        return row->compression.empty() || row->compression == "none";
    });
    const ByShape shapes = by_shape(in_full);
    if (shapes.size() > 1) add_if_lines(figures.figures, ranks_figure(in_full, styles));
    for (const Measure measure : {Measure::bandwidth, Measure::time})
        for (const auto& [shape, found] : shapes) {
            const std::string what = measure == Measure::time ? ": time" : ": bandwidth";
            add_if_lines(
                figures.figures,
                size_figure(found, styles, shape_text(*found.front()) + what, measure, true));
        }
    if (in_full.size() < rows.size()) add_compression(figures.figures, rows, styles);
    for (const char* const label : {"bus bandwidth", "time, p50 and up to p99"})
        share_axis(figures.figures, label);
    return figures;
}

constexpr const char* kSpeed = "speed, before / after";

std::string host_count(int hosts) {
    return fmt::format("{} host{}", hosts, hosts == 1 ? "" : "s");
}

/// A figure without points. \param apart  shows one backend alone
Figure speed_frame(const ComparedRow& first, bool apart) {
    Figure figure;
    const bool is_training = first.bytes == 0;
    figure.title =
        fmt::format("{}{}{}, {}", apart ? first.backend : "", apart ? ": " : "", first.group,
                    is_training ? host_count(first.hosts) : shape_text(first));
    figure.chart.description = figure.title + ": change of speed";
    if (is_training) {
        figure.chart.x = ranks_axis();
    } else {
        figure.chart.x.label = "size in bytes";
        figure.chart.x.scale = Chart::Scale::logarithmic;
        figure.chart.x.unit = Chart::Unit::bytes;
    }
    figure.chart.y.label = kSpeed;
    figure.chart.y.scale = Chart::Scale::logarithmic;
    figure.chart.y.unit = Chart::Unit::times;
    return figure;
}

Chart::Point speed_point(const ComparedRow& row) {
    const double noise = 1 + row.noise;
    const double x = row.bytes == 0 ? row.ranks : static_cast<double>(row.bytes);
    return {x, row.speed, row.speed * noise,
            fmt::format("{}, {}, {}: {:.2f} times as fast, noise {}", row.what, row.backend,
                        shape_text(row), row.speed, percent(row.noise, 0)),
            row.speed / noise};
}

/// The dashed line that says that nothing has changed.
void add_no_change(Chart& chart) {
    Chart::Series line;
    line.label = "no change";
    line.is_ideal = true;
    double low = kUnknown;
    double high = kUnknown;
    for (const Chart::Series& series : chart.series)
        for (const Chart::Point& point : series.points) {
            low = std::fmin(low, point.x);
            high = std::fmax(high, point.x);
        }
    line.points = {{low, 1, kUnknown, ""}, {high, 1, kUnknown, ""}};
    chart.series.insert(chart.series.begin(), std::move(line));
}

}  // namespace

FigureGroup comparison_figures(const Comparison& comparison) {
    FigureGroup all;
    all.title = "Change of speed";
    all.lead =
        "Above the dashed line the second report is faster. Whiskers are the noise of both runs: "
        "where they reach the line, a change says nothing.";
    Names labels;
    // With compressions there are too many lines for one figure of all backends.
    std::set<std::string> apart;
    for (const ComparedRow& row : comparison.rows)
        if (!row.compression.empty() && row.compression != "serial") apart.insert(row.group);
    for (const ComparedRow& row : comparison.rows) {
        const bool is_apart = apart.contains(row.group);
        Figure frame = speed_frame(row, is_apart);
        auto figure = std::ranges::find(all.figures, frame.title, &Figure::title);
        if (figure == all.figures.end())
            figure = all.figures.insert(all.figures.end(), std::move(frame));
        const std::string label = !is_apart                 ? row.backend
                                  : row.compression.empty() ? "in full"
                                                            : row.compression;
        add_name(labels, label);
        std::vector<Chart::Series>& lines = figure->chart.series;
        auto line = std::ranges::find(lines, label, &Chart::Series::label);
        if (line == lines.end()) {
            line = lines.insert(lines.end(), Chart::Series{});
            line->label = label;
            line->color = static_cast<int>(std::ranges::find(labels, label) - labels.begin());
        }
        line->points.push_back(speed_point(row));
    }
    for (Figure& figure : all.figures) {
        for (Chart::Series& line : figure.chart.series)
            std::ranges::stable_sort(line.points, {}, &Chart::Point::x);
        add_no_change(figure.chart);
    }
    std::erase_if(all.figures, [](const Figure& figure) { return !figure.chart.has_lines(); });
    share_axis(all.figures, kSpeed);
    return all;
}

std::vector<FigureGroup> report_figures(const LabReport& report) {
    const Styles styles(report);
    std::vector<FigureGroup> all{scaling_figures(report, styles)};
    std::vector<std::pair<std::string, Rows>> groups;
    for (const RowRecord& row : report.rows) {
        const std::string title = fmt::format("{} of {}", row.op, row.dtype);
        auto group = std::ranges::find(groups, title, &std::pair<std::string, Rows>::first);
        if (group == groups.end()) group = groups.insert(groups.end(), {title, {}});
        group->second.push_back(&row);
    }
    for (const auto& [title, rows] : groups) all.push_back(sweep_figures(title, rows, styles));
    std::erase_if(all, [](const FigureGroup& figures) { return figures.figures.empty(); });
    return all;
}

}  // namespace dtrun::lab
