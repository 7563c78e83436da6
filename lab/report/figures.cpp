#include "lab/report/figures.h"

#include "lab/plan/plan.h"
#include "lab/report/phrases.h"
#include "lab/report/styles.h"
#include "lab/report/tables.h"
#include "lab/report/training.h"
#include "lab/report/training_figures.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace dtrun::lab {
namespace {

using Rows = std::vector<const RowRecord*>;

std::string tip_of(const RowRecord& row, const ReportWords& words) {
    return filled(words.row_tip, label_of(row.backend, row.compression), shape_text(row, words),
                  short_bytes(static_cast<double>(row.bytes)), short_number(row.t_p50_us),
                  short_number(row.t_p99_us), bandwidth_text(row.busbw_GBps));
}

enum class Measure { bandwidth, time };

bool cross_hosts(const Rows& rows) {
    return std::ranges::any_of(rows, [](const RowRecord* row) { return row->hosts > 1; });
}

const std::string& key_of(const RowRecord& row, bool by_backend) {
    return by_backend ? row.backend : row.compression;
}

/// \param by_backend  one line for each backend, else for each compression
Figure size_figure(const Rows& rows, const Styles& styles, std::string title, Measure measure,
                   bool by_backend, const ReportWords& words) {
    const bool is_time = measure == Measure::time;
    Figure figure;
    figure.title = std::move(title);
    figure.chart.description = filled(words.by_size, figure.title);
    figure.chart.x.label = words.bytes_axis;
    figure.chart.x.scale = Chart::Scale::logarithmic;
    figure.chart.x.unit = Chart::Unit::bytes;
    figure.chart.y.scale = Chart::Scale::logarithmic;
    figure.crosses_hosts = cross_hosts(rows);
    figure.chart.y.label = is_time ? words.time_axis : words.bus_bandwidth;
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
                                         is_time ? row->t_p99_us : kUnknown, tip_of(*row, words)});
        std::ranges::stable_sort(series.points, {}, &Chart::Point::x);
        figure.chart.series.push_back(std::move(series));
    }
    return figure;
}

/// Bandwidth by ranks, at the largest of the sizes that most shapes have.
Figure ranks_figure(const Rows& rows, const Styles& styles, const ReportWords& words) {
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
    figure.title = filled(words.by_ranks, short_bytes(static_cast<double>(bytes)));
    figure.chart.description = figure.title;
    figure.chart.x = ranks_axis(words);
    figure.crosses_hosts = cross_hosts(rows);
    figure.chart.y.label = words.bus_bandwidth;
    figure.chart.y.unit = Chart::Unit::gigabytes_per_second;
    Names backends;
    for (const RowRecord* const row : rows) add_name(backends, row->backend);
    for (const std::string& backend : backends) {
        Chart::Series series = styles.backend(backend);
        for (const RowRecord* const row : rows)
            if (row->backend == backend && row->bytes == bytes && row->ranks > 1 &&
                std::isfinite(row->busbw_GBps))
                series.points.push_back({static_cast<double>(row->ranks), row->busbw_GBps, kUnknown,
                                         tip_of(*row, words)});
        keep_best(series);
        figure.chart.series.push_back(std::move(series));
    }
    return figure;
}

/// Gives charts of one measure the same axis, so that they can be compared by eye.
void share_axis(std::vector<Figure>& figures, std::string_view label) {
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

/// "25 Gbit/s"
std::string rate_text(double mbit) {
    return mbit >= 1'000 ? fmt::format("{:g} Gbit/s", mbit / 1'000)
                         : fmt::format("{:g} Mbit/s", mbit);
}

/// Speeds of the network between hosts in Mbit/s, each once: the one that was given, else those
/// that communicators of several hosts have told.
std::set<double> line_rates(const LabReport& report) {
    if (report.line_rate_mbit > 0) return {report.line_rate_mbit};
    std::set<double> rates;
    for (const CommRecord& comm : report.comms)
        if (comm.hosts > 1 && comm.line_rate_mbit > 0) rates.insert(comm.line_rate_mbit);
    return rates;
}

/// Draws the speed of the network into a figure of bandwidths of several hosts.
/// \return whether there is one
bool add_line_rates(Figure& figure, const std::set<double>& rates) {
    const bool is_bandwidth = figure.chart.y.unit == Chart::Unit::gigabytes_per_second;
    if (!figure.crosses_hosts || !is_bandwidth || rates.empty()) return false;
    double low = kUnknown;
    double high = kUnknown;
    for (const Chart::Series& series : figure.chart.series)
        for (const Chart::Point& point : series.points) {
            low = std::fmin(low, point.x);
            high = std::fmax(high, point.x);
        }
    for (const double mbit : rates) {
        Chart::Series line;
        line.label = rate_text(mbit);
        line.is_ideal = true;
        const double rate = mbit / 8e3;  // GB/s
        line.points = {{low, rate, kUnknown, ""}, {high, rate, kUnknown, ""}};
        figure.chart.series.insert(figure.chart.series.begin(), std::move(line));
    }
    return true;
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
void add_compression(std::vector<Figure>& figures, const Rows& rows, const Styles& styles,
                     const ReportWords& words) {
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
                filled(words.compressed, backend, shape_text(*found.front(), words));
            add_if_lines(figures,
                         size_figure(found, styles, title, Measure::bandwidth, false, words));
        }
}

