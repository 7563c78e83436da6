#include "collectives/backends/backend_table.h"
#include "lab/report/chart.h"
#include "lab/report/figures.h"
#include "lab/report/html.h"
#include "lab/report/text.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::lab;
using Catch::Contains;

namespace {

/// Whether every element that is opened is closed, in order.
bool is_balanced(std::string_view text) {
    std::vector<std::string> open;
    for (std::size_t at = 0; (at = text.find('<', at)) != std::string_view::npos;) {
        const std::size_t end = text.find('>', at);
        if (end == std::string_view::npos) return false;
        const std::string_view tag = text.substr(at + 1, end - at - 1);
        at = end;
        const bool is_void = tag.ends_with('/') || tag.starts_with('!') || tag.starts_with("meta");
        const std::string name(
            tag.substr(tag.starts_with('/'), tag.find_first_of(" >") - tag.starts_with('/')));
        if (tag.starts_with('/')) {
            if (open.empty() || open.back() != name) return false;
            open.pop_back();
        } else if (!is_void) {
            open.push_back(std::string(tag.substr(0, tag.find(' '))));
        }
    }
    return open.empty();
}

Chart line_chart() {
    Chart chart;
    chart.description = "a & b";
    chart.x = {.label = "x"};
    chart.y = {.label = "y"};
    Chart::Series& series = chart.series.emplace_back();
    series.label = "<one>";
    series.points = {{1, 1, kUnknown, "first"}, {2, 4, 5, "second"}, {4, 2, kUnknown, "third"}};
    return chart;
}

}  // namespace

