#include "base/strings.h"
#include "lab/report/compare.h"
#include "lab/report/text.h"
#include "lab/report/training.h"
#include "lab/run/command.h"
#include "lab/run/run.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::lab;
using Catch::Contains;

namespace {

using Line = RecordReader::Line;

/// A report without what it was told of anything.
LabReport only_host(const std::string& name) {
    LabReport report;
    report.hosts.emplace_back().name = name;
    return report;
}

}  // namespace

TEST_CASE("lines of the rank program become rows", "[lab]") {
    LabReport report;
    RecordReader reader(report);
    CHECK(
        reader.take(
            R"({"type":"host","name":"s1","cores":2,"nics":[{"name":"eth0","speed_mbit":1000}],"gpus":[{"model":"T4","memory_bytes":16106127360}],"nccl":"2.28.9","torch":null})") ==
        Line::host);
    CHECK(reader.take(R"({"type":"host","name":"s1","cores":4})") == Line::host);
    CHECK(
        reader.take(
            R"({"type":"comm","backend":"mpi","oversubscribed":1,"details":{"RDMA":"no","n":3}})") ==
        Line::comm);
    CHECK(
        reader.take(
            R"( {"type":"row","backend":"mpi","bytes":1024,"t_p50_us":1.5,"wrong":0,"rel_err":1e-3})") ==
        Line::row);
    CHECK(reader.take(R"({"type":"train","algorithm":"int8","loss":null,"accuracy":0.5})") ==
          Line::train);
    CHECK(reader.take(R"({"type":"error","text":"one"})") == Line::error);
    CHECK(reader.take(R"({"type":"error","text":"two"})") == Line::error);
    REQUIRE(report.hosts.size() == 1);  // told twice: the latter
    CHECK(report.hosts[0].cores == 4);
    REQUIRE(report.comms.size() == 1);
    CHECK(report.comms[0].oversubscribed);
    CHECK(report.comms[0].details.size() == 1);
    REQUIRE(report.rows.size() == 1);
    CHECK(report.rows[0].bytes == 1024);
    CHECK(report.rows[0].t_p50_us == 1.5);
    CHECK(std::isnan(report.rows[0].busbw_GBps));
    REQUIRE(report.train.size() == 1);
    CHECK(std::isnan(report.train[0].loss));
    CHECK(reader.errors() == "one\ntwo");
}

TEST_CASE("what is no line of ours is let pass, what is broken is not", "[lab]") {
    LabReport report;
    RecordReader reader(report);
    CHECK(reader.take("") == Line::other);
    CHECK(reader.take("NCCL version 2.28.9") == Line::other);
    CHECK(reader.take("{ not ours") == Line::other);
    CHECK(reader.take(R"({"type":"later"})") == Line::other);
    CHECK(reader.take(R"({"type":7})") == Line::other);
    const auto broken = reader.take("{\"type\":\"row\",\"loss\":nan\x1b[2J");
    REQUIRE_FALSE(broken.has_value());
    CHECK(broken.error().message ==
          "unreadable line of the rank program: {\"type\":\"row\",\"loss\":nan [2J");
    CHECK(reader.take(R"({"type":"row","bytes":-5,"hosts":"many","count":1e300})") == Line::row);
    CHECK(report.rows.back().bytes == 0);
    CHECK(report.rows.back().count == 0);
    CHECK(report.rows.back().hosts == 1);
}

TEST_CASE("foreign text cannot order a terminal about", "[lab]") {
    CHECK(printable("a\x1b[31mb\tc\nd") == "a [31mb c\nd");
    CHECK(printable("gr\xc3\xbc\xc3\x9f\x65") == "gr\xc3\xbc\xc3\x9f\x65");
    CHECK(printable("\xff\xc3[\xe2\x82") == "??[??");
    CHECK(printable("\xc2\x9b"
                    "31m") == " 31m");
    CHECK(printable("\xed\xa0\x80") == "???");
    CHECK(printable(std::string("a\0b", 3)) == "a b");
}

