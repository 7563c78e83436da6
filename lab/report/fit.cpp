#include "lab/report/fit.h"

#include "lab/plan/plan.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <tuple>

namespace dtrun::lab {
namespace {

using Rows = std::vector<const RowRecord*>;

constexpr std::size_t kSizesMin = 3;

auto key_of(const RowRecord& row) {
    return std::tuple(static_cast<const ShapeRecord&>(row), row.op, row.dtype);
}

std::vector<Rows> rows_by_key(const LabReport& report) {
    std::vector<Rows> all;
    for (const RowRecord& row : report.rows) {
        const bool in_full = row.compression.empty() || row.compression == "none";
        if (!in_full || row.in_place || row.bytes == 0 || !(row.t_p50_us > 0)) continue;
        auto rows = std::ranges::find_if(
            all, [&row](const Rows& each) { return key_of(*each.front()) == key_of(row); });
        if (rows == all.end()) rows = all.insert(all.end(), Rows{});
        rows->push_back(&row);
    }
    return all;
}

/// T = latency + slope * S, in microseconds and bytes.
struct Line {
    double latency = 0;
    double slope = 0;
    double operator()(double bytes) const { return latency + slope * bytes; }
};

/// Least squares of (T(S) - t) / t. A negative latency means that there is none to be seen.
Line fit_line(const Rows& rows) {
    double ww = 0, wx = 0, xx = 0, w = 0, x = 0;
    for (const RowRecord* const row : rows) {
        const double weight = 1 / row->t_p50_us;
        const double scaled = static_cast<double>(row->bytes) * weight;
        ww += weight * weight;
        wx += weight * scaled;
        xx += scaled * scaled;
        w += weight;
        x += scaled;
    }
    const double determinant = ww * xx - wx * wx;
    if (determinant > 0) {
        const Line line{(w * xx - x * wx) / determinant, (x * ww - w * wx) / determinant};
        if (line.latency >= 0) return line;
    }
    return {0, xx > 0 ? x / xx : 0};
}

double deviation(const Rows& rows, const Line& line) {
    double squares = 0;
    for (const RowRecord* const row : rows) {
        const double relative = line(static_cast<double>(row->bytes)) / row->t_p50_us - 1;
        squares += relative * relative;
    }
    return std::sqrt(squares / static_cast<double>(rows.size()));
}

}  // namespace

std::vector<CostFit> fit_costs(const LabReport& report) {
    std::vector<CostFit> fits;
    for (const Rows& rows : rows_by_key(report)) {
        if (rows.size() < kSizesMin) continue;
        const Line line = fit_line(rows);
        const RowRecord& first = *rows.front();
        const double bus_factor = first.busbw_GBps / first.algbw_GBps;
        if (!(line.slope > 0) || !(bus_factor > 0)) continue;
        CostFit& fit = fits.emplace_back();
        static_cast<ShapeRecord&>(fit) = first;
        fit.op = first.op;
        fit.dtype = first.dtype;
        fit.latency_us = line.latency;
        fit.bandwidth_GBps = bus_factor / line.slope / 1e3;
        fit.half_bytes = line.latency / line.slope;
        fit.error = deviation(rows, line);
    }
    return fits;
}

Table fit_table(const LabReport& report) {
    Table table;
    const ReportWords& words = report.words();
    table.title = words.fit;
    table.note = words.fit_note;
    table.columns = columns_of({words.backend, words.operation},
                               {words.backend, words.hosts, words.per_host, words.operation,
                                words.latency, words.bandwidth, words.half_at, words.deviation});
    for (const CostFit& fit : fit_costs(report))
        table.rows.push_back({fit.backend, std::to_string(fit.hosts),
                              std::to_string(fit.slots_per_host), fit.op + " " + fit.dtype,
                              short_number(fit.latency_us, 3) + " us",
                              bandwidth_text(fit.bandwidth_GBps) + " GB/s",
                              short_bytes(std::round(fit.half_bytes)), percent(fit.error, 0)});
    return table;
}

}  // namespace dtrun::lab