/// The figures of one operation on one type.
FigureGroup sweep_figures(const std::string& title, const Rows& rows, const Styles& styles,
                          const ReportWords& words) {
    FigureGroup figures;
    figures.title = title;
    figures.lead = words.sweep_lead;
    figures.below = title;
    Rows in_full;
    std::ranges::copy_if(rows, std::back_inserter(in_full), [](const RowRecord* row) {
        return row->compression.empty() || row->compression == "none";
    });
    const ByShape shapes = by_shape(in_full);
    if (shapes.size() > 1) add_if_lines(figures.figures, ranks_figure(in_full, styles, words));
    for (const Measure measure : {Measure::bandwidth, Measure::time})
        for (const auto& [shape, found] : shapes) {
            const std::string what =
                filled(measure == Measure::time ? words.figure_time : words.figure_bandwidth,
                       shape_text(*found.front(), words));
            add_if_lines(figures.figures, size_figure(found, styles, what, measure, true, words));
        }
    if (in_full.size() < rows.size()) add_compression(figures.figures, rows, styles, words);
    for (const std::string_view label : {words.bus_bandwidth, words.time_axis})
        share_axis(figures.figures, label);
    return figures;
}

/// A figure without points. \param apart  shows one backend alone
Figure speed_frame(const ComparedRow& first, bool apart, const ReportWords& words) {
    Figure figure;
    const bool is_training = first.bytes == 0;
    const std::string hosts =
        filled(first.hosts == 1 ? words.one_host_shape : words.hosts_shape, first.hosts);
    figure.title = first.group;
    if (apart)
        figure.title = filled(words.colon, backend_name_in(words, first.backend), figure.title);
    figure.title.append(words.comma).append(is_training ? hosts : shape_text(first, words));
    figure.chart.description = filled(words.change_described, figure.title);
    if (is_training) {
        figure.chart.x = ranks_axis(words);
    } else {
        figure.chart.x.label = words.bytes_axis;
        figure.chart.x.scale = Chart::Scale::logarithmic;
        figure.chart.x.unit = Chart::Unit::bytes;
    }
    figure.chart.y.label = words.speed_axis;
    figure.chart.y.scale = Chart::Scale::logarithmic;
    figure.chart.y.unit = Chart::Unit::times;
    return figure;
}

Chart::Point speed_point(const ComparedRow& row, const ReportWords& words) {
    const double noise = 1 + row.noise;
    const double x = row.bytes == 0 ? row.ranks : static_cast<double>(row.bytes);
    return {x, row.speed, row.speed * noise,
            filled(words.compared_tip, row.what, backend_name_in(words, row.backend),
                   shape_text(row, words), fmt::format("{:.2f}", row.speed), percent(row.noise, 0)),
            row.speed / noise};
}

}  // namespace

FigureGroup comparison_figures(const Comparison& comparison) {
    const ReportWords& words = words_of(comparison.language);
    FigureGroup all;
    all.title = words.change_of_speed;
    all.lead = words.change_lead;
    Names labels;
    // With compressions there are too many lines for one figure of all backends.
    std::set<std::string> apart;
    for (const ComparedRow& row : comparison.rows)
        if (!row.compression.empty() && row.compression != "serial") apart.insert(row.group);
    for (const ComparedRow& row : comparison.rows) {
        const bool is_apart = apart.contains(row.group);
        Figure frame = speed_frame(row, is_apart, words);
        auto figure = std::ranges::find(all.figures, frame.title, &Figure::title);
        if (figure == all.figures.end())
            figure = all.figures.insert(all.figures.end(), std::move(frame));
        const std::string label = !is_apart ? backend_name_in(words, row.backend)
                                  : row.compression.empty()
                                      ? std::string(words.in_full)
                                      : algorithm_name(row.compression, words);
        add_name(labels, label);
        std::vector<Chart::Series>& lines = figure->chart.series;
        auto line = std::ranges::find(lines, label, &Chart::Series::label);
        if (line == lines.end()) {
            line = lines.insert(lines.end(), Chart::Series{});
            line->label = label;
            line->color = static_cast<int>(std::ranges::find(labels, label) - labels.begin());
        }
        line->points.push_back(speed_point(row, words));
    }
    for (Figure& figure : all.figures) {
        for (Chart::Series& line : figure.chart.series)
            std::ranges::stable_sort(line.points, {}, &Chart::Point::x);
        figure.chart.add_level(std::string(words.no_change), 1);
    }
    std::erase_if(all.figures, [](const Figure& figure) { return !figure.chart.has_lines(); });
    share_axis(all.figures, words.speed_axis);
    return all;
}

std::vector<FigureGroup> report_figures(const LabReport& report) {
    const ReportWords& words = report.words();
    const Styles styles(report);
    const std::set<double> rates = line_rates(report);
    std::vector<FigureGroup> all{scaling_figures(report, styles),
                                 weak_scaling_figures(report, styles),
                                 accuracy_figures(report, styles)};
    std::vector<std::pair<std::string, Rows>> groups;
    for (const RowRecord& row : report.rows) {
        const std::string title = subject_of(row, words);
        auto group = std::ranges::find(groups, title, &std::pair<std::string, Rows>::first);
        if (group == groups.end()) group = groups.insert(groups.end(), {title, {}});
        group->second.push_back(&row);
    }
    for (const auto& [title, rows] : groups) {
        FigureGroup& group = all.emplace_back(sweep_figures(title, rows, styles, words));
        bool has_line = false;
        for (Figure& figure : group.figures) has_line = add_line_rates(figure, rates) || has_line;
        if (has_line) group.lead += words.line_rate_lead;
    }
    std::erase_if(all, [](const FigureGroup& figures) { return figures.figures.empty(); });
    return all;
}

}  // namespace dtrun::lab