TEST_CASE("a report that is written as JSON is read back", "[lab]") {
    LabReport report = lab_report();
    report.interrupted = true;
    report.title = "a \"title\"";
    report.skipped = {"backend \"nccl\": no GPU"};
    FailureRecord& failure = report.failures.emplace_back();
    failure.what = "sweep";
    failure.exit_code = 204;
    failure.error = "lost \"s2\"\nfor good";
    const auto back = parse_report(write_json(report), "a.json");
    REQUIRE(back.has_value());
    CHECK(write_json(*back) == write_json(report));
    CHECK(back->rows.size() == report.rows.size());
    CHECK(back->hosts[1].name == "s2");
    CHECK(back->failures[0].error == failure.error);
    CHECK(back->skipped == report.skipped);
    CHECK(back->interrupted);
    CHECK(std::isnan(back->rows[0].wire_bytes_per_rank));
}

TEST_CASE("files that are no reports are refused by name", "[lab]") {
    const auto error_of = [](std::string_view text) {
        const auto report = parse_report(text, "a.json");
        return report ? "" : report.error().message;
    };
    CHECK_THAT(error_of("nonsense"), Contains("a.json: no JSON: "));
    CHECK(error_of("[]") == "a.json: no report of dtrun bench --json");
    CHECK(error_of(R"({"schema":3})") == "a.json: no report of dtrun bench --json");
    CHECK(error_of(R"({"schema":"dtrun-bench","version":9})") ==
          "a.json: a report of version 9; this dtrun reads version 1");
    CHECK(error_of(R"({"schema":"dtrun-bench","version":1,"rows":[3,{}],"train":{}})").empty());
}

TEST_CASE("numbers are short, and what is not known is a dash", "[lab]") {
    CHECK(short_number(1234.56) == "1235");
    CHECK(short_number(0.012345) == "0.01235");
    CHECK(short_number(12) == "12.00");
    CHECK(short_number(0) == "0");
    CHECK(short_number(kUnknown) == "-");
    CHECK(short_time(0.85) == "0.850 s");
    CHECK(short_time(73.84) == "1m13.8s");
    CHECK(short_time(59.96) == "1m00.0s");
    CHECK(short_time(142.3) == "2m22.3s");
    CHECK(time_left(0, 8, 0) == "");
    CHECK(time_left(3, 8, 30) == ", about 50 s left");
    CHECK(time_left(1, 8, 60) == ", about 7 min left");
    CHECK(percent(0.0958) == "9.58 %");
    CHECK(percent(kUnknown) == "-");
    CHECK(bandwidth_text(0.0123) == "0.012");
    CHECK(bandwidth_text(123.45) == "123.5");
}

TEST_CASE("speed-up is T(1) over T(p) of the same problem", "[lab]") {
    LabReport report = lab_report();
    const auto points = scaling_of(report, "parallel");
    REQUIRE(points.size() == 4);
    CHECK(points[0].speedup == 1);
    CHECK(points[1].speedup == Approx(10.0 / 6));
    CHECK(points[1].efficiency == Approx(10.0 / 6 / 2));
    CHECK(points[3].speedup == Approx(2.5));
    CHECK(points[3].efficiency == Approx(0.625));
    report.train[3].global_batch = 512;  // has no T(1)
    CHECK(std::isnan(scaling_of(report, "parallel")[3].speedup));
    report.train.push_back(train_record("parallel", "mpi", 1, 1, 12));  // its own T(1) is better
    CHECK(scaling_of(report, "parallel")[1].speedup == Approx(2));
}

TEST_CASE("the lab's tables have the lab's rows", "[lab]") {
    const std::string text = write_markdown(lab_report()).text;
    CHECK_THAT(
        text,
        Contains("|  | s1 and s2 |\n|---|---|\n| Hosts | 2 |\n| Processors | EPYC, 2 CPUs |"));
    CHECK_THAT(text, Contains("| backend | hosts | ranks per host | time per step |"));
    CHECK_THAT(text,
               Contains("| serial | 1 | 1 | 10.00 ms | 25600 samples/s | 1.00 | 100 % | 20 % |"));
    CHECK_THAT(text, Contains("| mpi | 2 | 2 | 4.000 ms | 64000 samples/s | 2.50 | 62 % | 20 % |"));
    CHECK_THAT(text, Contains("| serial | 1 device | 1m13.8s | 98.35 % |"));
    CHECK_THAT(text, Contains("| 8 bits (int8) | 4 devices (2 x 2) | 1m13.8s | 98.35 % |"));
    CHECK_THAT(text, Contains("## allreduce of f32\n"));
    CHECK_THAT(text, Contains("| gloo | 2 | 2 | int8 | 1M | "));
    CHECK_THAT(text, Contains("| mpi | GPUDirect P2P | no: no GPU | 2x2 |"));
}

