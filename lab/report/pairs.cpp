#include "lab/report/pairs.h"

#include "lab/report/heat_map.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

namespace dtrun::lab {
namespace {

constexpr std::size_t kMatrixMax = 8;  // ranks whose matrix fits a terminal

using std::string_view;
using Values = std::vector<std::vector<double>>;

std::string short_host(const std::string& host) {
    return host.substr(0, host.find('.'));
}

/// Makes room for a rank.
void grow(PairMatrix& matrix, std::size_t rank) {
    const std::size_t count = std::max(matrix.names.size(), rank + 1);
    matrix.names.resize(count);
    for (Values* const values : {&matrix.latency_us, &matrix.bandwidth_GBps}) {
        values->resize(count);
        for (std::vector<double>& row : *values) row.resize(count, kUnknown);
    }
}

void add(PairMatrix& matrix, const PairRecord& pair) {
    const auto from = static_cast<std::size_t>(std::max(pair.from, 0));
    const auto to = static_cast<std::size_t>(std::max(pair.to, 0));
    grow(matrix, std::max(from, to));
    matrix.names[from] = fmt::format("{} {}", from, short_host(pair.from_host));
    matrix.names[to] = fmt::format("{} {}", to, short_host(pair.to_host));
    matrix.latency_us[from][to] = pair.latency_us;
    matrix.bandwidth_GBps[from][to] = pair.bandwidth_GBps;
}

std::string latency_text(double latency_us) {
    return short_number(latency_us, 3);
}

/// The matrix of one of the two measurements.
Table matrix_table(const PairMatrix& matrix, const Values& values, std::string title,
                   std::string (*text_of)(double), const ReportWords& words) {
    Table table;
    table.title = std::move(title);
    table.columns = {{std::string(words.from_to), false, ""}};
    for (std::size_t to = 0; to < matrix.names.size(); ++to)
        table.columns.push_back({std::to_string(to), true, ""});
    for (std::size_t from = 0; from < matrix.names.size(); ++from) {
        std::vector<std::string> row{matrix.names[from]};
        for (const double value : values[from]) row.push_back(text_of(value));
        table.rows.push_back(std::move(row));
    }
    return table;
}

struct Range {
    double low = kUnknown, median = kUnknown, high = kUnknown;
    std::size_t low_at = 0, high_at = 0;
};

Range range_of(const std::vector<double>& values) {
    std::vector<std::pair<double, std::size_t>> known;
    for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(values[i])) known.emplace_back(values[i], i);
    if (known.empty()) return {};
    std::ranges::sort(known);
    return {known.front().first, known[known.size() / 2].first, known.back().first,
            known.front().second, known.back().second};
}

/// What each rank, as the sender, has to all others.
Table summary_table(const PairMatrix& matrix, const ReportWords& words) {
    Table table;
    table.title = pairs_title(matrix, words);
    table.note = filled(words.pairs_summary_note, words.pairs_note);
    table.columns =
        columns_of({words.from, words.to, ""}, {words.from, words.latency, words.worst, words.to,
                                                "", words.bandwidth, words.worst, words.to});
    for (std::size_t from = 0; from < matrix.names.size(); ++from) {
        const Range latency = range_of(matrix.latency_us[from]);
        const Range bandwidth = range_of(matrix.bandwidth_GBps[from]);
        table.rows.push_back({matrix.names[from], latency_text(latency.median),
                              latency_text(latency.high), matrix.names[latency.high_at], "",
                              bandwidth_text(bandwidth.median), bandwidth_text(bandwidth.low),
                              matrix.names[bandwidth.low_at]});
    }
    return table;
}

}  // namespace

std::vector<PairMatrix> pair_matrices(const LabReport& report) {
    std::vector<PairMatrix> matrices;
    for (const PairRecord& pair : report.pairs) {
        const auto& shape = static_cast<const ShapeRecord&>(pair);
        auto matrix = std::ranges::find(matrices, shape, &PairMatrix::shape);
        if (matrix == matrices.end()) {
            matrix = matrices.insert(matrices.end(), PairMatrix{});
            matrix->shape = shape;
        }
        add(*matrix, pair);
    }
    return matrices;
}

std::string pairs_title(const PairMatrix& matrix, const ReportWords& words) {
    return filled(matrix.is_of_hosts() ? words.pairs_of_hosts : words.pairs_of_ranks,
                  matrix.shape.backend);
}

std::vector<Table> pair_tables(const LabReport& report) {
    const ReportWords& words = report.words();
    std::vector<Table> tables;
    for (const PairMatrix& matrix : pair_matrices(report)) {
        if (matrix.names.size() > kMatrixMax) {
            tables.push_back(summary_table(matrix, words));
            continue;
        }
        const std::string title = pairs_title(matrix, words);
        tables.push_back(matrix_table(matrix, matrix.latency_us, filled(words.latency_of, title),
                                      latency_text, words));
        tables.back().note = words.pairs_note;
        tables.push_back(matrix_table(matrix, matrix.bandwidth_GBps,
                                      filled(words.bandwidth_of, title), bandwidth_text, words));
        tables.back().note = words.rows_send;
    }
    return tables;
}

std::vector<HeatMap> heat_maps(const PairMatrix& matrix, const ReportWords& words) {
    const auto draw = [&matrix](string_view name, const Values& values, const char* unit,
                                std::string (*text_of)(double), bool high_is_slow) {
        const std::string title(name);
        return HeatMap{title, heat_map_svg({.description = title,
                                            .names = matrix.names,
                                            .values = values,
                                            .unit = unit,
                                            .text_of = text_of,
                                            .strong_is_high = high_is_slow})};
    };
    return {draw(words.latency_map, matrix.latency_us, "us", latency_text, true),
            draw(words.bandwidth_map, matrix.bandwidth_GBps, "GB/s", bandwidth_text, false)};
}

}  // namespace dtrun::lab
