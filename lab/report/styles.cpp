#include "lab/report/styles.h"

#include "lab/report/phrases.h"
#include "lab/report/training.h"

#include <algorithm>
#include <map>

namespace dtrun::lab {
namespace {

bool is_in_full(std::string_view name) {
    return name.empty() || name == "none" || name == "parallel";
}

}  // namespace

void add_name(Names& names, const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

Styles::Styles(const LabReport& report) : words_(report.words()) {
    for (const RowRecord& row : report.rows) {
        add_name(backends_, row.backend);
        if (!is_in_full(row.compression)) add_name(compressions_, row.compression);
    }
    for (const TrainRecord& run : report.train) {
        if (run.is_serial()) continue;
        add_name(backends_, run.backend);
        if (run.algorithm != "parallel") add_name(compressions_, run.algorithm);
    }
}

Chart::Series Styles::backend(const std::string& name) const {
    const collectives::BackendRow* const row = collectives::find_backend(name);
    const auto other = std::ranges::find(backends_, name) - backends_.begin();
    Chart::Series series;
    series.label = backend_name_in(words_, name);
    series.color = row != nullptr ? static_cast<int>(row - collectives::kBackends)
                                  : static_cast<int>(kKnown + other % (Chart::kColors - kKnown));
    return series;
}

Chart::Series Styles::compression(const std::string& name, const std::string& backend_name) const {
    Chart::Series series = backend(backend_name);
    series.label = is_in_full(name) ? std::string(words_.in_full) : algorithm_name(name, words_);
    const auto place = std::ranges::find(compressions_, name) - compressions_.begin();
    if (!is_in_full(name)) series.color = static_cast<int>((kKnown + place) % Chart::kColors);
    return series;
}

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

Chart::Axis ranks_axis(const ReportWords& words) {
    Chart::Axis axis;
    axis.label = words.ranks;
    axis.only_values = true;
    return axis;
}

void add_if_lines(std::vector<Figure>& figures, Figure figure) {
    if (figure.chart.has_lines()) figures.push_back(std::move(figure));
}

}  // namespace dtrun::lab