TEST_CASE("a loss scale that is not 1 stands beside what was trained with it", "[lab]") {
    LabReport report = lab_report();
    CHECK_THAT(write_markdown(report).text, !Contains("loss scale"));
    for (TrainRecord& run : report.train) run.loss_scale = 0.0625;
    CHECK_THAT(write_markdown(report).text,
               Contains("3 epochs, generated digits, loss scale 0.0625."));
    const Comparison comparison = compare_reports(lab_report(), report);
    CHECK(comparison.only_after == static_cast<int>(report.train.size()));
    CHECK(parse_report(write_json(report), "a")->train[0].loss_scale == 0.0625);
}

TEST_CASE("hosts that differ are told apart", "[lab]") {
    LabReport report = lab_report();
    report.hosts[1].libraries[0] = "MPICH 4.0";
    report.hosts[1].gpus = {{"T4", 15.0 * (1 << 30)}, {"T4", 15.0 * (1 << 30)}};
    for (HostRecord& host : report.hosts) host.cuda = "13.0";  // of a library, on s1 as well
    const Table table = environment_table(report);
    REQUIRE(table.columns.size() == 3);
    CHECK(std::ranges::find(table.rows, std::vector<std::string>{"CUDA", "-", "13.0"}) !=
          table.rows.end());
    CHECK(table.columns[2].name == "s2");
    CHECK(table.rows[0] == std::vector<std::string>{"Hosts", "1", "1"});
    CHECK(table.rows[2] == std::vector<std::string>{"GPUs", "none", "2 x T4, 15 GiB"});
    CHECK_THAT(plain_text(table), Contains("  s2\n    Hosts           1\n"));
    const auto is_dtrun = [](const auto& row) { return row[0] == "dtrun"; };
    CHECK(std::ranges::count_if(table.rows, is_dtrun) == 1);
    CHECK(environment_table(LabReport{}).empty());
}

TEST_CASE("tables escape what is foreign", "[lab]") {
    LabReport report = only_host("a|b<script>*_");
    CHECK_THAT(write_markdown(report).text, Contains("| a\\|b&lt;script>\\*\\_ |"));
    FailureRecord& failure = report.failures.emplace_back();
    failure.backend = "=cmd()";
    failure.error = "said \"no\",\nthen left";
    const std::string csv = write_csv(report);
    CHECK_THAT(csv, Contains("error,'=cmd(),1,1,1,"));
    CHECK_THAT(csv, Contains(",0,\"said \"\"no\"\",\nthen left\"\r\n"));
}

TEST_CASE("CSV has every column, and a line for every result", "[lab]") {
    const LabReport report = lab_report();
    const std::string csv = write_csv(report);
    const auto lines = split(csv, '\n');
    REQUIRE(lines.size() == 1 + report.rows.size() + report.train.size() + 1);
    const auto columns = split(lines[0], ',').size();
    for (std::size_t i = 0; i + 1 < lines.size(); ++i)
        CHECK(split(lines[i], ',').size() == columns);
    CHECK_THAT(std::string(lines[0]), Contains("t_p99_us,t_max_us,algbw_GBps,busbw_GBps,"));
    CHECK_THAT(std::string(lines[1]),
               Contains("row,mpi,2,1,2,allreduce,f32,none,false,1024,256,20,"));
}

TEST_CASE("the terminal's lines fit 80 columns", "[lab]") {
    LabReport report = lab_report();
    report.rows.push_back(row_record("nccl", 16, 8, 1ull << 34, 3e6, "fp8-e4m3-unscaled"));
    TerminalRows lines;
    std::string text;
    for (const RowRecord& row : report.rows) text += lines.row(row);
    CHECK_THAT(text, Contains("\n# gloo: 2 hosts x 2 ranks, allreduce f32, compressed to int8\n"));
    for (const TrainRecord& run : report.train) text += lines.train(run);
    report.skipped = {"backend nccl: no GPU"};
    report.failures.emplace_back().error = std::string(30, 'x') + " " + std::string(60, 'y');
    text += terminal_summary(report, true);
    CHECK_THAT(text, Contains("Scaling inside a host\n") && Contains("Scaling between hosts\n"));
    CHECK_THAT(text, Contains("Not measured\n  - backend nccl: no GPU\n"));
    CHECK_THAT(text, Contains("  backend  hosts  each  library "));
    CHECK_THAT(text, Contains("GPUDirect P2P"));
    CHECK_THAT(terminal_summary(report, false), !Contains("GPUDirect P2P"));
    for (const std::string_view line : split(text, '\n')) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
    }
}

