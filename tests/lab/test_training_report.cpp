#include "base/strings.h"
#include "base/text_layout.h"
#include "lab/report/compare.h"
#include "lab/report/figures.h"
#include "lab/report/html.h"
#include "lab/report/text.h"
#include "lab/report/training_tables.h"
#include "lab/report/words.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

#include <set>

using namespace dtrun;
using namespace dtrun::lab;
using Catch::Contains;

namespace {

/// Two algorithms of gloo with three seeds each, and a target.
LabReport seeds_report() {
    LabReport report;
    report.target_accuracy = 0.95;
    int seed = 0;
    for (const double bonus : {0.0, 0.01, 0.02}) {
        ++seed;
        report.train.push_back(with_epochs(train_record("serial", "none", 1, 1, 10), seed,
                                           {0.9 + bonus, 0.95, 0.96 + bonus}));
        report.train.push_back(with_epochs(train_record("parallel", "gloo", 2, 2, 4 + seed), seed,
                                           {0.9 + bonus, 0.95, 0.96 + bonus}));
        report.train.push_back(with_epochs(train_record("int8", "gloo", 2, 2, 3), seed,
                                           {0.8, 0.9, seed == 1 ? 0.94 : 0.95}));
    }
    return report;
}

TrainRecord weak_record(const std::string& backend, int hosts, int slots, double step_ms) {
    TrainRecord run = train_record("parallel", backend, hosts, slots, step_ms);
    run.scaling = "weak";
    run.global_batch *= run.ranks;
    run.samples_per_s = run.global_batch * 1e3 / step_ms;
    return run;
}

LabReport weak_report() {
    LabReport report;
    report.train = {train_record("serial", "none", 1, 1, 10), weak_record("gloo", 1, 2, 12.5),
                    weak_record("gloo", 2, 2, 20)};
    return report;
}

const FigureGroup* group_of(const std::vector<FigureGroup>& groups, std::string_view title) {
    const auto found = std::ranges::find(groups, title, &FigureGroup::title);
    return found == groups.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("a mean over seeds has Student's interval", "[lab]") {
    const Estimate estimate = estimate_of(std::vector{1.0, 2.0, 3.0, kUnknown});
    CHECK(estimate.mean == 2);
    CHECK(estimate.count == 3);
    CHECK(estimate.interval == Approx(4.303 / std::sqrt(3.0)));
    CHECK(std::isnan(estimate_of(std::vector{1.0}).interval));
    CHECK(estimate_of(std::vector{1.0}).mean == 1);
    CHECK(std::isnan(estimate_of({}).mean));
    CHECK(student_t(1) == Approx(12.706));
    CHECK(student_t(30) == Approx(2.042));
    CHECK(student_t(40) == Approx(2.021).epsilon(1e-3));
    CHECK(student_t(1'000) == Approx(1.962).epsilon(1e-3));
}

TEST_CASE("trainings that differ by their seed alone are one", "[lab]") {
    const LabReport report = seeds_report();
    const auto groups = train_groups(report);
    REQUIRE(groups.size() == 3);
    CHECK(seeds_of(groups) == 3);
    CHECK(groups[1].run.algorithm == "parallel");
    CHECK(groups[1].run.step_ms == 6);  // the median of 5, 6 and 7
    CHECK(groups[1].accuracy.mean == Approx(0.97));
    CHECK(groups[1].accuracy.interval == Approx(4.303 * 0.01 / std::sqrt(3.0)));
    LabReport other = report;
    other.train[1].global_batch = 512;
    CHECK(train_groups(other).size() == 4);
    CHECK(train_groups(LabReport{}).empty());
}

TEST_CASE("the time to an accuracy ends with the epoch that reached it", "[lab]") {
    const LabReport report = seeds_report();
    CHECK(seconds_to(report.train[0], 0.95) == 4);
    CHECK(seconds_to(report.train[0], 0.9) == 2);
    CHECK(std::isnan(seconds_to(report.train[0], 0.99)));
    const std::string text = write_markdown(report).text;
    CHECK_THAT(text, Contains("## Time to 95 % accuracy\n"));
    CHECK_THAT(text, Contains("| parallel | 4 devices (2 x 2) | gloo | 3 of 3 | 4.00 ± 0 s | 2 |"));
    CHECK_THAT(text,
               Contains("| 8 bits (int8) | 4 devices (2 x 2) | gloo | 2 of 3 | 6.00 ± 0 s | 3 |"));
    CHECK_THAT(text, Contains("| parallel | 4 devices (2 x 2) | 6.00 s | 97.00 ± 2.48 % |"));
    CHECK_THAT(text, Contains("3 seeds: the mean, and the 95 % interval of it."));
    LabReport without = report;
    without.target_accuracy = kUnknown;
    CHECK_THAT(write_markdown(without).text, !Contains("Time to"));
}

TEST_CASE("a seed that failed is told beside the accuracy", "[lab]") {
    LabReport report = seeds_report();
    report.train.pop_back();
    CHECK_THAT(write_markdown(report).text, Contains(" % (2 seeds) |"));
}

TEST_CASE("weak scaling compares throughputs of equal parts", "[lab]") {
    const LabReport report = weak_report();
    const auto points = scaling_of(report, "parallel", "weak");
    REQUIRE(points.size() == 3);
    CHECK(points[0].efficiency == 1);
    CHECK(points[1].efficiency == Approx(0.8));
    CHECK(points[1].speedup == Approx(1.6));
    CHECK(points[2].efficiency ==
          Approx(points[2].run.samples_per_s / 4 / points[0].run.samples_per_s));
    CHECK(scaling_of(report, "parallel").size() == 1);  // serial is of both
    const std::string text = write_markdown(report).text;
    CHECK_THAT(text,
               Contains("## Weak scaling inside a host\n\nmlp, 256 samples in a step of each"));
    CHECK_THAT(text, Contains("| gloo | 1 | 2 | 512 | 12.50 ms | 40960 samples/s | 1.60 | 80 % | "
                              "20 % |"));
    CHECK_THAT(text, !Contains("## Scaling"));
    CHECK_THAT(text, Contains("| parallel, weak | 2 devices | 1m13.8s | 98.35 % |\n"
                              "|  | 4 devices (2 x 2) | 1m13.8s | 98.35 % |\n"));
    const auto groups = report_figures(report);
    const FigureGroup* const weak = group_of(groups, "Weak scalability");
    REQUIRE(weak != nullptr);
    REQUIRE(weak->figures.size() == 3);
    const Chart& throughput = weak->figures[0].chart;
    REQUIRE(throughput.series.size() == 2);
    CHECK(throughput.series[0].is_ideal);
    CHECK(throughput.series[0].points[1].y == Approx(4 * 25'600));
    CHECK(throughput.series[1].points[2].y == Approx(1'024 * 50));
    CHECK(weak->figures[1].chart.series[1].points[1].y == Approx(1.6));
    CHECK(weak->figures[2].chart.series[1].points[1].y == Approx(0.8));
    CHECK(group_of(groups, "Scalability") == nullptr);
}

TEST_CASE("a GPU is compared with a GPU that is alone, a processor with a processor", "[lab]") {
    LabReport report;
    report.train = {
        train_record("serial", "none", 1, 1, 10),  train_record("serial", "nccl", 1, 1, 0.5),
        train_record("parallel", "gloo", 1, 2, 5), train_record("parallel", "nccl", 1, 2, 0.4),
        weak_record("gloo", 1, 2, 12.5),           weak_record("nccl", 1, 2, 0.625)};
    const auto points = scaling_of(report, "parallel");
    REQUIRE(points.size() == 4);
    CHECK(points[1].speedup == 1);
    CHECK(points[2].speedup == Approx(2));
    CHECK(points[3].speedup == Approx(1.25));
    const std::string text = write_markdown(report).text;
    CHECK_THAT(text, Contains("| serial | 1 | 1 | 10.00 ms |"));
    CHECK_THAT(text, Contains("| serial, GPU | 1 | 1 | 0.5000 ms |"));
    CHECK_THAT(text, Contains("## Training time and accuracy, nccl\n") &&
                         Contains("| serial, GPU | 1 device | 1m13.8s | 98.35 % |"));
    const auto groups = report_figures(report);
    const FigureGroup* const scaling = group_of(groups, "Scalability");
    REQUIRE(scaling != nullptr);
    const Chart& speedup = scaling->figures[0].chart;
    REQUIRE(speedup.series.size() == 3);
    for (const std::size_t backend : {1u, 2u}) CHECK(speedup.series[backend].points.size() == 2);
    const FigureGroup* const weak = group_of(groups, "Weak scalability");
    REQUIRE(weak != nullptr);
    REQUIRE(weak->figures.size() == 4);
    CHECK(weak->figures[0].title == "Throughput");
    CHECK(weak->figures[1].title == "Throughput of GPUs");
    CHECK(weak->figures[1].chart.series[0].points[1].y == Approx(2 * 256 / 0.5e-3));
    // A processor's time says nothing of a GPU's.
    std::erase_if(report.train, [](const TrainRecord& run) { return run.algorithm == "serial"; });
    report.train.push_back(train_record("serial", "none", 1, 1, 10));
    CHECK(std::isnan(scaling_of(report, "parallel")[1].speedup));
}

TEST_CASE("accuracy is drawn by time and by epochs, with the target", "[lab]") {
    const LabReport report = seeds_report();
    const auto groups = report_figures(report);
    const FigureGroup* const accuracy = group_of(groups, "Accuracy");
    REQUIRE(accuracy != nullptr);
    REQUIRE(accuracy->figures.size() == 2);
    CHECK(accuracy->figures[0].title == "gloo, 2 hosts x 2 ranks: by time");
    const Chart& chart = accuracy->figures[0].chart;
    REQUIRE(chart.series.size() == 4);
    CHECK(chart.series[0].label == "95 %");
    CHECK(chart.series[0].is_ideal);
    CHECK(chart.series[1].label == "serial");
    CHECK(chart.series[2].label == "in full");
    CHECK(chart.series[3].label == "int8");
    const Chart::Point& first = chart.series[2].points.at(0);
    CHECK(first.x == 2);
    CHECK(first.y == Approx(0.91));
    CHECK(first.low == Approx(0.91 - 4.303 * 0.01 / std::sqrt(3.0)));
    CHECK(chart.series[3].points.size() == 3);
    CHECK(accuracy->figures[1].chart.series[2].points.at(2).x == 3);
    const std::string svg = chart_svg(chart);
    CHECK_THAT(svg, Contains(">80 %</text>") && !Contains(">0 %</text>"));
    CHECK_THAT(svg, !Contains("nan"));
    CHECK_THAT(write_html(report),
               Contains("<h2>Accuracy</h2>") && Contains("<h2>Time to 95 % accuracy</h2>"));
}

TEST_CASE("trainings that fail leave room for the others in a close-up", "[lab]") {
    LabReport report = seeds_report();
    for (TrainRecord& run : report.train)
        if (run.algorithm == "int8") run.by_epoch.back().accuracy = 0.1;
    const auto groups = report_figures(report);
    const FigureGroup* const accuracy = group_of(groups, "Accuracy");
    REQUIRE(accuracy != nullptr);
    REQUIRE(accuracy->figures.size() == 4);
    CHECK(accuracy->figures[1].title == "gloo, 2 hosts x 2 ranks: by time, close-up");
    CHECK(accuracy->figures[0].chart.series.size() == 4);
    const Chart& closer = accuracy->figures[1].chart;
    REQUIRE(closer.series.size() == 3);
    CHECK(closer.series[0].label == "95 %");
    CHECK(closer.series[2].label == "in full");
    CHECK_THAT(chart_svg(closer), !Contains(">80 %</text>"));
}

TEST_CASE("the tables of several seeds fit 80 columns", "[lab]") {
    LabReport report = seeds_report();
    for (const TrainRecord& run : weak_report().train) report.train.push_back(run);
    TerminalRows lines;
    std::string text;
    for (const TrainRecord& run : report.train) text += lines.train(run);
    CHECK_THAT(text, Contains("# training mlp, 256 samples a step, seed 2\n"));
    CHECK_THAT(text, Contains("# training mlp, 256 samples a step of each rank, seed 1\n"));
    text += terminal_summary(report, false);
    CHECK_THAT(text,
               Contains("Weak scaling between hosts\n") && Contains("Time to 95 % accuracy\n"));
    for (const std::string_view line : split(text, '\n')) {
        CAPTURE(line);
        const auto wide = std::ranges::count(line, '\xc2');  // the first byte of a plus-minus sign
        CHECK(static_cast<std::ptrdiff_t>(line.size()) - wide <= 80);
    }
}

TEST_CASE("trainings of a backend are one table, by algorithms and devices", "[lab]") {
    LabReport report;
    for (const char* const backend : {"own", "mpi"})
        for (const char* const algorithm : {"fp16", "int8", "parallel", "mine"})
            for (const int slots : {4, 2})
                report.train.push_back(train_record(algorithm, backend, 1, slots, 10));
    report.train.back().accuracy = kUnknown;  // mine, 2 ranks over mpi
    report.train.push_back(train_record("serial", "none", 1, 1, 10));
    const auto tables = compression_tables(report);
    REQUIRE(tables.size() == 2);
    CHECK(tables[1].title == "Training time and accuracy, mpi");
    std::vector<std::string> heads;
    for (const Table::Column& column : tables[1].columns)
        heads.push_back(column.group + "/" + column.name);
    CHECK(heads == std::vector<std::string>{"/algorithm", "1 device/training time",
                                            "1 device/accuracy", "2 devices/training time",
                                            "2 devices/accuracy", "4 devices/training time",
                                            "4 devices/accuracy"});
    std::vector<std::string> names;
    for (const auto& row : tables[1].rows) names.push_back(row[0]);
    CHECK(names == std::vector<std::string>{"serial", "parallel", "mine", "8 bits (int8)",
                                            "16 bits (fp16)"});
    CHECK(tables[1].rows[0] ==
          std::vector<std::string>{"serial", "1m13.8s", "98.35 %", "-", "-", "-", "-"});
    CHECK(tables[1].rows[2] ==
          std::vector<std::string>{"mine", "-", "-", "1m13.8s", "-", "1m13.8s", "98.35 %"});
}

TEST_CASE("a table with groups of columns has a row for each of them where lines are short",
          "[lab]") {
    LabReport report;
    report.train = {train_record("serial", "none", 1, 1, 10)};
    for (const char* const algorithm : {"parallel", "int8"})
        for (const int slots : {2, 4})
            report.train.push_back(train_record(algorithm, "own", 1, slots, 10));
    const Table table = compression_tables(report).at(0);
    const Table rows = with_groups_as_rows(table);
    CHECK(rows.columns.size() == 4);
    CHECK(rows.columns[1].name == "devices");
    using Row = std::vector<std::string>;
    CHECK(rows.rows == std::vector<Row>{{"serial", "1 device", "1m13.8s", "98.35 %"},
                                        {"parallel", "2 devices", "1m13.8s", "98.35 %"},
                                        {"", "4 devices", "1m13.8s", "98.35 %"},
                                        {"8 bits (int8)", "2 devices", "1m13.8s", "98.35 %"},
                                        {"", "4 devices", "1m13.8s", "98.35 %"}});
    CHECK_THAT(plain_text(table),
               Contains("  algorithm      devices    training time  accuracy\n") &&
                   Contains("\n                 4 devices        1m13.8s   98.35 %\n"));
    CHECK_THAT(write_markdown(report).text, Contains("|  | 4 devices | 1m13.8s | 98.35 % |\n"));
    CHECK_THAT(write_html(report),
               Contains("<th scope=\"col\" rowspan=\"2\">algorithm</th>"
                        "<th scope=\"colgroup\" colspan=\"2\" class=\"group\">1 device</th>"));
    CHECK(with_groups_as_rows(scaling_tables(report, "strong").at(0)).columns.size() == 8);
}

TEST_CASE("scaling inside a host and between hosts are a table each, as far as there are both",
          "[lab]") {
    LabReport report;
    report.train = {train_record("serial", "none", 1, 1, 10),
                    train_record("parallel", "own", 1, 2, 6)};
    for (TrainRecord& run : report.train) run.comm_ms = kUnknown;
    const auto one = scaling_tables(report, "strong");
    REQUIRE(one.size() == 1);
    CHECK(one[0].title == "Scaling");
    CHECK(one[0].columns.back().name == "efficiency");  // nobody knows of communication
    report.train.push_back(train_record("parallel", "own", 2, 2, 4));
    const auto both = scaling_tables(report, "strong");
    REQUIRE(both.size() == 2);
    CHECK((both[0].title == "Scaling inside a host" && both[0].rows.size() == 2));
    CHECK((both[1].title == "Scaling between hosts" && both[1].rows.size() == 2));
    CHECK(both[1].rows[0][0] == "serial");
    CHECK(both[1].rows[1][1] == "2");
    std::erase_if(report.train, [](const TrainRecord& run) { return run.ranks == 2; });
    REQUIRE(scaling_tables(report, "strong").size() == 1);
    CHECK(scaling_tables(report, "strong")[0].rows.size() == 2);
}

TEST_CASE("a program is told by its words, without the folder of the first, in lines of 80 columns",
          "[lab]") {
    TrainRecord run = train_record("parallel", "own", 1, 2, 6);
    run.epochs = 0;
    run.model = "/opt/conda/envs/horovod/bin/python train.py --data /scratch/mnist";
    CHECK(model_text(run) == "python train.py --data /scratch/mnist");
    CHECK(training_title(run) == "python train.py --data /scratch/mnist, 256 samples a step");
    run.model += " --lr 0.01 --momentum 0.5";
    CHECK_THAT(
        TerminalRows().train(run),
        Contains(
            "\n# python train.py --data /scratch/mnist --lr 0.01 --momentum 0.5, 256 samples a\n"
            "# step, seed 1\n"));
    run.model = "'/my tools/python' train.py";
    CHECK(model_text(run) == run.model);
}

TEST_CASE("each text of reports is there in both languages, with the same places", "[lab]") {
    const auto places_of = [](std::string_view text) {
        std::set<std::string> places;
        for (std::size_t at = 0; (at = text.find('{', at)) != std::string_view::npos; ++at)
            places.emplace(text.substr(at, 3));
        return places;
    };
    const ReportWords& english = words_of(Language::english);
    const ReportWords& chinese = words_of(Language::chinese);
    const auto is_chinese = [](std::string_view text) {
        return std::ranges::any_of(text, [](char c) { return (c & 0x80) != 0; });
    };
    // GPU and a pair of numbers are written in the same way.
    const std::set<std::string_view> alike{"gpus", "of_of"};
#define WORD(name, ...)                                             \
    {                                                               \
        CAPTURE(#name);                                             \
        CHECK_FALSE(english.name.empty());                          \
        CHECK_FALSE(is_chinese(english.name));                      \
        CHECK((is_chinese(chinese.name) || alike.contains(#name))); \
        CHECK(places_of(english.name) == places_of(chinese.name));  \
    }
#include "lab/report/words.def"
#undef WORD
}

TEST_CASE("a report can be Chinese, and its tables stand in columns", "[lab]") {
    LabReport report = seeds_report();
    report.language = Language::chinese;
    for (const TrainRecord& run : lab_report().train) report.train.push_back(run);
    report.rows = lab_report().rows;
    report.hosts = lab_report().hosts;
    add_pairs(report, 3);
    TerminalRows lines(Language::chinese);
    CHECK_THAT(lines.train(report.train[0]), Contains("# 训练 mlp，每步 256 个样本，种子 1\n"));
    const std::string text = terminal_summary(report, false);
    for (const std::string_view line : split(text, '\n')) {
        CAPTURE(line);
        CHECK(width_in_columns(line) <= 80);
    }
    CHECK_THAT(text,
               Contains("实验环境\n") && Contains("服务器间加速比\n") && Contains("每步耗时"));
    const MarkdownReport markdown = write_markdown(report, "lab");
    CHECK_THAT(markdown.text, Contains("| 串行训练 | ") && Contains("| 8 bit 压缩（int8） | ") &&
                                  Contains("![可扩展性（scalability）曲线](<lab-1.svg>)"));
    REQUIRE(markdown.pictures.size() == 3);
    CHECK_THAT(markdown.pictures[0], Catch::StartsWith("<svg xmlns=") &&
                                         Contains(">进程数</text>") &&
                                         Contains(">训练加速比</text>"));
    const std::string page = write_html(report);
    CHECK_THAT(page, Contains("<html lang=\"zh-CN\">") && Contains("正确率曲线"));
    // What a reader could take for a text that was left out.
    for (const char* const english : {"speed-up", "hosts", " ranks", "accuracy", "epoch", "Time"}) {
        CAPTURE(english);
        CHECK_THAT(text, !Contains(english));
        CHECK_THAT(markdown.text, !Contains(english));
    }
    CHECK(write_markdown(report).pictures.empty());
}

TEST_CASE("epochs are lines of CSV", "[lab]") {
    const LabReport report = seeds_report();
    const std::string csv = write_csv(report);
    const auto lines = split(csv, '\n');
    REQUIRE(lines.size() == 1 + 9 + 27 + 1);
    const auto columns = split(lines[0], ',').size();
    for (std::size_t i = 0; i + 1 < lines.size(); ++i)
        CHECK(split(lines[i], ',').size() == columns);
    CHECK_THAT(std::string(lines[0]), Contains(",seed,") && Contains(",epoch,"));
    CHECK_THAT(std::string(lines[10]), Catch::StartsWith("epoch,none,1,1,1,"));
}

TEST_CASE("seeds are compared by their median", "[lab]") {
    const LabReport before = seeds_report();
    LabReport after = before;
    for (TrainRecord& run : after.train) run.step_ms /= 2;
    const Comparison comparison = compare_reports(before, after);
    REQUIRE(comparison.rows.size() == 3);
    CHECK(comparison.rows[1].before_us == 6'000);
    CHECK(comparison.rows[1].speed == 2);
    const LabReport weak = weak_report();
    CHECK(compare_reports(weak, weak).rows.size() == 3);
    CHECK(compare_reports(weak, weak).rows[1].what == "train mlp 512 parallel, weak");
}
