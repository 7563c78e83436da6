#include "base/strings.h"
#include "base/text_layout.h"
#include "lab/report/compare.h"
#include "lab/report/html.h"
#include "lab/report/phrases.h"
#include "lab/report/text.h"
#include "lab/run/run.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <set>

using namespace dtrun;
using namespace dtrun::lab;
using Catch::Contains;

namespace {

constexpr Language kChinese = Language::chinese;

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// What a reader of a page sees: its style and its tags are left out, but for names that are read out.
std::string visible_text(std::string_view page) {
    std::string text;
    for (std::size_t at = page.find("</style>"); at < page.size();) {
        const std::size_t tag = std::min(page.find('<', at), page.size());
        text.append(page.substr(at, tag - at)).append(" ");
        const std::size_t end = std::min(page.find('>', tag), page.size());
        const std::string_view inside = page.substr(tag, end - tag);
        constexpr std::string_view kLabel = "aria-label=\"";
        if (const std::size_t label = inside.find(kLabel); label != std::string_view::npos)
            text.append(inside.substr(label + kLabel.size())).append(" ");
        at = end + 1;
    }
    return text;
}

/// Words of letters that are neither names nor units, nor within a name such as a file's.
std::set<std::string> words_in(std::string_view text, const std::set<std::string>& names) {
    std::set<std::string> words;
    for (std::size_t at = 0; at < text.size();) {
        if (!is_letter(text[at])) {
            ++at;
            continue;
        }
        std::size_t end = at;
        while (end < text.size() && (is_letter(text[end]) || text[end] == '-')) ++end;
        const std::string word(text.substr(at, end - at));
        // "f32", "s1", "--hosts", "/dev/kfd", "a.md", "NAME=value": parts of names and of commands.
        const auto is_part = [&text](std::size_t place) {
            return place < text.size() &&
                   std::string_view("-_/.=$0123456789").find(text[place]) != std::string_view::npos;
        };
        if (word.size() > 1 && !is_part(at - 1) && !is_part(end) && !names.contains(word))
            words.insert(word);
        at = end;
    }
    return words;
}

/// A report in which everything is that a report may have.
LabReport whole_report() {
    LabReport report = lab_report();
    report.language = kChinese;
    report.target_accuracy = 0.95;
    report.line_rate_mbit = 1'000;
    report.interrupted = true;
    report.hosts[0].nics = {{"eth0", "Intel E810", 25'000, "ice"}};
    report.hosts[0].gpus = {{"Tesla T4", 15e9}, {"Tesla T4", 15e9}};
    report.hosts[0].gpu_links = "NVLink (NV18), a PCIe host bridge (PHB)";
    report.hosts[1].memory_bytes = 1e11;
    report.comms[0].why =
        "the best that every rank has; not dtrun (rank 1 on s2 has not heard of it); not mpi "
        "(rank 0 on s1: no libdtrun_backend_mpi_mpich.so in /usr/lib/dtrun/backends)";
    report.comms[0].details = {{"GPUDirect P2P", "no: no other rank on this host"}};
    report.comms[0].oversubscribed = true;
    report.comms.push_back(report.comms[0]);
    report.comms[1].backend = "dtrun";
    report.comms[1].transport = "shared memory and tcp over eth0 (10.0.0.1)";
    report.comms[1].why = "asked for";
    report.comms[1].details = {{"levels", "2 hosts, 4 rails"},
                               {"encryption", "no"},
                               {"GPUDirect RDMA", "no: what it sends is in memory of the host"}};
    report.rows[0].wrong = 2;
    report.rows.push_back(report.rows[1]);
    report.rows.back().in_place = true;
    add_pairs(report, 3);
    for (TrainRecord& run : report.train) run = with_epochs(std::move(run), 1, {0.91, 0.94, 0.96});
    TrainRecord own = train_record("parallel", kOwnBackend, 2, 2, 7);
    own.model = "python3 train.py";
    own.scaling = "weak";
    report.train.push_back(own);
    for (const int seed : {1, 2})
        report.train.push_back(
            with_epochs(train_record("fp16", "mpi", 2, 2, 3), seed, {0.9, 0.97}));
    const auto failed = [&report](std::string what, std::string backend, int code,
                                  std::string error) {
        FailureRecord& failure = report.failures.emplace_back();
        failure.what = std::move(what);
        failure.backend = std::move(backend);
        failure.exit_code = code;
        failure.error = std::move(error);
    };
    failed("facts", "", 201,
           "cannot start: 1 of 2 hosts failed\n  s9: unknown host name; `ssh NAME` has to know it");
    failed("sweep", "glo", 3, "no results were printed; did you mean gloo?");
    failed("script", kOwnBackend, 0,
           "it told of no two steps: call Worker.progress(step) in each, train with dtrun.torch's "
           "optimizer or "
           "hooks, or have steps found in its output by --step-regex; it printed nothing");
    failed("script int8", kOwnBackend, 1,
           "rank 1 on s2 (pid 4711) exited with code 1 after 0.24 s\n  last 1 line of its standard "
           "error:\n"
           "  | 1 2 3\n  3 other ranks ended by dtrun");
    failed("train fp16", "mpi", 0, "said nothing for 300 s (--timeout)");
    failed("backends", "", 0,
           "none can be had on every host:\nbackend nccl: the backend \"nccl\" is not there: rank "
           "0 on s1: no driver for a GPU here (neither NVIDIA's libcuda.so.1 nor AMD's /dev/kfd)");
    report.skipped = {"6 trainings with several ranks: the serial one has failed already",
                      "2 runs on 2 hosts or more: not all of these hosts can run it"};
    return report;
}

// Names, units, and what the report's host and command are called.
const std::set<std::string> kNames{
    "dtrun", "bench", "mpi", "gloo", "nccl", "oneccl", "allreduce", "MPI", "NCCL", "Open", "EPYC",
    "Intel", "Tesla", "NVLink", "PCIe", "GPU", "CPU", "OS", "RDMA", "NVIDIA", "AMD", "TCP",
    "GPUDirect", "PHB", "Gbit", "Mbit", "GiB", "MiB", "GB", "MB", "kB", "ms", "us", "min", "bit",
    "ice", "scalability", "mlp", "Python", "PyTorch", "Horovod", "Worker", "hook", "ssh", "pid",
    "UTC", "osu", "algbw", "busbw", "fp", "int", "glo", "MPICH",
    // Of Worker.progress(step), and as Markdown has line ends and underscores.
    "step", "br", "libdtrun"};

}  // namespace

TEST_CASE("each phrase is there in both languages, with the same places", "[lab]") {
    const auto places_of = [](std::string_view text) {
        std::multiset<char> places;
        for (std::size_t at = 0; (at = text.find('{', at)) != std::string_view::npos; ++at)
            places.insert(text[at + 1]);
        return places;
    };
    std::set<std::string_view> seen;
#define PHRASE(english, chinese)                                            \
    {                                                                       \
        CAPTURE(english);                                                   \
        CHECK(places_of(english) == places_of(chinese));                    \
        CHECK(seen.insert(english).second);                                 \
        CHECK(std::ranges::any_of(std::string_view(chinese),                \
                                  [](char c) { return (c & 0x80) != 0; })); \
    }
#define FACT(english, chinese) PHRASE(english, chinese)
#include "lab/report/phrases.def"
#undef FACT
#undef PHRASE
}

TEST_CASE("what dtrun has said is told in Chinese, what others have printed is not", "[lab]") {
    CHECK(told_in(Language::english, "no results were printed") == "no results were printed");
    CHECK(told_in(kChinese, "no results were printed; did you mean gloo?") ==
          "没有输出任何结果；是否想写 gloo？");
    CHECK(told_in(kChinese, "2 runs on 3 hosts or more: not all of these hosts can run it") ==
          "2 个实验（3 台服务器或更多）：这些服务器并非都能运行");
    CHECK(told_in(kChinese, "rank x on s1: no") == "rank x on s1: no");
    // Words of ours are not ours where a program prints them.
    CHECK(told_in(kChinese, "yes\nfacts\n3 rows\ntrain 0.93") == "yes\nfacts\n3 rows\ntrain 0.93");
    CHECK(told_in(kChinese, "  | no results were printed") == "  | no results were printed");
    CHECK(told_in(kChinese, "a. Its last lines:\nno results were printed") ==
          "a。程序最后的输出：\nno results were printed");
    CHECK(told_in(kChinese, "  hint: there is no a.py; ranks run in /tmp") ==
          "  提示：没有 a.py；进程在 /tmp 中运行");
    // Nor are names, though one of ours may be the same word.
    CHECK(told_in(kChinese, "  hint: there is no train; ranks run in script") ==
          "  提示：没有 train；进程在 script 中运行");
    CHECK(told_in(kChinese, "rank 1 on pairs (pid 7) exited with code 1 after 2 s") ==
          "pairs 上的进程 1（pid 7）运行 2 s 后以退出码 1 结束");
    CHECK(told_in(kChinese, "").empty());
    CHECK(fact_in(kChinese, "shared memory and tcp over eth0 (10.0.0.1)") ==
          "共享内存与 TCP（eth0 (10.0.0.1)）");
    CHECK(fact_in(kChinese, "no") == "否");
    CHECK(fact_in(kChinese, "thin air") == "thin air");
    CHECK(fact_in(kChinese, "train fp16") == "训练（fp16）");
}

TEST_CASE("a Chinese report has no English but names, commands and units", "[lab]") {
    const LabReport report = whole_report();
    const std::string command = report.command;
    const auto english_of = [&command](std::string text) {
        while (text.find(command) != std::string::npos)
            text.erase(text.find(command), command.size());
        return words_in(text, kNames);
    };
    CHECK(english_of(terminal_summary(report, true)) == std::set<std::string>{});
    CHECK(english_of(write_markdown(report, "lab").text) == std::set<std::string>{});
    CHECK(english_of(visible_text(write_html(report))) == std::set<std::string>{});
    std::string lines;
    TerminalRows terminal(kChinese);
    for (const RowRecord& row : report.rows) lines += terminal.row(row);
    for (const TrainRecord& run : report.train) lines += terminal.train(run);
    for (const FailureRecord& failure : report.failures)
        lines += failure_title(failure, kChinese) + "\n";
    CHECK(english_of(lines + time_left(1, 8, 60, kChinese)) == std::set<std::string>{});
    for (const std::string_view line : split(lines, '\n')) {
        CAPTURE(line);
        CHECK(width_in_columns(line) <= 80);
    }
}

TEST_CASE("two reports are compared in Chinese", "[lab]") {
    const LabReport before = whole_report();
    LabReport after = before;
    after.rows[0].t_p50_us *= 3;
    after.rows[1].t_p50_us /= 3;
    after.rows.pop_back();
    after.train.pop_back();
    const Comparison comparison = compare_reports(before, after);
    const std::string text = plain_text(comparison_table(comparison)) + comparison_text(comparison);
    CHECK_THAT(text, Contains("更快") && Contains("更慢") && Contains("只在第一份报告中"));
    CHECK(words_in(text, kNames) == std::set<std::string>{});
    const std::string page = write_html(comparison, before, after);
    CHECK_THAT(page, Contains("<html lang=\"zh-CN\">") && Contains("<td class=\"bad\">更慢</td>"));
    CHECK(words_in(visible_text(page), kNames) == std::set<std::string>{});
}

TEST_CASE("the report's file keeps what was said in English", "[lab]") {
    const LabReport report = whole_report();
    CHECK_THAT(write_json(report),
               Contains("no results were printed; did you mean gloo?") && !Contains("没有输出"));
    CHECK_THAT(write_csv(report), Contains(",facts,") && Contains("said nothing for 300 s"));
}