TEST_CASE("a heading is repeated only where another measurement begins", "[lab]") {
    TerminalRows lines;
    CHECK_THAT(lines.row(row_record("mpi", 1, 2, 1'024, 5)), Contains("# mpi: 1 host x 2 ranks"));
    const std::string second = lines.row(row_record("mpi", 1, 2, 4'096, 8));
    CHECK(second ==
          "      4096      1024     8.160     8.000     12.00  0.512  0.512       0     0\n");
    RowRecord unchecked = row_record("mpi", 1, 2, 8'192, 8);
    unchecked.wrong = unchecked.rel_err = kUnknown;
    CHECK_THAT(lines.row(unchecked), Contains("       -     -\n"));
}

TEST_CASE("a change counts only beyond the noise of both runs", "[lab]") {
    LabReport before = lab_report();
    LabReport after = before;
    CHECK(comparison_text(compare_reports(before, after)) == "0 faster, 0 slower, 17 within noise");
    after.rows[0] = row_record("mpi", 2, 1, 1'024, before.rows[0].t_p50_us / 2);
    after.rows[1] = row_record("gloo", 2, 1, 1'024, before.rows[1].t_p50_us * 1.06);
    after.rows[2] = row_record("gloo", 2, 1, 1'024, before.rows[2].t_p50_us * 1.2, "int8");
    after.train[1].step_ms = 9;
    after.train.pop_back();
    after.rows.push_back(row_record("nccl", 2, 1, 1'024, 5));
    const Comparison comparison = compare_reports(before, after);
    CHECK(comparison_text(comparison) ==
          "1 faster, 2 slower, 13 within noise; 1 only in the first report; 1 only in the second "
          "report");
    const Table table = comparison_table(comparison);
    CHECK(table.rows[0][0] == "allreduce f32 1K");  // the largest change
    CHECK(table.rows[0][1] == "mpi 2x1");
    CHECK(table.rows[0][4] == "2.00");
    CHECK(table.rows[0].back() == "faster");
    CHECK(table.rows[1][0] == "train mlp 256 parallel");
    CHECK(table.rows[2][0] == "allreduce f32 int8 1K");
    CHECK(table.rows[2].back() == "slower");
    for (RowRecord* const row : {&before.rows[2], &after.rows[2]}) row->compression = "fp8-e4m3";
    const std::string text = plain_text(comparison_table(compare_reports(before, after)));
    CHECK_THAT(text, Contains("allreduce f32 fp8-e4m3 1K "));
    for (const std::string_view line : split(text, '\n')) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
    }
}

TEST_CASE("noise is the nearer side of the spread, and never nothing", "[lab]") {
    RowRecord row = row_record("mpi", 1, 2, 1'024, 100);
    CHECK(noise_of(row) == Approx(0.05));
    row.t_min_us = 20;
    CHECK(noise_of(row) == Approx(0.5));
    row.t_p99_us = 101;
    CHECK(noise_of(row) == Approx(0.03));
    row.t_min_us = kUnknown;
    CHECK(noise_of(row) == Approx(0.03));
}

TEST_CASE("a failed run says the most useful first", "[lab]") {
    CHECK(failure_text(1, "no backend", "dtrun: rank 0 failed\n") == "no backend");
    CHECK(failure_text(204, "", "\n  a\x1b[1m\n\nb\n") == "  a [1m\nb");
    CHECK(failure_text(7, "", "") == "ended with exit code 7");
    CHECK_THAT(failure_text(127, "", "dtrun: not found"),
               Contains("not found\ndtrun-bench-rank has to lie at the same path on every host"));
    CHECK(failure_text(1, std::string(5'000, 'x'), "").size() < 3'100);
}

TEST_CASE("the command in a report keeps secrets", "[lab]") {
    const std::vector<std::string> words{
        "-x",     "TOKEN=secret", "-x", "PATH", "-x=KEY=secret", "-xWORD=secret",
        "-xPATH", "-H",           "a b"};
    CHECK(typed_command(words) ==
          "dtrun bench -x TOKEN=... -x PATH -x=KEY=... -xWORD=... -xPATH -H 'a b'");
}