TEST_CASE("axes are marked at round values", "[lab]") {
    using Values = std::vector<double>;
    Chart::Axis axis;
    CHECK(axis_ticks(0, 10, axis, 6) == Values{0, 2, 4, 6, 8, 10});
    CHECK(axis_ticks(3, 3, axis, 6) == Values{3});
    axis.scale = Chart::Scale::logarithmic;
    CHECK(axis_ticks(2, 50, axis, 7) == Values{2, 5, 10, 20, 50});
    CHECK(axis_ticks(1, 1e6, axis, 4) == Values{1, 100, 10'000, 1e6});
    axis.unit = Chart::Unit::bytes;
    CHECK(axis_ticks(4, 1'024, axis, 7) == Values{4, 16, 64, 256, 1'024});
    CHECK(axis_ticks(4, 64.0 * (1 << 20), axis, 7).size() <= 7);
}

TEST_CASE("a chart is one picture with lines, marks, whiskers and labels", "[lab]") {
    const std::string svg = chart_svg(line_chart());
    CHECK(is_balanced(svg));
    CHECK_THAT(svg, Contains("role=\"img\" aria-label=\"a &amp; b\""));
    CHECK_THAT(svg, Contains("&lt;one&gt;<title>"));
    CHECK(count(svg, "class=\"line\"") == 1);
    CHECK(count(svg, "<circle") == 3);
    CHECK(count(svg, "class=\"whisker\"") == 1);
    CHECK_THAT(svg, Contains("<title>second</title>"));
    CHECK_THAT(svg, !Contains("nan") && !Contains("inf"));
}

TEST_CASE("a chart leaves out what it cannot show", "[lab]") {
    Chart chart = line_chart();
    chart.y.scale = Chart::Scale::logarithmic;
    chart.series[0].points[1].y = 0;
    chart.series[0].points[1].high = kUnknown;
    const std::string svg = chart_svg(chart);
    CHECK(count(svg, "<circle") == 2);
    CHECK_THAT(svg, !Contains("nan") && !Contains("inf"));
    CHECK(chart.has_lines());
    chart.series[0].points[2].y = kUnknown;
    CHECK_FALSE(chart.has_lines());
    chart.series[0].points.clear();
    CHECK_THAT(chart_svg(chart), !Contains("nan") && !Contains("inf"));
    CHECK(is_balanced(chart_svg(Chart{})));
}

TEST_CASE("labels of lines that end together are pushed apart", "[lab]") {
    Chart chart = line_chart();
    for (int i = 0; i < 6; ++i) chart.series.push_back(chart.series[0]);
    const std::string svg = chart_svg(chart);
    std::vector<double> places;
    constexpr std::string_view kLabel = "<text class=\"label\" x=\"";
    for (std::size_t at = 0; (at = svg.find(kLabel, at)) != std::string::npos; ++at)
        places.push_back(std::stod(svg.substr(svg.find("y=\"", at) + 3)));
    REQUIRE(places.size() == 7);
    for (std::size_t i = 1; i < places.size(); ++i) CHECK(places[i] - places[i - 1] >= 14.9);
    CHECK(places.back() <= 300);
    CHECK(places.front() >= 0);
}

TEST_CASE("figures compare backends, shapes and compressions", "[lab]") {
    const auto figures = report_figures(lab_report());
    REQUIRE(figures.size() == 2);
    std::vector<std::string> titles;
    for (const FigureGroup& group : figures)
        for (const Figure& figure : group.figures) titles.push_back(figure.title);
    CHECK(titles == std::vector<std::string>{"Speed-up of a training step", "Parallel efficiency",
                                             "mpi: speed-up with compressed gradients",
                                             "By ranks, 1M", "2 hosts x 1 rank: bandwidth",
                                             "2 hosts x 2 ranks: bandwidth",
                                             "2 hosts x 1 rank: time", "2 hosts x 2 ranks: time",
                                             "gloo compressed, 2 hosts x 2 ranks"});
    const Chart& speedup = figures[0].figures[0].chart;
    REQUIRE(speedup.series.size() == 2);
    CHECK(speedup.series[0].is_ideal);
    CHECK(speedup.series[1].points.size() == 3);  // 1, 2 and 4 ranks, each at its best
    CHECK(speedup.series[1].points[1].y == Approx(10.0 / 6));
    REQUIRE(speedup.series[1].loose.size() == 1);
    CHECK(speedup.series[1].loose[0].y == Approx(1.25));
    const Chart& compressed = figures[1].figures.back().chart;
    REQUIRE(compressed.series.size() == 2);
    CHECK(compressed.series[0].label == "in full");
    CHECK(compressed.series[1].label == "int8");
    // A colour stands for one thing in all figures.
    const auto of_backend =
        static_cast<int>(collectives::find_backend("gloo") - collectives::kBackends);
    CHECK(compressed.series[0].color == of_backend);
    CHECK(compressed.series[1].color >= static_cast<int>(collectives::kBackendCount));
    CHECK(report_figures(LabReport{}).empty());
}

TEST_CASE("the page stands alone and holds everything", "[lab]") {
    LabReport report = lab_report();
    report.skipped = {"backend nccl: no GPU"};
    const std::string page = write_html(report);
    const std::size_t body = page.find("<body>");
    CHECK(is_balanced(page.substr(body, page.find("</html>") - body)));
    CHECK_THAT(page, !Contains("<script") && !Contains("http") && !Contains("url("));
    CHECK_THAT(page, Contains("prefers-color-scheme:dark") && Contains("@media print"));
    CHECK_THAT(page, Contains("<h1>Collectives on s1 and s2</h1>"));
    CHECK_THAT(page, Contains("All results right"));
    CHECK_THAT(page, Contains("<td class=\"number\">2.50</td>"));
    CHECK_THAT(page, Contains("backend nccl: no GPU"));
    CHECK(count(page, "<svg") == 9);
    CHECK_THAT(page, Contains("most bus bandwidth of gloo: allreduce, "));
    report.title = "Two & two";
    CHECK_THAT(write_html(report),
               Contains("<h1>Two &amp; two</h1>") && Contains("<title>Two &amp; two</title>"));
    CHECK_THAT(write_markdown(report).text, Catch::StartsWith("# Two &amp; two\n\n"));
}

TEST_CASE("the page says what went wrong, and escapes it", "[lab]") {
    LabReport report = lab_report();
    report.rows[0].wrong = 3;
    report.interrupted = true;
    report.hosts[0].name = "<img src=x>";
    report.failures.emplace_back().error = "a\n  b \"c\" & 'd'";
    const std::string page = write_html(report);
    CHECK_THAT(page, Contains("1 of 12 results wrong") && Contains("1 run failed"));
    CHECK_THAT(page, Contains("Interrupted"));
    CHECK_THAT(page, Contains("<td class=\"number bad\">3</td>"));
    CHECK_THAT(page, Contains("&lt;img src=x&gt;") && !Contains("<img"));
    CHECK_THAT(page, Contains("<pre>a\n  b &quot;c&quot; &amp; &#39;d&#39;</pre>"));
}

TEST_CASE("a comparison is a page too", "[lab]") {
    const LabReport before = lab_report();
    LabReport after = before;
    after.rows[0].t_p50_us *= 3;
    const std::string page = write_html(compare_reports(before, after), before, after);
    CHECK_THAT(page, Contains("<td class=\"bad\">slower</td>"));
    CHECK_THAT(page, Contains("0 faster, 1 slower, 16 within noise"));
    CHECK(count(page, "<svg") == 5);
    CHECK(count(page, "class=\"ideal\"") == 5);
    const std::size_t body = page.find("<body>");
    CHECK(is_balanced(page.substr(body, page.find("</html>") - body)));
    CHECK_THAT(write_html(Comparison{}, before, after), !Contains("<svg"));
}

TEST_CASE("a comparison is drawn by size for each shape, and by ranks for training", "[lab]") {
    const LabReport before = lab_report();
    LabReport after = before;
    after.rows[0].t_p50_us *= 2;
    const FigureGroup figures = comparison_figures(compare_reports(before, after));
    REQUIRE(figures.figures.size() == 5);
    const Figure& first = figures.figures[0];
    CHECK(first.title == "mpi: allreduce of f32, 2 hosts x 1 rank");
    CHECK(figures.figures[4].title == "mpi: training mlp, 256 samples a step, 2 hosts");
    REQUIRE(first.chart.series.size() == 2);
    CHECK(first.chart.series[0].label == "no change");
    CHECK(first.chart.series[1].label == "in full");
    CHECK(figures.figures[1].chart.series.at(2).label == "int8");
    const Chart::Point& slower = first.chart.series[1].points.at(0);
    CHECK(slower.x == 1'024);
    CHECK(slower.y == 0.5);
    CHECK(slower.high < 1);  // its whisker does not reach the line
    CHECK(slower.low < slower.y);
    CHECK(first.chart.series[1].points.at(1).high > 1);
    CHECK(figures.figures[1].chart.y.low == first.chart.y.low);
    CHECK_THAT(chart_svg(first.chart), Contains(">0.5×</text>"));
    Comparison in_full = compare_reports(before, after);
    std::erase_if(in_full.rows, [](const ComparedRow& row) { return !row.compression.empty(); });
    const FigureGroup together = comparison_figures(in_full);
    REQUIRE(together.figures.size() == 3);
    CHECK(together.figures[0].title == "allreduce of f32, 2 hosts x 1 rank");
    CHECK(together.figures[0].chart.series.at(2).label == "gloo");
}

TEST_CASE("a label that is too long is cut, and whole when pointed at", "[lab]") {
    Chart chart = line_chart();
    chart.series[0].label = "gloo fp8-e4m3-unscaled-ef-stochastic";
    const std::string svg = chart_svg(chart);
    CHECK_THAT(svg, Contains(">gloo fp8-e4m3-uns…<title>gloo fp8-e4m3-unscaled-ef-stochastic<"));
}
