#include "base/strings.h"
#include "lab/report/figures.h"
#include "lab/report/heat_map.h"
#include "lab/report/html.h"
#include "lab/report/pairs.h"
#include "lab/report/text.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::lab;
using Catch::Contains;

namespace {

void check_width(const std::string& text) {
    for (const std::string_view line : split(text, '\n')) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
    }
}

}  // namespace

TEST_CASE("pairs are a matrix of senders and receivers", "[lab]") {
    LabReport report;
    add_pairs(report, 3);
    const auto matrices = pair_matrices(report);
    REQUIRE(matrices.size() == 1);
    CHECK(pairs_title(matrices[0]) == "Pairs of hosts, gloo");
    CHECK(matrices[0].names == std::vector<std::string>{"0 s1", "1 s2", "2 s3"});
    CHECK(matrices[0].latency_us[0][2] == 100);
    CHECK(matrices[0].bandwidth_GBps[1][0] == 0.117);
    CHECK(std::isnan(matrices[0].latency_us[1][1]));
    const std::string text = terminal_summary(report, false);
    CHECK_THAT(text, Contains("Pairs of hosts, gloo: latency in microseconds\n"));
    CHECK_THAT(text, Contains("  from, to     0     1    2\n"
                              "  0 s1         -  25.0  100\n"
                              "  1 s2      25.0     -  100\n"));
    CHECK_THAT(text, Contains("  0 s1          -  0.117  0.050\n"));
    check_width(text);
    for (PairRecord& pair : report.pairs) pair.slots_per_host = 2;
    CHECK(pairs_title(pair_matrices(report)[0]) == "Pairs of ranks, gloo");
    CHECK(pair_matrices(LabReport{}).empty());
}

TEST_CASE("a matrix that is too wide for a terminal is told by its ranges", "[lab]") {
    LabReport report;
    add_pairs(report, 12);
    const auto tables = pair_tables(report);
    REQUIRE(tables.size() == 1);
    REQUIRE(tables[0].rows.size() == 12);
    CHECK(tables[0].rows[0] == std::vector<std::string>{"0 s1", "25.0", "100", "11 s12", "",
                                                        "0.117", "0.050", "11 s12"});
    check_width(terminal_summary(report, false));
}

TEST_CASE("a heat map shows every pair, and what is slow most strongly", "[lab]") {
    LabReport report;
    add_pairs(report, 4);
    const auto maps = heat_maps(pair_matrices(report)[0]);
    REQUIRE(maps.size() == 2);
    for (const HeatMap& map : maps) {
        CHECK(count(map.svg, "class=\"heat\"") == 12);
        CHECK(count(map.svg, "fill-opacity=\"0.50\"") == 6);  // of the slow host
        CHECK(count(map.svg, "fill-opacity=\"0.06\"") == 6);
        CHECK_THAT(map.svg, !Contains("nan") && !Contains("inf"));
    }
    CHECK_THAT(maps[0].svg, Contains("<title>0 s1 → 3 s4: 100 us</title>"));
    CHECK_THAT(maps[1].svg, Contains("<title>3 s4 → 0 s1: 0.050 GB/s</title>"));
    for (PairRecord& pair : report.pairs) pair.latency_us = 25 + pair.to * 0.1;
    CHECK_THAT(heat_maps(pair_matrices(report)[0])[0].svg, !Contains("fill-opacity=\"0.5"));
    add_pairs(report, 64);
    const std::string page = write_html(report);
    CHECK(count(page, "class=\"heat\"") == 2 * (4 * 3 + 64 * 63));
    CHECK_THAT(page, Contains("<h2>Pairs of hosts, gloo</h2>"));
    report.pairs[0].from_host = "<b>";
    CHECK_THAT(write_html(report), !Contains("<b>") || Contains("&lt;b&gt;"));
}

TEST_CASE("the speed of the network is a line in charts of bandwidths between hosts", "[lab]") {
    LabReport report = lab_report();
    const auto ideals = [](const LabReport& of) {
        std::vector<std::string> labels;
        for (const FigureGroup& group : report_figures(of))
            for (const Figure& figure : group.figures)
                for (const Chart::Series& series : figure.chart.series)
                    if (series.is_ideal && series.label != "ideal") {
                        CHECK(figure.chart.y.label == "bus bandwidth");
                        CHECK(series.points.front().x < series.points.back().x);
                        labels.push_back(series.label + fmt::format(" {}", series.points[0].y));
                    }
        return labels;
    };
    CHECK(ideals(report).empty());
    report.comms[0].line_rate_mbit = 25'000;
    CHECK(ideals(report) == std::vector<std::string>(4, "25 Gbit/s 3.125"));
    CHECK_THAT(write_html(report), Contains("A dashed line is the speed of the network"));
    report.line_rate_mbit = 100;
    CHECK(ideals(report) == std::vector<std::string>(4, "100 Mbit/s 0.0125"));
    for (RowRecord& row : report.rows) row.hosts = 1;
    CHECK(ideals(report).empty());
    CHECK_THAT(write_html(report), !Contains("A dashed line is the speed"));
}

TEST_CASE("rows in place have tables and figures of their own", "[lab]") {
    LabReport report = lab_report();
    const auto rows = report.rows;
    for (RowRecord row : rows) {
        row.in_place = true;
        row.t_p50_us /= 2;
        report.rows.push_back(row);
    }
    const std::string page = write_html(report);
    CHECK_THAT(page, Contains("<h2>allreduce of f32</h2>") &&
                         Contains("<h2>allreduce of f32, in place</h2>"));
    TerminalRows lines;
    CHECK_THAT(lines.row(report.rows.back()), Contains(", allreduce f32 in place, compressed to"));
    const Comparison same = compare_reports(report, report);
    CHECK(same.rows.size() == report.rows.size() + report.train.size());
    CHECK(same.only_after == 0);
}
